"""What two records of a run, as `dvc.lock` holds them, differ in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Lock = Mapping[str, Any]  # what dvc.lock says of each stage
Entry = Mapping[str, Any]  # of one path: its md5, size, and for a folder its files' number

NOTHING = "nothing"


@dataclass(frozen=True)
class Difference:
    """An out that isn't the same."""

    stage: str
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.path}: {self.what}"


def count_outs(committed: Lock, got: Lock, stages: Iterable[str]) -> int:
    """How many outs either record has."""
    return sum(len(_entries(committed, got, stage, "outs")) for stage in stages)


def differing_outs(committed: Lock, got: Lock, stages: Iterable[str]) -> list[Difference]:
    """The outs of these stages whose contents differ, or that only one record has."""
    return [
        Difference(stage, path, f"committed {_told(before, after)}, got {_told(after, before)}")
        for stage in stages
        for path, (before, after) in _entries(committed, got, stage, "outs").items()
        if _md5(before) != _md5(after)
    ]


def reasons(committed: Lock, got: Lock, stage: str) -> list[str]:
    """What went into a stage, and no stage made, that differs; and parameters that do."""
    made = [path for name in got for path in _entries(committed, got, name, "outs")]
    deps = _entries(committed, got, stage, "deps")
    changed = [
        path
        for path, (before, after) in deps.items()
        if _md5(before) != _md5(after) and not any(_overlap(path, out) for out in made)
    ]
    params = [lock.get(stage, {}).get("params", {}) for lock in (committed, got)]
    return [
        *(f"its dep {path} isn't the one in dvc.lock" for path in changed),
        *(["its params aren't those in dvc.lock"] if params[0] != params[1] else []),
    ]


def _entries(
    committed: Lock, got: Lock, stage: str, kind: str
) -> dict[str, tuple[Entry | None, Entry | None]]:
    """By path, what each record says of it."""
    before, after = (
        {entry["path"]: entry for entry in lock.get(stage, {}).get(kind, [])}
        for lock in (committed, got)
    )
    return {path: (before.get(path), after.get(path)) for path in {**before, **after}}


def _md5(entry: Entry | None) -> str | None:
    return None if entry is None else entry.get("md5")


def _told(entry: Entry | None, other: Entry | None) -> str:
    if entry is None:
        return NOTHING
    files = entry.get("nfiles")
    differs = other is not None and files != other.get("nfiles")
    return f"{_md5(entry)} ({files} files)" if differs else f"{_md5(entry)}"


def _overlap(a: str, b: str) -> bool:
    """Whether the paths are one, or one lies in the other."""
    return f"{a}/".startswith(f"{b}/") or f"{b}/".startswith(f"{a}/")
