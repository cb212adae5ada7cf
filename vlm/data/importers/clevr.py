"""CLEVR, and what its generator makes: questions with programs over rendered scenes.

    images/train/CLEVR_train_000000.png  questions/CLEVR_train_questions.json
                                         scenes/CLEVR_train_scenes.json  (optional)

The folders may be flat or of a single split. Where there is a scene, the question's program is
run over it, and a row whose answer it contradicts is bad.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlm.data.importers.clevr_programs import Scene, execute, family, read_program, read_scene
from vlm.data.importers.finding import check_found, first_file, json_files, read_lists, split_of
from vlm.data.importers.gathering import Gathering
from vlm.data.importers.paths import fault
from vlm.data.importers.rows import Asked, Bad, BadRowError, Found, shown, text


def read(root: Path) -> Iterator[Found | Bad]:
    """Pictures with their questions, and bad rows; a row is a question.

    Raises:
        UserError: no question file, or one that can't be read as one.
    """
    names = json_files(root, ["questions"])
    names += [name for name in json_files(root) if "questions" in name.lower()]
    check_found(root, names, "questions/*.json")
    pictures = Gathering()
    for name in names:
        yield from _read_questions(root, name, pictures)
    yield from pictures


def _read_questions(root: Path, name: str, pictures: Gathering) -> Iterator[Bad]:
    file, _ = read_lists(root, name, "questions")
    questions, info = file["questions"], file.get("info")
    told = info.get("split") if isinstance(info, dict) else None
    split = split_of(told) or split_of(name)
    scenes: dict[str, dict[str, Any]] = {}
    yield from _read_scenes(root, name, scenes)
    has_answers = any(isinstance(row, dict) and row.get("answer") is not None for row in questions)
    for number, row in enumerate(questions, 1):
        named = f"{name} row {number}"
        try:
            if not isinstance(row, dict):
                raise BadRowError(f"got {shown(row)}, expected an object")
            image = row.get("image_filename")
            if not isinstance(image, str):
                raise BadRowError(f"image_filename: got {shown(image)}, expected text")
            picture = _picture(root, image, [told, split])
            raw = scenes.get(image)
            asked = _asked(row, None if raw is None else read_scene(raw), has_answers)
            pictures.add(split, picture, named, asked)
        except BadRowError as error:
            yield Bad(named, str(error))


def _read_scenes(root: Path, name: str, scenes: dict[str, dict[str, Any]]) -> Iterator[Bad]:
    """Fill `scenes` by picture from the scene file that belongs to a question file, if any."""
    own = Path(name).name.replace("questions", "scenes")
    places = [file for file in (f"scenes/{own}", own) if file != name]
    file = next((file for file in places if fault(root, file) != "no such file"), None)
    if file is None:
        return
    content, _ = read_lists(root, file, "scenes")
    for number, scene in enumerate(content["scenes"], 1):
        picture = scene.get("image_filename") if isinstance(scene, dict) else None
        if not isinstance(picture, str):
            yield Bad(
                f"{file} row {number}", f"image_filename: got {shown(picture)}, expected text"
            )
        elif picture in scenes:
            yield Bad(f"{file} row {number}", f"got a second scene of {shown(picture)}")
        else:
            scenes[picture] = scene


def _picture(root: Path, name: str, splits: list[str | None]) -> Path:
    """The picture's file, in a folder of its split or a flat one.

    Raises:
        BadRowError: there is none.
    """
    words = dict.fromkeys(w for w in (*splits, *name.split("_")[1:2]) if isinstance(w, str))
    folders = [*(f"images/{word}/" for word in words), "images/", *(f"{w}/" for w in words), ""]
    return first_file(root, [folder + name for folder in folders])


def _asked(row: dict[str, Any], scene: Scene | None, has_answers: bool) -> Asked:
    """The question of a row.

    Raises:
        BadRowError: no question, no answer although others of the file have one, or a program
            that is malformed, or gives another answer.
    """
    question, answer, kind = text(row.get("question"), "question"), None, "question"
    if has_answers:
        answer = _answer(row.get("answer"))
    if row.get("program") is not None:
        program = read_program(row["program"])
        kind = family(program)
        computed = None if scene is None else execute(program, scene)
        if answer is not None and computed is not None and computed != answer:
            raise BadRowError(f"answer: got {answer}, but the program gives {computed}")
    return Asked(question, answer, answer, kind)


def _answer(value: object) -> str:
    """In CLEVR's words; its generator writes truths and numbers as such."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else text(value, "answer")
