"""Signals and locks: who is stopped at once, who may save first, who has to wait."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import ROOT

from stages.running import stopping
from stages.running.locking import only_run


@pytest.fixture
def signals(monkeypatch) -> Iterator[None]:
    """Handlers as a stage has them, and no signal yet; afterwards those of before."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    monkeypatch.setattr(stopping, "_state", stopping._Stopping())
    stopping.install()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
@pytest.mark.usefixtures("signals")
def test_outside_of_a_training_a_signal_unwinds_at_once(number, status):
    with pytest.raises(stopping.Stopped):
        signal.raise_signal(number)
    assert stopping.status() == status


@pytest.mark.usefixtures("signals")
def test_a_training_is_asked_and_the_second_time_broken_into(capfd):
    with stopping.patience():
        assert not stopping.is_requested()
        signal.raise_signal(signal.SIGINT)
        assert stopping.is_requested()
        assert capfd.readouterr().err == (
            "stopping once this step is saved; once more to stop at once\n"
        )
        with pytest.raises(stopping.Stopped):
            signal.raise_signal(signal.SIGTERM)
    assert stopping.status() == 143


@pytest.mark.usefixtures("signals")
def test_after_the_training_a_signal_unwinds_again():
    with stopping.patience():
        pass
    with pytest.raises(stopping.Stopped):
        signal.raise_signal(signal.SIGINT)


def test_what_the_caller_ignores_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        stopping.install()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_second_run_waits_for_the_first(tmp_path):
    path, order, told = tmp_path / "locks" / "stage.lock", [], threading.Event()

    def second() -> None:
        with only_run(path, lambda holder: (order.append(holder), told.set())):
            order.append("second")

    with only_run(path, order.append):
        thread = threading.Thread(target=second)
        thread.start()
        assert told.wait(10)
        order.append("first ends")
    thread.join(10)
    holder, *rest = order
    assert holder.isdigit() and rest == ["first ends", "second"]


def test_a_lock_goes_with_its_process_even_by_kill_9(tmp_path):
    path, waited = tmp_path / "stage.lock", []
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from stages.running.locking import only_run\n"
        f"with only_run(Path({str(path)!r}), print):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        def kill(number: str) -> None:
            waited.append(number)
            holder.kill()

        with only_run(path, kill):
            assert waited == [str(holder.pid)]
    with only_run(path, waited.append):  # now that nobody holds it, nobody is told
        assert len(waited) == 1 and Path(path).read_text().strip().isdigit()
