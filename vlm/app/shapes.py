"""What `vlm shapes` prints: each module's shapes and parameters, and the arithmetic behind them."""

from pathlib import Path
from typing import NamedTuple

from vlm.app.trace import BATCH, Row, Trace, count, product_line, table
from vlm.config import Params
from vlm.data.coverage import answer_vocabulary
from vlm.data.tokenizer import TextTokenizer
from vlm.model.build import vlm_config
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder
from vlm.model.patch_embed import PatchEmbed
from vlm.model.projector import MLPProjector
from vlm.model.text import TextEncoder
from vlm.model.vit import VisionEncoder, ViTConfig
from vlm.model.vlm import DualEncoder, VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.scenes.asking import draw_questions
from vlm.scenes.captions import write_captions
from vlm.scenes.sampler import sample_scenes
from vlm.training.vision_language import VisionLanguageModel

COUNTED_SCENES = 2000
TOKENS = {"word": "words", "bpe": "byte pairs"}


class Vocabulary(NamedTuple):
    """What a model takes from the texts: V, the closed set of answers; and where they are from."""

    size: int
    answers: list[str]
    source: str


class Section(NamedTuple):
    """A table of modules and the arithmetic of its figures."""

    rows: list[Row]
    arithmetic: list[str]


def page(path: Path, params: Params, words: Vocabulary) -> str:
    """All that is printed: the parameters of `path` first, then the library's own defaults."""
    data, longest = params.data, params.model.text.max_length
    size = f"{data.channels} x {data.image_size} x {data.image_size}"
    lines = [
        f"{path}: B pictures of {size}, each with a text of {longest} tokens, the longest allowed",
        f"V = {words.size} {TOKENS[params.model.text.tokenizer]}, the four marks among them, and"
        f" {len(words.answers)} answers, {words.source}",
        *_printed(shapes_in_force(params, words)),
        "",
        "The library's own defaults, whatever the parameters: each part by itself, for one picture",
        *_printed(shapes_of_defaults()),
    ]
    return "\n".join(lines)


def _printed(section: Section) -> list[str]:
    return ["", *table(section.rows), "", *section.arithmetic]


def count_vocabulary(params: Params) -> Vocabulary:
    """The words and answers of the first training scenes, as the stages take them from all.

    The scenes are drawn in memory, so that no data need lie on the disk. Of own data it is the most
    that the parameters allow.
    """
    data, text, at_most = params.data, params.model.text, params.train_vqa.classifier.max_answers
    if not data.is_drawn:
        answers = [f"answer {number}" for number in range(at_most)]
        return Vocabulary(text.max_vocab, answers, "at most: own data may have fewer")
    number = min(data.train_scenes, COUNTED_SCENES)
    scenes = sample_scenes(data.world, params.seed, "train", number)
    captions = write_captions(data, scenes, params.seed, "train")
    asked = draw_questions(data, scenes, params.seed, "train")
    told = [text for texts in captions.texts.tolist() for text in texts]
    said = [*told, *asked.question, *asked.phrase]
    tokenizer = TextTokenizer.fit(said, text.tokenizer, text.max_vocab)
    which = "all" if number == data.train_scenes else "the first"
    source = f"counted over {which} {number:,} training scenes"
    return Vocabulary(tokenizer.vocab_size, answer_vocabulary(asked.answer, at_most), source)


def config_in_force(params: Params, words: Vocabulary) -> VLMConfig:
    """The architecture that the stages make of these parameters."""
    data = params.data
    return vlm_config(params.model, data.image_size, data.channels, words.size)


def shapes_in_force(params: Params, words: Vocabulary) -> Section:
    """The table of the three models that these parameters make, and the arithmetic."""
    config = config_in_force(params, words)
    head, generator = params.train_vqa.classifier, params.train_vqa.generator
    images = (BATCH, config.in_channels, config.image_size, config.image_size)
    text, begun = (BATCH, config.max_text_len), (BATCH, config.max_text_len - 1)
    pretraining = Trace(lambda: VisionLanguageModel(config), images, text)
    classifying = Trace(
        lambda: AnswerClassifier(
            config,
            words.answers,
            head.fusion,
            head.fusion_depth,
            head.head_hidden,
            head.question_frequency,
        ),
        *(images, text),
    )
    generating = Trace(
        lambda: PhraseGenerator(
            config, generator.memory, generator.context, generator.question_frequency
        ),
        *(images, text, begun),
    )
    model = pretraining.model
    vision, text_encoder, decoder = model.vision, model.text, model.decoder
    towers = (VisionEncoder, TextEncoder, VisionLanguageDecoder)
    rows = [
        *pretraining.rows("pretraining", DualEncoder, *towers),
        *classifying.rows("classifier", DualEncoder),
        *generating.rows("generator", DualEncoder, VisionLanguageDecoder),
    ]
    lines = [
        *vision_lines(vision),
        *pretraining.tower_lines("vision", vision, vision.blocks),
        product_line("projector", model.projector),
        *pretraining.tower_lines("text", text_encoder, text_encoder.blocks),
        *decoder_lines(decoder),
        *pretraining.tower_lines("decoder", decoder, decoder.blocks),
        pretraining.sum_line("pretraining", model),
        classifying.sum_line("classifier", classifying.model),
        generating.sum_line("generator", generating.model),
    ]
    return Section(rows, lines)


def shapes_of_defaults() -> Section:
    """The same of the parts that the library's own defaults make, each by itself."""
    config, decoder_config = ViTConfig(), DecoderConfig()
    images = (1, config.in_channels, config.image_size, config.image_size)
    memory = (1, decoder_config.vision_tokens, decoder_config.vision_dim)
    patches = Trace(PatchEmbed, images)
    encoding = Trace(lambda: VisionEncoder(config), images)
    projecting = Trace(MLPProjector, (1, config.num_tokens, config.hidden))
    decoding = Trace(
        lambda: VisionLanguageDecoder(decoder_config), (1, decoder_config.max_text_len), memory
    )
    vision, decoder = encoding.model, decoding.model
    rows = [
        *patches.rows("PatchEmbed()"),
        *encoding.rows("ViTConfig()", VisionEncoder),
        *projecting.rows("MLPProjector()"),
        *decoding.rows("DecoderConfig()", VisionLanguageDecoder),
    ]
    lines = [
        *vision_lines(vision),
        *encoding.tower_lines("vision", vision, vision.blocks),
        product_line("projector", projecting.model),
        *decoder_lines(decoder),
        *decoding.tower_lines("decoder", decoder, decoder.blocks),
    ]
    return Section(rows, lines)


def vision_lines(encoder: VisionEncoder) -> list[str]:
    """From pixels to tokens, and how many scores attention makes of them."""
    config = encoder.config
    size, patch, channels = config.image_size, config.patch_size, config.in_channels
    side, patches, tokens = size // patch, config.num_patches, config.num_tokens
    grid = f"{size} / {patch} gives {side} x {side} = {patches:,}"
    if config.stem == "patch":
        values = patch * patch * channels
        lines = [
            f"{grid} patches of {patch} x {patch} x {channels} = {values:,} values",
            f"patch projection: {values:,} x {config.hidden:,} + {config.hidden:,}"
            f" = {count(encoder.stem):,} parameters",
        ]
    else:
        halvings = patch.bit_length() - 1
        lines = [
            f"{grid} tokens, one for each {patch} x {patch} pixels",
            f"the conv stem halves the picture {halvings} times, and a token sees some of its"
            " neighbours' pixels too",
            product_line("conv stem", encoder.stem),
        ]
    positions = f"{patches:,} x {config.hidden:,} = {encoder.positions.numel():,}"
    learned = config.position == "learned"
    return [
        *lines,
        f"positions: {positions} " + ("parameters" if learned else "fixed values, nothing learned"),
        f"with CLS: {patches:,} + 1 = {tokens:,} tokens",
        f"width of a head: {config.hidden:,} / {config.heads} = {config.head_dim:,}",
        f"scores a head a layer: {patches:,} x {patches:,} = {patches**2:,} between patches,"
        f" {tokens:,} x {tokens:,} = {tokens**2:,} with CLS",
        f"scores a picture: {tokens**2:,} x {config.heads} heads x {config.depth} layers"
        f" = {tokens**2 * config.heads * config.depth:,}",
    ]


def decoder_lines(decoder: VisionLanguageDecoder) -> list[str]:
    """The decoder's tables, and the scores of its two attentions."""
    config = decoder.config
    words, longest, width = config.text_vocab, config.max_text_len, config.hidden
    seen = config.vision_tokens
    return [
        f"decoder words: {words:,} x {width:,} = {count(decoder.embedding):,} parameters to read"
        f" them, and {count(decoder.head):,} to write them",
        f"decoder positions: {longest:,} x {width:,} = {count(decoder.positions):,} parameters,"
        f" for texts of up to {longest:,} tokens",
        f"decoder scores a head a layer: {longest:,} x {longest:,} = {longest**2:,} between words,"
        f" {longest:,} x {seen:,} = {longest * seen:,} to a picture's tokens",
    ]
