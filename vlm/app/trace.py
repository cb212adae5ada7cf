"""What every module of a model takes and gives, found by running it; and how large it is.

The forward pass runs on the meta device, which works out shapes and no values: the largest model
takes no memory and hardly any time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from vlm.model.memory import Memory
from vlm.model.vlm import DualEncoder

BATCH = 99_991  # printed as B; no other size is this, and on the meta device it costs nothing

Model = TypeVar("Model", bound=nn.Module)
Part = nn.Module | nn.Parameter


class Row(NamedTuple):
    """A line of the table; the rows one level deeper that follow it add up to it."""

    level: int
    name: str
    kind: str
    takes: str
    gives: str
    parameters: int


class Trace(Generic[Model]):
    """A model on the meta device, and what each of its modules took and gave in one forward pass.

    Args:
        make: builds the model.
        sizes: of its inputs; those of two numbers are of ids.
    """

    def __init__(self, make: Callable[[], Model], *sizes: tuple[int, ...]) -> None:
        self.calls: dict[Part, list[tuple[str, str]]] = {}  # modules in the order of their calls
        with torch.device("meta"), torch.no_grad():
            self.model = make()
            for module in self.model.modules():
                module.register_forward_hook(self._note)
            self.model(*(torch.empty(s, dtype=torch.int64 if len(s) == 2 else None) for s in sizes))

    def _note(self, module: nn.Module, inputs: object, output: object) -> None:
        self.calls.setdefault(module, []).append((shape(inputs), shape(output)))

    def rows(self, name: str, *opened: type[nn.Module]) -> list[Row]:
        """The model, and its parts where `opened` holds its type; likewise for the parts."""
        return list(self._rows(name, self.model, opened, 0))

    def _rows(
        self, name: str, part: Part, opened: tuple[type[nn.Module], ...], level: int
    ) -> Iterator[Row]:
        calls = self.calls.get(_first(part), [])
        takes = ", ".join(dict.fromkeys(taken for taken, _ in calls))
        gives = ", ".join(dict.fromkeys(given for _, given in calls)) or shape(_tensors(part))
        number = f" ({len(part)})" if isinstance(part, nn.ModuleList) else ""
        yield Row(level, name + number, type(_first(part)).__name__, takes, gives, count(part))
        if isinstance(part, opened):
            for inner_name, inner in self.parts(part):
                yield from self._rows(inner_name, inner, opened, level + 1)

    def parts(self, module: nn.Module) -> list[tuple[str, Part]]:
        """What a module's parameters lie in, in the order in which data flows."""
        turns = {called: turn for turn, called in enumerate(self.calls)}
        parts = [*module.named_parameters(recurse=False), *module.named_children()]
        parts = [(name, part) for name, part in parts if count(part)]
        called = [item for item in parts if _first(item[1]) in turns]
        called.sort(key=lambda item: turns[_first(item[1])])
        read = [item for item in parts if _first(item[1]) not in turns]
        # CLS and learned positions join what the stem or the embedding gives; the temperature of
        # a whole model comes last.
        place = len(called) if isinstance(module, DualEncoder) else 1
        return [*called[:place], *read, *called[place:]]

    def sum_line(self, name: str, module: nn.Module) -> str:
        """A module's parameters, part by part."""
        terms = [
            f"{len(part)} x {count(part[0]):,} ({inner})"
            if isinstance(part, nn.ModuleList)
            else f"{count(part):,} ({inner})"
            for inner, part in self.parts(module)
        ]
        return f"{name}: {' + '.join(terms)} = {count(module):,} parameters"

    def tower_lines(self, name: str, tower: nn.Module, blocks: nn.ModuleList) -> list[str]:
        """The parameters of one of the blocks, matrix by matrix, and of the tower of them."""
        lines = []
        for block in blocks[:1]:
            for inner, part in self.parts(block):
                if any(tensor.ndim > 1 for tensor in _tensors(part)):
                    lines.append(product_line(f"{inner} of a {name} block", part))
            lines.append(self.sum_line(f"a {name} block", block))
        return [*lines, self.sum_line(name, tower)]


def product_line(name: str, module: Part) -> str:
    """A module's parameters, tensor by tensor."""
    terms = (" x ".join(f"{size:,}" for size in tensor.shape) for tensor in _tensors(module))
    return f"{name}: {' + '.join(terms)} = {count(module):,} parameters"


def count(part: Part) -> int:
    """Parameters of a module, or of one tensor."""
    return sum(tensor.numel() for tensor in _tensors(part))


def shape(value: object) -> str:
    """The sizes of a tensor, of each in a sequence, or of a memory's tokens; no masks."""
    if isinstance(value, Memory):
        return shape([part.tokens for part in value.parts])
    if isinstance(value, (tuple, list)):
        return ", ".join(filter(None, map(shape, value)))
    if not isinstance(value, Tensor) or value.dtype == torch.bool:
        return ""
    sizes = ["B" if size == BATCH else str(size) for size in value.shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def table(rows: Sequence[Row]) -> list[str]:
    """Aligned columns, an empty line before each model but the first."""
    cells = [("module", "class", "in", "out", "parameters")] + [
        ("  " * row.level + row.name, row.kind, row.takes, row.gives, f"{row.parameters:,}")
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for level, line in zip([-1, *(row.level for row in rows)], cells, strict=True):
        *left, right = (f"{cell:{w}}" for cell, w in zip(line, widths, strict=True))
        if level == 0:
            lines.append("")
        lines.append("  ".join([*left, right.strip().rjust(widths[-1])]))
    return lines


def _tensors(part: Part) -> list[Tensor]:
    return [part] if isinstance(part, nn.Parameter) else list(part.parameters())


def _first(part: Part) -> Part:
    """A list of modules is called through its members, which are alike."""
    return part[0] if isinstance(part, nn.ModuleList) else part
