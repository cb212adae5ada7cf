"""Running means of losses, kept where the losses are, so that no step waits for a device."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from vlm.training.distributed import World


class Means:
    """Means of each name, weighed by items, and the first step at which one wasn't finite."""

    def __init__(self, names: Iterable[str], device: torch.device) -> None:
        self.names = list(names)
        self._device = device
        zeros = torch.zeros((), dtype=torch.float64, device=device)
        self._sums = dict.fromkeys(self.names, zeros)
        self._counts = dict.fromkeys(self.names, 0)
        self._bad = dict.fromkeys(self.names, zeros + math.inf)

    def add(self, means: Mapping[str, Tensor], counts: Mapping[str, int], step: int) -> None:
        """Count in a batch of `step`: its mean of each name, and the items behind each."""
        for name in self.names:
            mean = means[name].detach().double()
            self._sums[name] = self._sums[name] + mean * counts[name]
            self._counts[name] += counts[name]
            bad = torch.where(mean.isfinite(), math.inf, float(step))
            self._bad[name] = torch.minimum(self._bad[name], bad)

    def totals(self, world: World) -> dict[str, tuple[float, int]]:
        """Sum and items of each name, over all processes; waits for the device."""
        sums = torch.stack(list(self._sums.values())).tolist()
        both = world.sums([*sums, *self._counts.values()], self._device)
        return {
            name: (both[index], int(both[index + len(self.names)]))
            for index, name in enumerate(self.names)
        }

    def start_from(self, totals: Mapping[str, tuple[float, int]]) -> None:
        """Count in what `totals` gave of all processes; for one of them to do."""
        for name, (total, count) in totals.items():
            self._sums[name] = self._sums[name] + total
            self._counts[name] += count

    def means(self, world: World) -> dict[str, float]:
        """The mean of each name over all processes' items; 0 of none."""
        return {name: total / max(n, 1) for name, (total, n) in self.totals(world).items()}

    def first_bad(self, world: World) -> tuple[int, str] | None:
        """Step and name of any process's first loss that wasn't finite; waits for the device."""
        steps = torch.stack(list(self._bad.values()))
        first = world.least(steps).tolist()
        step, name = min(zip(first, self.names, strict=True))
        return None if math.isinf(step) else (int(step), name)
