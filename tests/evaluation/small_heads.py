"""Both heads with random weights, small enough for loops, and a split for them to look at."""

from dataclasses import replace
from typing import Any

from answerers import make_split

from vlm.data.loading import QuestionData
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.altering import Split
from vlm.evaluation.heads import Heads
from vlm.evaluation.scoring import Scorer
from vlm.model.vlm import VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

SPLIT = make_split(30)
TOKENIZER = TextTokenizer.fit([*SPLIT.questions.question, *SPLIT.questions.phrase])
ANSWERS = sorted(set(SPLIT.questions.answer))
CONFIG = VLMConfig(
    patch_size=8,
    in_channels=1,
    vision_hidden=16,
    vision_depth=2,
    text_hidden=16,
    text_depth=1,
    vocab_size=TOKENIZER.vocab_size,
    max_text_len=32,
)
SCORER = Scorer(list(SPLIT.questions.family), SPLIT.questions.scene_id, 50, seed=0)


def make_heads(fusion: Any = "attention", memory: Any = "tokens", **changes: Any) -> Heads:
    config = replace(CONFIG, **changes)
    classifier = AnswerClassifier(config, ANSWERS, fusion, 2, question_frequency=8.0)
    generator = PhraseGenerator(config, memory, "fused", 8.0)
    return Heads(classifier.eval(), generator.eval(), TOKENIZER, batch_size=16)


def data_of(split: Split, rows: Any = slice(None)) -> QuestionData:
    columns = ("question_id", "scene_id", "scene_index", "family", "question", "answer", "phrase")
    part = {name: getattr(split.questions, name)[rows] for name in columns}
    questions = replace(split.questions, **part)
    return QuestionData(split.scenes, questions, TOKENIZER, 32, ANSWERS)
