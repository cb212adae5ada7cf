"""What `vlm shapes --step` adds: the time and the memory of one training step of `pretrain`."""

import resource
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from stages.running.stage import select_device, select_precision
from vlm.config import Params
from vlm.data.loading import CaptionBatch, to_device
from vlm.marks import EOS_ID
from vlm.model.vlm import VLMConfig
from vlm.training.execution import Execution
from vlm.training.objectives import pretraining
from vlm.training.schedule import make_optimizer
from vlm.training.vision_language import VisionLanguageModel

MIB = 2**20
REPEATS = 3


def time_step(params: Params, config: VLMConfig, batch_size: int) -> list[str]:
    """A forward pass, then a step as `fit` makes it, on random pictures and the longest texts.

    One of each goes before, so that nothing is timed that happens only once; of three more, the
    median and the range.
    """
    section, device = params.pretrain, select_device(params.runtime)
    how = Execution(device, precision=select_precision(params.runtime, device))
    torch.set_num_threads(params.runtime.threads)
    torch.manual_seed(params.seed)
    before = _peak_mib(device)
    model = VisionLanguageModel(config).to(device).train()
    recomputes = params.runtime.activation_checkpointing
    model.vision.checkpoint_activations(recomputes)
    learns = [p for p in model.parameters() if p.requires_grad]
    objective = pretraining(model, section.mask_equivalent)
    optimizer = make_optimizer(model, section)

    def loss(batch: CaptionBatch) -> Tensor:
        with how.autocast():
            terms = objective.losses(batch)
        return torch.stack([weight * terms[n] for n, weight in objective.weights.items()]).sum()

    def forward(batches: list[CaptionBatch]) -> None:
        with torch.no_grad():
            for batch in batches:
                loss(batch)

    def step(batches: list[CaptionBatch]) -> None:
        pictures = sum(len(batch.images) for batch in batches)
        for batch in batches:
            (loss(batch) * len(batch.images) / pictures).backward()
        if section.clip_norm:
            nn.utils.clip_grad_norm_(learns, section.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    parts = torch.arange(batch_size).tensor_split(min(section.accumulate, batch_size))
    batches = [to_device(random_batch(config, len(part)), device) for part in parts]
    forward_seconds = _timed(lambda: forward(batches), device)
    step_seconds = _timed(lambda: step(batches), device)
    parts_of_step = "forward, backward, clipping" if section.clip_norm else "forward, backward"
    cuts = f" in {len(parts)} micro-batches" if len(parts) > 1 else ""
    numbers = "bfloat16 over float32 weights" if how.precision == torch.bfloat16 else "float32"
    return [
        f"One training step of pretrain, batch {batch_size}{cuts}: random pictures, texts of"
        f" {config.max_text_len} tokens, {numbers} on {device.type},"
        f" {params.runtime.threads} threads",
        f"forward      {forward_seconds}",
        f"step         {step_seconds}: {parts_of_step} and AdamW",
        f"peak memory  {_peak_mib(device):.0f} MiB, {before:.0f} of it before the model was built;"
        f" activation checkpointing {'on' if recomputes else 'off'}",
    ]


def random_batch(config: VLMConfig, pictures: int) -> CaptionBatch:
    """Pictures of noise, each with a caption of random words and the greatest length."""
    size, longest = config.image_size, config.max_text_len
    return CaptionBatch(
        images=torch.randint(256, (pictures, config.in_channels, size, size), dtype=torch.uint8),
        text_ids=torch.randint(EOS_ID + 1, config.vocab_size, (pictures, longest)),
        keys=torch.arange(pictures),
        features=None,
        counts={"contrast": pictures, "lm": pictures * (longest - 1)},
    )


def _timed(work: Callable[[], None], device: torch.device) -> str:
    """The median and the range of the seconds that some work takes."""
    seconds = []
    for _ in range(1 + REPEATS):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    seconds = seconds[1:]
    return f"{median(seconds):.4f} s ({min(seconds):.4f} to {max(seconds):.4f})"


def _peak_mib(device: torch.device) -> float:
    """The most memory so far: the GPU's, or the whole process's, PyTorch itself included."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / MIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
