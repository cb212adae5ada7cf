"""What every test starts from."""

import signal

import pytest
import torch

# A shell lets what it starts in the background ignore Ctrl-C, and so would every stage that a test
# interrupts; a signal that is handled here is not ignored by what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _torch_as_in_a_stage() -> None:
    """One thread (small tensors, shared cores), a fixed seed, deterministic kernels."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)


def pytest_collectstart() -> None:
    """Weights that a module draws as it is imported are the same whatever was imported before."""
    torch.manual_seed(0)
