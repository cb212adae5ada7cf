"""The bridge from the vision encoder's width to the text's, and freezing."""

from types import MethodType
from typing import TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class MLPProjector(nn.Module):
    """Linear, GELU, Linear: (..., in_dim) -> (..., out_dim), as in LLaVA-1.5 (Liu et al. 2023)."""

    def __init__(self, in_dim: int = 768, hidden_dim: int = 1024, out_dim: int = 512) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, out_dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_dim) -> (..., out_dim)."""
        return self.layers(x)


def freeze(module: Module) -> Module:
    """Let nothing in `module` learn: no gradients, and eval mode that `train()` can't undo.

    Without the second, a frozen encoder would still drop units out and so give the same
    picture another vector at every step. Returns the module.
    """
    module.requires_grad_(False)
    module.eval()
    for part in module.modules():
        part.train = MethodType(_stay_in_eval, part)
    return module


def _stay_in_eval(self: nn.Module, mode: bool = True) -> nn.Module:
    """Stands in for `train`, which a parent calls on each of its children."""
    return self
