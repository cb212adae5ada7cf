"""Our vision encoder beside the ViT of Transformers: the same features, and the time each takes.

ViT-B/16 at 224 x 224 with the same random weights, on the CPU in fp32:

    python -m benchmarks.vit --threads 2

Exit status 1 if the features differ by more than 1e-4; then nothing is timed.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import ViTModel

from benchmarks.timing import Times, interleaved, machine
from vlm.model.pretrained import load_vit
from vlm.model.vit import VisionEncoder, ViTConfig

TOLERANCE = 1e-4
FORWARD_BATCHES, TRAINING_BATCH = (1, 8), 2
ROUNDS = 5

Features = Callable[[Tensor], Tensor]  # (B, 3, 224, 224) -> (B, 197, 768)


def main() -> None:
    parser = argparse.ArgumentParser(description="Our vision encoder beside Transformers' ViT.")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default: 2)")
    threads: int = parser.parse_args().threads
    if threads < 1:
        parser.error(f"--threads: got {threads}, expected at least 1")
    torch.set_num_threads(threads)
    torch.manual_seed(0)

    theirs = transformers_vit()
    ours = encoder_with_the_weights_of(theirs)
    features: dict[str, Features] = {
        "ours": lambda images: ours(images)[0],
        "theirs": lambda images: theirs(images).last_hidden_state,
    }
    print(machine("transformers"))
    gap = largest_difference(features)
    print(f"largest difference of a feature: {gap:.1e} (at most {TOLERANCE:.0e})")
    if not gap <= TOLERANCE:  # so that NaN fails too
        sys.exit(1)

    print(f"\n{'seconds: median (min-max)':<27}{'ours':<26}{'Transformers':<26}theirs / ours")
    for batch in FORWARD_BATCHES:
        images = torch.rand(batch, 3, 224, 224)
        steps = {name: forward(model, images) for name, model in features.items()}
        print(row(f"forward, batch {batch}", interleaved(steps, ROUNDS)), flush=True)
    images = torch.rand(TRAINING_BATCH, 3, 224, 224)
    steps = {
        "ours": training_step(ours, features["ours"], images),
        "theirs": training_step(theirs, features["theirs"], images),
    }
    label = f"training step, batch {TRAINING_BATCH}"
    print(row(label, interleaved(steps, ROUNDS)))


def transformers_vit() -> ViTModel:
    """ViT-B/16 as its configuration's defaults have it; no pooler, since ours has none."""
    model = transformers.AutoModel.from_config(
        transformers.ViTConfig(), attn_implementation="sdpa", add_pooling_layer=False
    )
    assert isinstance(model, ViTModel)
    return model.eval()


def encoder_with_the_weights_of(theirs: ViTModel) -> VisionEncoder:
    """Ours, the weights taken over by way of a file."""
    encoder = VisionEncoder(ViTConfig(position="learned", norm_eps=1e-12)).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vit.safetensors"
        save_file(theirs.state_dict(), path)
        load_vit(encoder, path)
    return encoder


@torch.inference_mode()
def largest_difference(features: Mapping[str, Features]) -> float:
    """Over all tokens of two random pictures."""
    images = torch.rand(2, 3, 224, 224)
    return float((features["ours"](images) - features["theirs"](images)).abs().max())


def forward(model: Features, images: Tensor) -> Callable[[], None]:
    """One pass without gradients."""

    def step() -> None:
        with torch.inference_mode():
            model(images)

    return step


def training_step(module: nn.Module, model: Features, images: Tensor) -> Callable[[], None]:
    """Forward, and backward of a mean square; dropout is 0, so eval mode changes nothing."""

    def step() -> None:
        module.zero_grad()
        tokens = model(images)
        F.mse_loss(tokens, torch.zeros_like(tokens)).backward()

    return step


def row(label: str, times: Mapping[str, Times]) -> str:
    """A line of the table."""
    cells = [
        f"{taken.median:.3f} ({taken.fastest:.3f}-{taken.slowest:.3f})" for taken in times.values()
    ]
    ratio = times["theirs"].median / times["ours"].median
    return f"{label:<27}{cells[0]:<26}{cells[1]:<26}{ratio:.2f}"


if __name__ == "__main__":
    main()
