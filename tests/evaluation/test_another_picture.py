"""Questions that meet another picture: who looks falls to guessing, who doesn't keeps its score."""

import numpy as np
from answerers import make_split

from vlm.evaluation.another_picture import score_another_picture
from vlm.evaluation.heads import Replies
from vlm.evaluation.predicting import Answers
from vlm.evaluation.scoring import Scorer

SPLIT = make_split(60)
QUESTIONS = SPLIT.questions
SCORER = Scorer(list(QUESTIONS.family), QUESTIONS.scene_id, 50, seed=0)
FLOORS = {"majority": 0.5}


class Looking:
    """Says what is true of the picture that it is shown."""

    def reply(self, scenes, questions) -> Replies:
        told = SPLIT.truth.tell(SPLIT.layout, questions.scene_index, questions.question)
        return Replies(*(Answers(words, np.ones(len(questions))) for words in told))


class Blind:
    """Says the same whatever it is shown."""

    def reply(self, scenes, questions) -> Replies:
        own = (QUESTIONS.answer, QUESTIONS.phrase)
        return Replies(*(Answers(words, np.ones(len(questions))) for words in own))


def score(answerer) -> dict:
    before = answerer.reply(SPLIT.scenes, QUESTIONS)
    return score_another_picture(answerer, SPLIT.scenes, QUESTIONS, before, SCORER, FLOORS)


def test_the_blind_one_keeps_its_score():
    figures = score(Blind())
    for head in ("classifier", "generator"):
        assert figures[head]["same_reply"] == figures[head]["exact_match"] == 1


def test_the_one_that_looks_loses_as_many_answers_as_differ():
    figures = score(Looking())
    for head in ("classifier", "generator"):
        own = figures[head]
        # It was right everywhere: what it keeps is what it still gets right by its own picture.
        assert own["same_reply"] == own["exact_match_per_question"] < 0.9
        assert own["same_reply_low"] <= own["same_reply"] <= own["same_reply_high"]


def test_a_single_picture_has_no_other():
    single = make_split(1)
    scorer = Scorer(list(single.questions.family), single.questions.scene_id, 50, seed=0)
    assert score_another_picture(Blind(), single.scenes, single.questions, None, scorer, {}) == {}
