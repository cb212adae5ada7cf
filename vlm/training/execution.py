"""How a training is carried out, beside what is trained."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from vlm.training.checkpoint import Checkpoints
from vlm.training.distributed import ALONE, World
from vlm.training.parallel import Strategy

Row = dict[str, float]  # of a loss curve


@dataclass(frozen=True)
class Execution:
    """The machine's side of a run: it may change rounding, never meaning.

    Attributes:
        device: where the model lies and the batches go.
        world: the processes that train together; a step's batches are this one's share.
        strategy: with several processes, whether each keeps all weights or a share of them.
        precision: of the forward pass's products; weights, optimizer and losses are fp32.
        compiled: whether `torch.compile` fuses the forward and backward passes.
        checkpoints: where the run is saved and taken up again; None for nowhere.
        should_stop: asked between two steps.
        report: told each step, with its row of the curve where there was a validation.
        resumed: told the step from which an interrupted run goes on.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    world: World = ALONE
    strategy: Strategy = "replicate"
    precision: torch.dtype = torch.float32
    compiled: bool = False
    checkpoints: Checkpoints | None = None
    should_stop: Callable[[], bool] = lambda: False
    report: Callable[[int, Row | None], None] = lambda step, row: None
    resumed: Callable[[int], None] = lambda step: None

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        lower = self.precision != torch.float32
        return torch.autocast(self.device.type, self.precision if lower else None, enabled=lower)
