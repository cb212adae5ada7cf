"""CLEVR's functional programs: whether one is well formed, and what it answers about a scene.

A program is a list of nodes. Each names a function and the earlier nodes whose values it takes;
the last gives the answer. The table `FUNCTIONS` says what kinds of value a function takes and
gives, so that a program that passes `read_program` can only fail for what the scene lacks.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vlm.data.importers.rows import BadRowError, shown

ATTRIBUTES = ("shape", "color", "size", "material")


class Function(NamedTuple):
    """What a function takes and gives, and how it is computed.

    Attributes:
        takes: kinds of its inputs: "objects" (a set of indices), "object" (an index), "number",
            "truth", or an attribute.
        gives: a kind too.
        run: called with the scene, the inputs, and the constant if there is one.
        family: of a question whose last node this is, after the groups of CLEVR's paper; "" for
            a function that answers nothing.
        has_constant: whether the node brings one, such as the colour of `filter_color`.
    """

    takes: tuple[str, ...]
    gives: str
    run: Callable[..., Any]
    family: str = ""
    has_constant: bool = False


class Scene(NamedTuple):
    """Objects, and for each relation and object the objects that stand so to it."""

    objects: list[Any]
    relations: dict[str, Any]


class Node(NamedTuple):
    """A function, the earlier nodes whose values it takes, and its constant."""

    name: str
    inputs: tuple[int, ...]
    constants: tuple[str, ...]


def read_scene(raw: dict[str, Any]) -> Scene:
    """A scene of a scene file; what its objects hold is looked at when a program asks for it.

    Raises:
        BadRowError: it has no list of objects, or relations of another form.
    """
    objects = raw.get("objects")
    relations = raw.get("relationships", raw.get("relations", {}))
    if not isinstance(objects, list):
        raise BadRowError(f"its scene's objects: got {shown(objects)}, expected a list")
    if not isinstance(relations, dict):
        raise BadRowError(f"its scene's relationships: got {shown(relations)}, expected an object")
    return Scene(objects, relations)


def read_program(raw: object) -> tuple[Node, ...]:
    """The nodes of a program that answers something.

    Raises:
        BadRowError: a node has no known function, inputs that don't come before it or are of
            another kind than it takes, or another number of constants; or the last gives objects.
    """
    if not isinstance(raw, list) or not raw:
        raise BadRowError(f"program: got {shown(raw)}, expected a list of nodes")
    nodes: list[Node] = []
    for place, each in enumerate(raw):
        nodes.append(_read_node(each, f"program node {place}", nodes))
    if not family(nodes):
        raise BadRowError(f"program: got {nodes[-1].name} at its end, expected an answer")
    return tuple(nodes)


def family(program: Sequence[Node]) -> str:
    """The kind of question that the last node makes it."""
    return FUNCTIONS[program[-1].name].family


def execute(program: Sequence[Node], scene: Scene) -> str:
    """The program's answer, in CLEVR's words.

    Raises:
        BadRowError: the scene lacks what is asked of it, or `unique` meets none or several.
    """
    values: list[Any] = []
    for place, node in enumerate(program):
        inputs = (values[each] for each in node.inputs)
        try:
            values.append(FUNCTIONS[node.name].run(scene, *inputs, *node.constants))
        except BadRowError as error:
            raise BadRowError(f"program node {place} ({node.name}): {error}") from None
    answer = values[-1]
    return ("no", "yes")[answer] if isinstance(answer, bool) else str(answer)


def _read_node(raw: object, where: str, before: Sequence[Node]) -> Node:
    if not isinstance(raw, dict):
        raise BadRowError(f"{where}: got {shown(raw)}, expected an object")
    name = raw.get("function", raw.get("type"))
    function = FUNCTIONS.get(name) if isinstance(name, str) else None
    if function is None:
        raise BadRowError(f"{where}: got function {shown(name)}, expected one of CLEVR's")
    inputs = raw.get("inputs", [])
    if not isinstance(inputs, list) or not all(_is_before(each, before) for each in inputs):
        raise BadRowError(f"{where}: got inputs {shown(inputs)}, expected nodes before it")
    kinds = tuple(FUNCTIONS[before[each].name].gives for each in inputs)
    if kinds != function.takes:
        got, expected = (" and ".join(each) or "none" for each in (kinds, function.takes))
        raise BadRowError(f"{where} ({name}): got inputs that give {got}, expected {expected}")
    constants = raw.get("value_inputs", raw.get("side_inputs", []))
    if (
        not isinstance(constants, list)
        or len(constants) != function.has_constant
        or not all(isinstance(each, str) for each in constants)
    ):
        expected = "one text" if function.has_constant else "none"
        raise BadRowError(f"{where} ({name}): got values {shown(constants)}, expected {expected}")
    return Node(str(name), tuple(inputs), tuple(constants))


def _is_before(place: object, before: Sequence[Node]) -> bool:
    return type(place) is int and 0 <= place < len(before)


def _everything(scene: Scene) -> frozenset[int]:
    return frozenset(range(len(scene.objects)))


def _unique(_: Scene, chosen: frozenset[int]) -> int:
    if len(chosen) != 1:
        raise BadRowError(f"got {len(chosen)} objects, expected one")
    return next(iter(chosen))


def _related(scene: Scene, of: int, relation: str) -> frozenset[int]:
    lists = scene.relations.get(relation)
    found = lists[of] if isinstance(lists, list) and of < len(lists) else None
    count = len(scene.objects)
    if not isinstance(found, list) or not all(type(i) is int and 0 <= i < count for i in found):
        raise BadRowError(f"got {shown(found)} as what is {relation} of object {of}")
    return frozenset(found)


def _value(scene: Scene, of: int, attribute: str) -> str:
    thing = scene.objects[of]
    value = thing.get(attribute) if isinstance(thing, dict) else None
    if not isinstance(value, str):
        raise BadRowError(f"got {shown(value)} as the {attribute} of object {of}, expected text")
    return value


def _of_attribute(name: str) -> dict[str, Function]:
    def having(scene: Scene, among: frozenset[int], value: str) -> frozenset[int]:
        return frozenset(each for each in among if _value(scene, each, name) == value)

    def alike(scene: Scene, one: int) -> frozenset[int]:
        return having(scene, _everything(scene), _value(scene, one, name)) - {one}

    return {
        f"filter_{name}": Function(("objects",), "objects", having, has_constant=True),
        f"same_{name}": Function(("object",), "objects", alike),
        f"query_{name}": Function(
            ("object",), name, lambda scene, one: _value(scene, one, name), "query_attribute"
        ),
        f"equal_{name}": _comparing(name, operator.eq, "compare_attribute"),
    }


def _comparing(kind: str, relation: Callable[[Any, Any], Any], group: str) -> Function:
    return Function((kind, kind), "truth", lambda _, one, other: relation(one, other), group)


FUNCTIONS: dict[str, Function] = {
    "scene": Function((), "objects", _everything),
    "unique": Function(("objects",), "object", _unique),
    "relate": Function(("object",), "objects", _related, has_constant=True),
    "union": Function(("objects", "objects"), "objects", lambda _, one, other: one | other),
    "intersect": Function(("objects", "objects"), "objects", lambda _, one, other: one & other),
    "count": Function(("objects",), "number", lambda _, chosen: len(chosen), "count"),
    "exist": Function(("objects",), "truth", lambda _, chosen: len(chosen) > 0, "exist"),
    "equal_integer": _comparing("number", operator.eq, "compare_integer"),
    "less_than": _comparing("number", operator.lt, "compare_integer"),
    "greater_than": _comparing("number", operator.gt, "compare_integer"),
    "equal_object": _comparing("object", operator.eq, "compare_object"),
}
for _attribute in ATTRIBUTES:
    FUNCTIONS |= _of_attribute(_attribute)
