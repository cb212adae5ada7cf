"""Score every model on the test split: answers, phrases, captions, retrieval, floors and probes.

Reads `data/{train,val,test,test_ood}`, all models and the params `seed`, `data`, `evaluate`; writes
`metrics/evaluate.json`, `plots/evaluate/` and `data/predictions/`.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from stages.running.stage import run, select_device
from vlm.config import DataConfig, EvaluateConfig, Params
from vlm.data.coverage import split_texts, text_coverage
from vlm.data.drawn import draw
from vlm.data.loading import CaptionData
from vlm.data.tables import (
    SceneTable,
    read_annotators,
    read_captions,
    read_objects,
    read_picture_names,
    read_questions,
    read_scenes,
)
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.altering import Split
from vlm.evaluation.annotators import score_annotated
from vlm.evaluation.another_picture import score_another_picture
from vlm.evaluation.asked import answers_outside, asked, asked_of, phrase_bleu
from vlm.evaluation.breakdowns import (
    layouts,
    score_by_objects,
    score_counting,
    score_unseen,
    score_whole_pictures,
)
from vlm.evaluation.captioning import (
    Described,
    Guesses,
    described,
    exact_captions,
    score_captions,
)
from vlm.evaluation.causal import outcomes, score
from vlm.evaluation.confidence import Calibrated, Judged, calibrate, score_calibration
from vlm.evaluation.examples import example_rows, write_attention, write_examples
from vlm.evaluation.floors import AskedColumns, floor_correct_within_families
from vlm.evaluation.fresh import count_shared, score_fresh
from vlm.evaluation.gallery import blind_ranks, gallery_hits, score_retrieval
from vlm.evaluation.heads import HEADS, Heads, Replies, spelled
from vlm.evaluation.looking import score_looking
from vlm.evaluation.out_of_distribution import score_unlike
from vlm.evaluation.outputs import Predictions, write_curves, write_plots, write_predictions
from vlm.evaluation.predicting import caption, embed_gallery
from vlm.evaluation.retrieval import FirstHits
from vlm.evaluation.scoring import (
    Bools,
    Figures,
    Scorer,
    score_floors,
    score_head,
)
from vlm.evaluation.word_order import score_word_order
from vlm.files import write_json
from vlm.model.folder import load_captioner

TRAIN, VAL, TEST = Path("data/train"), Path("data/val"), Path("data/test")
UNLIKE = Path("data/test_ood")
PRETRAINED, HEAD_MODELS = Path("models/pretrain"), Path("models/train_vqa")
METRICS, PLOTS = Path("metrics/evaluate.json"), Path("plots/evaluate")
PREDICTIONS = Path("data/predictions")


def main(params: Params) -> None:
    section, seed, device = params.evaluate, params.seed, select_device(params.runtime)
    heads = Heads.load(HEAD_MODELS, section.batch_size, device)
    test, val = (read_split(folder, params, heads.tokenizer) for folder in (TEST, VAL))
    scenes, questions = test.scenes, test.questions
    told, told_val = scenes.described(), val.scenes.described()
    train_questions = spelled(read_questions(TRAIN), heads.tokenizer)
    train_objects = read_objects(TRAIN) if params.data.is_drawn else None
    train = asked(train_questions, train_objects).condensed()
    replies = heads.reply(scenes, questions)
    right = replies.right(questions)
    captions, vectors = describe(told, heads, section, device)

    scorer = Scorer(list(questions.family), questions.scene_id, section.resamples, seed)
    floors = score_floors(scorer, train, asked_of(test))
    true = described(told.captions, told.caption_keys, heads.tokenizer)
    true_of_val = described(told_val.captions, told_val.caption_keys, heads.tokenizer)
    guesses = Guesses.learned(described(*read_captions(TRAIN), heads.tokenizer))
    world = params.data.world if params.data.is_drawn else None
    luck = (section.resamples, seed)
    found, retrieval = retrieve(vectors, true, guesses, section, seed)
    metrics: Figures = {
        "pictures": len(scenes),
        "questions": len(questions),
        **text_coverage(split_texts(scenes.captions, test.questions), heads.tokenizer),
        "floors": floors,
        "classifier": {
            **score_head(scorer, right["classifier"], floors),
            "answers_outside_vocabulary": answers_outside(questions, heads),
        },
        "generator": {
            **score_head(scorer, right["generator"], floors),
            **phrase_bleu(replies.phrases, questions, train_questions, scorer),
        },
        "caption": score_captions(captions, true, guesses, true_of_val, world, *luck),
        "retrieval": retrieval,
        "word_order": score_word_order(
            heads, scenes, questions, replies, spoken(test), scorer, floors
        ),
        "another_picture": score_another_picture(heads, scenes, questions, replies, scorer, floors),
    }
    metrics["calibration"], calibrated = calibration(heads, val, test, replies, right, scorer)
    guessed = floor_correct_within_families(train, asked_of(test))
    metrics["whole_pictures"] = score_whole_pictures(scorer, right, guessed)
    if train_objects is not None:
        known = set(layouts(train_objects))
        metrics |= breakdowns(test, replies, right, train, known, scorer)
        metrics |= probes(heads, test, val, replies, train, scorer)
        metrics |= unlike_figures(heads, params, test, right, train, scorer)
    else:
        said = {"classifier": replies.answers.answer, "generator": replies.phrases}
        who = (questions.question, questions.scene_id)
        metrics["annotators"] = score_annotated(said, read_annotators(TEST), train, *who, *luck)
    if section.fresh_scenes:
        metrics["fresh"] = fresh_figures(heads, params.data, section, seed, train)

    exact = exact_captions(captions, true, world)
    predictions = Predictions(replies, captions, exact, found)
    write_predictions(PREDICTIONS, predictions, told, questions, read_picture_names(TEST))
    write_plots(PLOTS, metrics, replies, scenes, questions, section.samples)
    write_curves(PLOTS, metrics, calibrated, right)
    write_json(METRICS, metrics)


def retrieve(
    vectors: tuple[torch.Tensor, torch.Tensor],
    true: Described,
    guesses: Guesses,
    section: EvaluateConfig,
    seed: int,
) -> tuple[dict[str, FirstHits], Figures]:
    """The first hit of each query of the gallery, by direction, and what they amount to."""
    keys = [keys[0] for keys in true.keys[: section.gallery]]
    texts = [texts[0] for texts in true.captions[: section.gallery]]
    ids = np.arange(len(keys))
    found, by_id = (gallery_hits(*vectors, which) for which in (keys, ids))
    same = {"image_to_text": ids, "text_to_image": np.unique(texts, return_inverse=True)[1]}
    blind = blind_ranks(keys, guesses.keys)
    return found, score_retrieval(found, by_id, same, blind, section.resamples, seed)


def read_split(folder: Path, params: Params, tokenizer: TextTokenizer) -> Split:
    """A split of the world that the parameters describe, its phrases in the heads' spelling."""
    scenes, questions = read_scenes(folder), spelled(read_questions(folder), tokenizer)
    return Split(params.data, params.seed, folder.name, scenes, questions)


def describe(
    scenes: SceneTable, heads: Heads, section: EvaluateConfig, device: torch.device
) -> tuple[list[str], tuple[torch.Tensor, torch.Tensor]]:
    """The pretrained model's captions, and the vectors of the gallery's pictures and captions."""
    captioner = load_captioner(PRETRAINED).to(device)
    pairs = CaptionData(scenes, heads.tokenizer, heads.max_length)
    captions = caption(captioner, pairs.images, heads.tokenizer, section.batch_size)
    return captions, embed_gallery(captioner, pairs, section.gallery, section.batch_size)


def spoken(split: Split) -> Mapping[str, str]:
    """The short answer that each phrase gives; for own pictures nobody knows."""
    return split.truth.spoken() if split.data.is_drawn else {}


def breakdowns(
    test: Split,
    replies: Replies,
    right: dict[str, Bools],
    train: AskedColumns,
    known: set[tuple],
    scorer: Scorer,
) -> Figures:
    """Numbers of objects, layouts that train lacks, and how far counts are off."""
    questions = test.questions
    guesses = floor_correct_within_families(train, asked_of(test))
    objects = [len(test.scenes.objects[scene]) for scene in questions.scene_index]
    figures: Figures = {"by_objects": score_by_objects(scorer, right, guesses, objects)}
    unseen = np.array([layout not in known for layout in layouts(test.scenes.objects)])
    if unseen[questions.scene_index].any():
        figures["unseen_layouts"] = score_unseen(
            scorer, right, guesses, unseen[questions.scene_index]
        )
    counts = questions.family == "count"
    if counts.any():
        figures["counting"] = score_counting(
            replies.of_rows(np.flatnonzero(counts)),
            questions.answer[counts],
            test.truth.spoken(),
            train.of_family("count"),
            scorer.of_rows(counts),
        )
    return figures


def probes(
    heads: Heads, test: Split, val: Split, replies: Replies, train: AskedColumns, scorer: Scorer
) -> Figures:
    """Changes whose truth the scene tells, and where the heads look; writes examples of both."""
    figures: Figures = {"probes": {}}
    examples = []
    for outcome in outcomes(heads, test, replies):
        figures["probes"][outcome.name] = score(outcome, test, scorer, train, val)
        examples += example_rows(outcome, test)
    figures["attention"], maps = score_looking(heads, test, scorer)
    write_examples(PREDICTIONS / "probes.parquet", examples)
    write_attention(PREDICTIONS / "attention.parquet", maps, test)
    return figures


def calibration(
    heads: Heads,
    val: Split,
    test: Split,
    replies: Replies,
    right: dict[str, Bools],
    scorer: Scorer,
) -> tuple[Figures, dict[str, Calibrated]]:
    """How far each head's confidence can be trusted; the temperatures come from val."""
    scenes, questions = val.scenes, val.questions
    on_val = heads.reply(scenes, questions)
    place = {answer: column for column, answer in enumerate(heads.classifier.answers)}
    labels, wanted = (
        np.array([place.get(answer, -1) for answer in table.answer])
        for table in (questions, test.questions)
    )
    found = {
        "classifier": calibrate(
            Judged(heads.logits(scenes, questions), labels),
            Judged(heads.logits(test.scenes, test.questions), wanted),
        ),
        "generator": calibrate(
            Judged.of_confidence(on_val.spoken.confidence, on_val.right(questions)["generator"]),
            Judged.of_confidence(replies.spoken.confidence, right["generator"]),
            column=1,
        ),
    }
    return {head: score_calibration(found[head], right[head], scorer) for head in HEADS}, found


def unlike_figures(
    heads: Heads,
    params: Params,
    test: Split,
    right: dict[str, Bools],
    train: AskedColumns,
    scorer: Scorer,
) -> Figures:
    """Both heads on scenes unlike those of training, if any are asked anything."""
    if not any(UNLIKE.glob("questions-*")):
        return {}
    unlike = read_split(UNLIKE, params, heads.tokenizer)
    replies = heads.reply(unlike.scenes, unlike.questions)
    columns = asked_of(unlike)
    of_unlike = replies.right(unlike.questions)
    return {"ood": score_unlike(unlike, of_unlike, columns, train, test, right, scorer)}


def fresh_figures(
    heads: Heads, data: DataConfig, section: EvaluateConfig, seed: int, train: AskedColumns
) -> Figures:
    """Both heads on scenes that no split holds, drawn in memory."""
    scenes, questions = draw(data, seed, "fresh", section.fresh_scenes).tables()
    scorer = Scorer(list(questions.family), questions.scene_id, section.resamples, seed)
    right = heads.reply(scenes, questions).right(questions)
    return {
        "scenes": len(scenes),
        "questions": len(questions),
        "pictures_also_in_train": count_shared(scenes.images, read_scenes(TRAIN).images),
        **score_fresh(scorer, right, train, asked(questions, scenes.objects)),
    }


if __name__ == "__main__":
    run("evaluate", main)
