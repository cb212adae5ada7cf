"""What an interrupted run needs to go on as if nothing had been.

A checkpoint is one safetensors file, so that it is whole or not there; the numbers beside the
tensors stand as JSON in its metadata. The order of the data, and chance, are functions of (seed,
step), so that they need no saving.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from vlm.errors import UserError
from vlm.files import atomic_path
from vlm.model.folder import save_tensors

CHECKPOINT = "checkpoint.safetensors"


@dataclass
class Checkpoints:
    """Where a run keeps its checkpoint, and how often it writes one.

    Attributes:
        folder: of this very run: its name must stand for parameters, inputs and code.
        seconds: between two checkpoints; 0 writes one after each step.
        before: seconds that earlier processes took up to the checkpoint that was read.
    """

    folder: Path
    seconds: float = 30.0
    before: float = field(default=0.0, init=False)
    _began: float = field(default_factory=time.monotonic, init=False)
    _last: float = field(default_factory=time.monotonic, init=False)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / CHECKPOINT

    def is_due(self) -> bool:
        """Whether the last one is old enough."""
        return time.monotonic() - self._last >= self.seconds

    def write(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Replace the checkpoint.

        Raises:
            OSError: the disk is full; the checkpoint before stays.
        """
        seconds = self.before + time.monotonic() - self._began
        told = json.dumps({"run": self.folder.name, "seconds": seconds, **numbers})
        with atomic_path(self.path) as partial:
            save_tensors(dict(tensors), partial, {"numbers": told})
        self._last = time.monotonic()

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The checkpoint's tensors and numbers; None where there is none.

        Raises:
            UserError: it isn't what `write` wrote here.
        """
        if not self.path.is_file():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                told = (file.metadata() or {}).get("numbers", "{}")
        except SafetensorError:
            tensors, told = {}, "{}"  # and so it is of no run
        try:
            numbers = json.loads(told)
        except ValueError:
            numbers = {}
        if numbers.pop("run", None) != self.folder.name:
            raise UserError(
                f"{self.path}: got another file, or a damaged one, expected this run's checkpoint;"
                " delete it to train from the start"
            )
        self.before = numbers.pop("seconds")
        return tensors, numbers
