"""What becomes of the answers when every question meets another picture.

It asks of any data, drawn or not, whether a model looks: with the wrong picture in front of it, one
that does falls to what can be guessed from the question, and one that doesn't keeps its accuracy.
What is true of the other picture isn't needed, so each question keeps its own picture's answer.
"""

from dataclasses import replace

from vlm.data.tables import QuestionTable, SceneTable
from vlm.evaluation.altering import another
from vlm.evaluation.heads import HEADS, Answerer, Replies
from vlm.evaluation.scoring import Figures, Scorer, score_head


def score_another_picture(
    heads: Answerer,
    scenes: SceneTable,
    questions: QuestionTable,
    before: Replies,
    scorer: Scorer,
    floors: Figures,
) -> Figures:
    """Both heads' accuracy by their own pictures' answers, and the answers that stay.

    Args:
        heads: what is probed.
        scenes, questions: of the split.
        before: what the heads say with the right picture.
        scorer, floors: of the split.

    Returns:
        By head: `same_reply`, the share of replies that are what they were, and the accuracy, whose
        floor is that of the split; each with its interval. Empty where there is one picture.
    """
    if len(scenes) < 2:
        return {}
    partner = another(len(scenes), scorer.seed)
    after = heads.reply(scenes, replace(questions, scene_index=partner[questions.scene_index]))
    right, differs = after.right(questions), after.changed(before, {})
    figures: Figures = {"pictures": len(scenes), "questions": len(questions)}
    for head in HEADS:
        figures[head] = {
            **scorer.per_question("same_reply", ~differs[head]),
            **score_head(scorer, right[head], floors),
        }
    return figures
