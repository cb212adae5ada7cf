"""What every test starts from."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _torch_as_in_a_stage() -> None:
    """One thread (small tensors, shared cores), a fixed seed, deterministic kernels."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
