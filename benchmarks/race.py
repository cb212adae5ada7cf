"""Trainings that take turns until each has reached a target, and the table of what they took."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vlm.evaluation.intervals import wilson

Pause = Callable[[int], None]  # told the steps done
Training = Callable[[Pause], None]


class Judgement(NamedTuple):
    """What a model got right after so much training.

    Attributes:
        steps: updates done.
        seconds: of training, judging left out.
        right: of the questions of the judgement.
    """

    steps: int
    seconds: float
    right: int


@dataclass
class Arm:
    """One training, as it is judged.

    Attributes:
        name: in the table.
        judge: how many of the questions the model now gets right.
        questions: how many there are.
        judgements: so far; their clock stands still while anything is judged.
    """

    name: str
    judge: Callable[[], int]
    questions: int
    judgements: list[Judgement] = field(default_factory=list)
    _started: float = 0.0

    def start(self) -> None:
        """Training goes on from here."""
        self._started = time.perf_counter()

    def stop(self, steps: int) -> None:
        """Training stops here, after so many steps in all, and is judged."""
        taken = time.perf_counter() - self._started
        before = self.judgements[-1].seconds if self.judgements else 0.0
        self.judgements.append(Judgement(steps, before + taken, self.judge()))

    def reached(self, target: float) -> Judgement | None:
        """The first judgement at or above `target`, a share; None where there is none."""
        enough = (j for j in self.judgements if j.right >= target * self.questions)
        return next(enough, None)


@dataclass(kw_only=True)
class Paced(Arm):
    """An arm that others can make wait.

    Attributes:
        training: trains on as it is iterated, and yields the steps done whenever judging is due.
        least: steps that it does even if it reaches the target before.
    """

    training: Iterator[int]
    least: int

    def turn(self, target: float) -> bool:
        """Train up to the next judgement; False once it has nothing left to do.

        That is after `least` steps if it has reached the target, else when `training` ends.
        """
        self.start()
        steps = next(self.training, None)
        if steps is None:
            return False
        self.stop(steps)
        return steps < self.least or self.reached(target) is None


def race(
    train: Callable[[Callable[[int], None]], None],
    ours: Arm,
    others: Sequence[Paced],
    target: float,
) -> None:
    """Let all train by turns, so that a machine that slows down slows all alike.

    Args:
        train: the whole training of ours, which calls what it is given, with the steps done,
            whenever judging is due. The others then take a turn each, and go on when ours is over.
        ours: its clock and judge.
        others: those who wait for it.
        target: a share.
    """
    running = list(others)

    def others_turn() -> None:
        running[:] = [arm for arm in running if arm.turn(target)]

    def pause(steps: int) -> None:
        ours.stop(steps)
        others_turn()
        ours.start()

    ours.start()
    train(pause)
    while running:
        others_turn()


def table(ours: Arm, others: Sequence[Arm], target: float) -> list[str]:
    """A line per arm: its speed, its way to the target, how it ended, its time over ours."""
    goal = f"to {target:.0%}: s (steps)"
    header = f"{'':<28}{'steps/s':>8}{goal:>24}{'at the end: right [95%]':>32}{'/ ours':>9}"
    return [header, *(_row(arm, ours, target) for arm in (ours, *others))]


def _row(arm: Arm, ours: Arm, target: float) -> str:
    last, hit = arm.judgements[-1], arm.reached(target)
    share, (low, high) = last.right / arm.questions, wilson(last.right, arm.questions)
    end = f"{share:.2%} [{low:.2%}, {high:.2%}]"
    way = f"{hit.seconds:.2f} ({hit.steps})" if hit else f"never in {last.seconds:.0f} s"
    ratio = ratio_to(arm, ours, target)
    return f"{arm.name:<28}{last.steps / last.seconds:>8.1f}{way:>24}{end:>32}{ratio:>9}"


def ratio_to(arm: Arm, ours: Arm, target: float) -> str:
    """How many times ours' seconds to the target the arm took; a bound where it never got there."""
    mine, theirs = ours.reached(target), arm.reached(target)
    if mine is None:
        return "-"
    if theirs is None:
        return f">{arm.judgements[-1].seconds / mine.seconds:.1f}"
    return f"{theirs.seconds / mine.seconds:.2f}"
