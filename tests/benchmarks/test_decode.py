"""The arms of the decoding benchmark do the same work, and its command says what it finds."""

import re

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import end_to_end, floor
from benchmarks.bart import bart_like, decoding
from benchmarks.decode import check_arms, main
from benchmarks.floor import kind_of, step_flops
from benchmarks.plain_decoding import decode_plainly
from benchmarks.timing import Times, interleaved, verdict
from vlm.data.tokenizer import TextTokenizer
from vlm.data.writing import write_questions, write_scenes
from vlm.errors import StoppedError
from vlm.generation import decode_greedy
from vlm.marks import BOS_ID
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder
from vlm.model.folder import save_model
from vlm.model.memory import Memory, MemoryPart
from vlm.model.vlm import VLMConfig
from vlm.model.vqa import PhraseGenerator

SIZES = {"hidden": 16, "heads": 2, "depth": 2, "text_vocab": 19, "max_text_len": 12}
QUESTIONS = ["is there a plus", "how many shapes are there", "what shape is it"]


def seeded(norm: str = "pre") -> VisionLanguageDecoder:
    torch.manual_seed(0)
    return VisionLanguageDecoder(DecoderConfig(**SIZES, vision_dim=16, norm=norm)).eval()


@torch.inference_mode()
def by_reading_all_again(decoder, memory, length: int) -> torch.Tensor:
    """The slow obvious way: the whole text in one call, no cache."""
    text = torch.full((5, 1), BOS_ID)
    for _ in range(length):
        text = torch.cat([text, decoder(text, memory)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return text[:, 1:]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_plain_loop_gives_the_tokens_of_ours_and_of_the_modules(norm):
    decoder = seeded(norm)
    mask = torch.arange(4) < torch.tensor([[4], [1], [3], [2], [4]])
    parts = [MemoryPart(torch.randn(5, 3, 16)), MemoryPart(torch.randn(5, 4, 16), mask=mask)]
    for memory in (torch.randn(5, 2, 16), Memory(parts, context=torch.randn(5, 16))):
        plain = decode_plainly(decoder, memory, 12)
        assert torch.equal(plain, by_reading_all_again(decoder, memory, 12))
        prompt, cache = torch.full((5, 1), BOS_ID), decoder.new_cache(5, 12)
        ours = decode_greedy(decoder, memory, prompt, 12, cache=cache, stop_at_end=False)
        assert torch.equal(plain, ours.tokens)


def test_bart_gives_as_many_tokens_as_asked_and_has_our_sizes():
    decoder = seeded()
    bart = bart_like(decoder.config)
    assert decoding(bart, 7)(torch.randn(3, 2, 16)).shape == (3, 7)
    layer, ours = bart.model.decoder.layers[0], decoder.blocks[0]
    assert len(bart.model.decoder.layers) == len(decoder.blocks)
    assert layer.fc1.weight.shape == ours.mlp[0].weight.shape
    assert layer.self_attn.num_heads == ours.self_attention.heads
    assert bart.lm_head.weight.shape == decoder.head.weight.shape


def test_arms_that_differ_are_refused():
    same, other = torch.zeros(2, 3), torch.ones(2, 3)
    arms = dict.fromkeys(("ours", "plain", "modules"), lambda: same) | {"theirs": lambda: other}
    check_arms(arms, 2, 3)
    with pytest.raises(StoppedError, match="batch 2, length 3: ours and plain give"):
        check_arms(arms | {"plain": lambda: other}, 2, 3)
    with pytest.raises(StoppedError, match=r"Transformers gave \(2, 2\) tokens"):
        check_arms(arms | {"theirs": lambda: other[:, :2]}, 2, 3)


@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_the_flops_of_a_step_are_those_that_torch_counts(ratio):
    config = DecoderConfig(**SIZES, vision_dim=16, mlp_ratio=ratio)
    decoder, memory = VisionLanguageDecoder(config).eval(), torch.randn(5, 3, 16)
    cache = decoder.new_cache(5)
    with torch.no_grad():
        decoder(torch.ones(5, 4, dtype=torch.int64), memory, cache=cache)
        # The other kernels of attention are one operator, which the counter leaves out.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            decoder(torch.ones(5, 1, dtype=torch.int64), memory, cache=cache)
    assert step_flops(config, 5, 4 + 1 + 3) == counter.get_total_flops()


def test_operators_have_a_kind():
    kinds = {"aten::addmm_": "matrix products", "aten::gelu": "gelu", "aten::copy_": "copies"}
    assert {name: kind_of(name) for name in kinds} == kinds
    assert kind_of("aten::_softmax") == "softmax"
    assert kind_of("aten::mul") == kind_of("aten::sum") == "attention's products and sums"
    assert kind_of("aten::argmax") == "other"
    assert kind_of("decode") == "between the operators"


def test_arms_take_turns():
    calls: list[str] = []
    times = interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, 3)
    assert "".join(calls) == "abc" * 4 and all(len(t.seconds) == 3 for t in times.values())
    assert Times((0.003, 0.001, 0.002)).milliseconds() == "2.0 (1.0-3.0)"
    assert (verdict(4.0, 4), verdict(2.19, 2.2)) == (">= 4 met", ">= 2.2 not met")


def test_decode_only_needs_no_model(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(floor, "SQUARE", 32)
    options = "--repeats 1 --batches 2 3 --lengths 2 4 --parts decode floor --model none"
    main(options.split())
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "a random decoder" in printed.out and "our modules the same" in printed.out
    cells = re.findall(r"^ +(\d) +(\d)  +[\d.]+ \(", printed.out, re.MULTILINE)
    assert cells == [("2", "2"), ("2", "4"), ("3", "2"), ("3", "4")]
    means = re.search(r"geometric mean((?: +[\d.]+){3})$", printed.out, re.MULTILINE)
    assert means is not None and all(float(mean) > 0 for mean in means[1].split())
    assert "batch 3, 2 new tokens" in printed.out and "    batch 3    batch 2" in printed.out
    for column in (1, 2):  # the shares of a profile
        rows = re.findall(r"^\S.* {2}([\d.]+)% +([\d.]+)%$", printed.out, re.MULTILINE)
        assert sum(float(row[column - 1]) for row in rows) == pytest.approx(100, abs=0.5)


def test_without_a_model_one_line_says_what_makes_it(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["--model", str(tmp_path / "none")])
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err == (
        f"benchmarks.decode: {tmp_path}/none/model.safetensors: not there; `make` makes it,"
        " and `--parts decode floor` does without\n"
    )


@pytest.fixture
def trained(tmp_path) -> list[str]:
    """Where a tiny generator and a test split lie: 5 pictures with 3 questions each."""
    torch.manual_seed(0)
    tokenizer = TextTokenizer.fit(QUESTIONS)
    config = VLMConfig(
        image_size=8, patch_size=4, in_channels=1, vision_hidden=16, text_hidden=16,
        vocab_size=tokenizer.vocab_size,
    )  # fmt: skip
    save_model(tmp_path / "model", PhraseGenerator(config, memory="tokens", context="fused"))
    tokenizer.save(tmp_path / "model")
    images = np.random.default_rng(0).integers(256, size=(5, 1, 8, 8), dtype=np.uint8)
    write_scenes(tmp_path / "data", [images], [[]] * 5, [["a plus"]] * 5, [["a plus"]] * 5)
    texts = QUESTIONS * 5
    write_questions(tmp_path / "data", np.arange(15) // 3, texts, texts, texts, texts)
    return ["--model", str(tmp_path / "model"), "--data", str(tmp_path / "data")]


def test_end_to_end_both_give_the_same_texts(trained, capsys):
    options = "--repeats 1 --parts end-to-end --questions 10 --pictures 2"
    main([*options.split(), *trained])
    printed = capsys.readouterr()
    assert "10 questions about 4 pictures, 1 rounds; at a time\n" in printed.out
    assert "ours takes 2 pictures, (a) 5 questions\n" in printed.out
    assert "texts: all 10 the same" in printed.out and printed.err == ""


def test_texts_that_differ_are_refused(trained, capsys, monkeypatch):
    monkeypatch.setattr(end_to_end, "answer_plainly", lambda *args: ["another"] * 15)
    with pytest.raises(SystemExit) as end:
        main(["--parts", "end-to-end", *trained])
    assert end.value.code == 1
    assert "15 of 15 texts differ; nothing was timed" in capsys.readouterr().err
