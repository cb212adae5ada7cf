"""A model spread over processes: copies (DistributedDataParallel) or shards (FSDP2).

What differs between the two stands here; the loop sees one `Parallel`.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

from vlm.model.attention import EncoderBlock
from vlm.model.decoder import DecoderBlock
from vlm.training.distributed import World

Strategy = Literal["replicate", "shard"]


class Parallel:
    """A module that runs on every process of a world, its gradients averaged over them.

    Args:
        module: what gives the losses; the same weights everywhere.
        world: the processes.
        strategy: `replicate` keeps all weights and optimizer state on every process; `shard` keeps
            of each block's a share, and gathers the weights when the block runs.
    """

    def __init__(self, module: nn.Module, world: World, strategy: Strategy = "replicate") -> None:
        self.world = world
        self._alone: list[nn.Parameter] = []  # whose gradients nobody else averages
        self._sharded: FSDPModule | None = None
        self.run: nn.Module = module
        if world.size == 1:
            return
        if strategy == "replicate":
            # A gradient's layout in memory is of no moment here.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
            # Our buffers are constants, so that there is nothing to send around.
            self.run = DistributedDataParallel(module, forward_sync_buffers=False)
            return
        scalars = {p for p in module.parameters() if p.ndim == 0}  # FSDP2 takes none
        # Left to itself FSDP2 would take a GPU wherever there is one, asked for or not.
        device = next(module.parameters()).device.type
        mesh = init_device_mesh(device, (world.size,))
        for part in module.modules():
            if isinstance(part, EncoderBlock | DecoderBlock):
                fully_shard(part, mesh=mesh)
        self._sharded = fully_shard(module, mesh=mesh, ignored_params=scalars)
        self._alone = [p for p in scalars if p.requires_grad]

    @contextmanager
    def accumulating(self, last: bool) -> Iterator[None]:
        """Of a step's micro-batches only the last one sends gradients around."""
        if isinstance(self.run, DistributedDataParallel) and not last:
            with self.run.no_sync():
                yield
            return
        if self._sharded is not None:
            self._sharded.set_requires_gradient_sync(last)
        yield

    def clip(self, parameters: Sequence[nn.Parameter], longest: float) -> None:
        """Finish the averaging, and cut the gradient to the length `longest`; 0 cuts nothing."""
        for parameter in self._alone:
            if parameter.grad is not None:
                self.world.add(parameter.grad).div_(self.world.size)
        if not longest:
            return
        if self._sharded is None:
            nn.utils.clip_grad_norm_(parameters, longest)
            return
        grads = [p.grad for p in parameters if p.grad is not None]
        shards = [grad.to_local() for grad in grads if isinstance(grad, DTensor)]
        own = [grad for grad in grads if not isinstance(grad, DTensor)]
        norm = (self.world.add(get_total_norm(shards) ** 2) + get_total_norm(own) ** 2).sqrt()
        for grad in [*shards, *own]:
            grad.mul_((longest / (norm + 1e-6)).clamp(max=1.0))


def whole(tensor: Tensor) -> Tensor:
    """A copy on the CPU of all of a tensor, sharded or not; every process must ask."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().to("cpu", copy=True)


def fill(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Give each tensor, sharded or not, its value."""
    with torch.no_grad():
        for name, tensor in tensors.items():
            value = values[name].to(tensor.device)
            if isinstance(tensor, DTensor):  # everyone has the value, so none need send it
                value = distribute_tensor(
                    value, tensor.device_mesh, tensor.placements, src_data_rank=None
                )
            tensor.copy_(value)
