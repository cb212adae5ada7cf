"""Our decoding engine beside a plain loop, and beside `generate` of Transformers.

On the CPU in fp32, one process per number of threads:

    python -m benchmarks.decode --threads 1

Three parts, of which `--parts` chooses:

- decode: the decoder alone, all new tokens for all rows. Ours and (a) have the same weights: the
  trained generator's where there is one, else random ones of the default sizes. (a) is
  `benchmarks/plain_decoding.py`; (b) is a BART of the same width, depth, heads and vocabulary.
- end-to-end: pictures and questions in, texts out. It needs the trained generator.
- floor: what share of the machine's rate a decode step reaches, and where its time goes.

Exit status 1 if the arms don't do the same work, and then that part isn't timed; 2 for a mistake,
told in one line.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import end_to_end
from benchmarks.bart import bart_like, decoding
from benchmarks.floor import report_floor, report_profile
from benchmarks.plain_decoding import decode_plainly
from benchmarks.timing import interleaved, machine, verdict
from vlm.errors import StoppedError, UserError
from vlm.evaluation.decoding import lengthened
from vlm.generation import decode_greedy
from vlm.marks import BOS_ID
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder
from vlm.model.folder import WEIGHTS, load_generator

FAILED, MISTAKE = 1, 2
PARTS = ("decode", "end-to-end", "floor")
MODEL, DATA = Path("models/train_vqa/generator"), Path("data/test")
SIZES = DecoderConfig(
    hidden=64, heads=4, depth=2, mlp_ratio=2.0, text_vocab=64, max_text_len=32, vision_dim=64
)
MEMORY_TOKENS = 2  # the picture's vector and the question's, as in the default run
TARGET_PLAIN, TARGET_THEIRS = 2.2, 4.0

Arms = Mapping[str, Callable[[], Tensor]]  # each gives tokens (B, N)


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    threads: int
    repeats: int
    batches: list[int]
    lengths: list[int]
    questions: int
    pictures: int
    parts: list[str]
    compile: bool
    model: Path
    data: Path


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    try:
        report(options)
    except UserError as error:
        _end(str(error), MISTAKE)
    except StoppedError as error:
        _end(str(error), FAILED)


def read_options(arguments: Sequence[str] | None) -> Options:
    """The command line, which `argparse` refuses with exit status 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.decode",
        description="Our decoding beside a plain loop and Transformers' generate.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add, number = parser.add_argument, _at_least_one
    add("--threads", type=number, default=1, help="of PyTorch")
    add("--repeats", type=number, default=7, help="timed rounds, after one that isn't")
    add("--batches", type=number, nargs="+", default=[8, 64, 512], help="rows of a decode")
    add("--lengths", type=number, nargs="+", default=[20, 40], help="new tokens of a decode")
    add("--questions", type=number, default=2000, help="of the test split, end to end")
    add("--pictures", type=number, default=250, help="at a time, end to end")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    add("--compile", action="store_true", help="let torch.compile fuse our attention")
    add("--model", type=Path, default=MODEL, help="folder of the trained generator")
    add("--data", type=Path, default=DATA, help="folder of the test split")
    return Options(**vars(parser.parse_args(arguments)))


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, expected at least 1")
    return value


def _end(message: str, status: int) -> None:
    print(f"benchmarks.decode: {message}", file=sys.stderr)
    sys.exit(status)


def report(options: Options) -> None:
    """Run the chosen parts and print what they find.

    Raises:
        UserError: a part needs what isn't there; said before anything is timed.
        StoppedError: arms that don't do the same work.
    """
    if "end-to-end" in options.parts:
        check_trained(options)
    print(machine("transformers"))
    if {"decode", "floor"} & set(options.parts):
        decoder, origin = decoder_to_time(options.model, max(options.lengths))
        print(origin)
        if "decode" in options.parts:
            report_decoding(decoder, options)
        if "floor" in options.parts:
            report_floors(decoder, options)
    if "end-to-end" in options.parts:
        questions, pictures = options.questions, options.pictures
        task = end_to_end.load_task(options.model, options.data, questions, pictures)
        end_to_end.report(task, options.repeats)


def check_trained(options: Options) -> None:
    """Refuse to go end to end without a trained generator and test questions."""
    for path in (options.model / WEIGHTS, options.data):
        if not path.exists():
            others = " ".join(part for part in PARTS if part != "end-to-end")
            raise UserError(
                f"{path}: not there; `make` makes it, and `--parts {others}` does without"
            )


def decoder_to_time(folder: Path, length: int) -> tuple[VisionLanguageDecoder, str]:
    """A decoder with room for `length` tokens, and where it comes from."""
    if (folder / WEIGHTS).is_file():
        trained = load_generator(folder).decoder
        decoder, origin = lengthened(trained, length), f"the decoder of {folder}"
    else:
        decoder = lengthened(VisionLanguageDecoder(SIZES).eval(), length)
        origin = f"a random decoder, since {folder} holds none"
    config = decoder.config
    return decoder, (
        f"{origin}: width {config.hidden}, depth {config.depth}, heads {config.heads},"
        f" vocabulary {config.text_vocab}"
    )


def random_memory(decoder: VisionLanguageDecoder, batch: int) -> Tensor:
    """(B, 2, D), a row each; no value changes the time."""
    return torch.randn(batch, MEMORY_TOKENS, decoder.config.vision_dim)


def ours(
    decoder: VisionLanguageDecoder, memory: Tensor, length: int, *, compile: bool = False
) -> Callable[[], Tensor]:
    """The engine, to tokens (B, N); one cache serves all rounds, as it does many batches in use."""
    prompt = torch.full((len(memory), 1), BOS_ID)
    cache = decoder.new_cache(len(memory), length)

    def decode() -> Tensor:
        cache.clear()
        return decode_greedy(
            decoder, memory, prompt, length, cache=cache, stop_at_end=False, compile=compile
        ).tokens

    return decode


def by_modules(decoder: VisionLanguageDecoder, memory: Tensor, length: int) -> Callable[[], Tensor]:
    """The decoder's own modules over the same cache: what the engine makes quicker."""
    cache = decoder.new_cache(len(memory), length)

    @torch.inference_mode()
    def decode() -> Tensor:
        cache.clear()
        tokens = [torch.full((len(memory), 1), BOS_ID)]
        for _ in range(length):
            logits = decoder(tokens[-1], memory, cache=cache, last_only=True)
            tokens.append(logits.argmax(dim=-1))
        return torch.cat(tokens[1:], dim=1)

    return decode


def report_decoding(decoder: VisionLanguageDecoder, options: Options) -> None:
    """Check every cell, then time and print them.

    Raises:
        StoppedError: the arms differ in a cell.
    """
    grid = list(cells(decoder, options))
    for batch, length, arms in grid:
        check_arms(arms, batch, length)
    print(f"\nDecode only, milliseconds: median (min-max) of {options.repeats} rounds")
    columns = {"ours": "ours", "plain": "(a) plain loop", "theirs": "(b) Transformers"}
    columns["modules"] = "our modules"
    names = "".join(f"{name:<23}" for name in columns.values())
    print(f"{'batch':>5}{'length':>7}  {names}{'a / ours':>8}{'b / ours':>9}{'modules / ours':>15}")
    ratios: list[list[float]] = []
    for batch, length, arms in grid:
        times = interleaved(arms, options.repeats)
        ratios.append([times[n].median / times["ours"].median for n in list(columns)[1:]])
        cell = "".join(f"{times[name].milliseconds():<23}" for name in columns)
        a, b, modules = ratios[-1]
        print(f"{batch:>5}{length:>7}  {cell}{a:>8.2f}{b:>9.2f}{modules:>15.2f}", flush=True)
    means = [math.prod(column) ** (1 / len(ratios)) for column in zip(*ratios, strict=True)]
    a, b, modules = means
    print(f"{'geometric mean':<106}{a:>8.2f}{b:>9.2f}{modules:>15.2f}")
    print(f"targets: a / ours {verdict(a, TARGET_PLAIN)}, b / ours {verdict(b, TARGET_THEIRS)}")
    print("tokens: ours, (a) and our modules the same in every cell, (b) as many")


def cells(decoder: VisionLanguageDecoder, options: Options) -> Iterator[tuple[int, int, Arms]]:
    """Each batch size and length, and the arms that decode it."""
    bart = bart_like(decoder.config)
    for batch in options.batches:
        memory = random_memory(decoder, batch)
        for length in options.lengths:
            theirs = decoding(bart, length)
            yield batch, length, arms_of(decoder, theirs, memory, length, options.compile)


def arms_of(
    decoder: VisionLanguageDecoder,
    theirs: Callable[[Tensor], Tensor],
    memory: Tensor,
    length: int,
    compile: bool = False,
) -> Arms:
    """The four ways to `length` tokens."""
    return {
        "ours": ours(decoder, memory, length, compile=compile),
        "plain": lambda: decode_plainly(decoder, memory, length),
        "theirs": lambda: theirs(memory),
        "modules": by_modules(decoder, memory, length),
    }


def check_arms(arms: Arms, batch: int, length: int) -> None:
    """Refuse arms that don't do the same work."""
    tokens = {name: arm() for name, arm in arms.items()}
    where = f"batch {batch}, length {length}"
    for name in ("plain", "modules"):
        if not torch.equal(tokens["ours"], tokens[name]):
            raise StoppedError(f"{where}: ours and {name} give different tokens; nothing was timed")
    if tokens["theirs"].shape != (batch, length):
        got = tuple(tokens["theirs"].shape)
        raise StoppedError(f"{where}: Transformers gave {got} tokens; nothing was timed")


def report_floors(decoder: VisionLanguageDecoder, options: Options) -> None:
    """Both floors at the largest batch, and profiles there and at the smallest."""
    length, largest = min(options.lengths), max(options.batches)

    def decode(batch: int) -> Callable[[], Tensor]:
        return ours(decoder, random_memory(decoder, batch), length, compile=options.compile)

    report_floor(decode(largest), decoder.config, largest, length, MEMORY_TOKENS, options.repeats)
    batches = sorted({largest, min(options.batches)}, reverse=True)
    report_profile({batch: decode(batch) for batch in batches}, length)


if __name__ == "__main__":
    main()
