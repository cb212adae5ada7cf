"""The synthetic world as one writes it first: a loop over scenes, and one over their objects."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from vlm.config.data import DataConfig, WorldConfig
from vlm.scenes.captions import TEMPLATES
from vlm.scenes.grammar import counted, there_are, with_article
from vlm.scenes.programs import DIRECTIONS, HALVES
from vlm.scenes.render import RGB, stamp
from vlm.scenes.scene import CELLS, cell_name

Object = dict[str, Any]
Picture = npt.NDArray[np.uint8]
LEVEL = 6  # Pillow's own


def draw_objects(world: WorldConfig, rng: np.random.Generator) -> list[Object]:
    """A scene: one object after another, each drawn again until it fits."""
    objects: list[Object] = []
    tries = world.max_tries
    for _ in range(rng.integers(world.min_objects, world.max_objects + 1)):
        shape = world.shapes[rng.integers(len(world.shapes))]
        color = world.colors[rng.integers(len(world.colors))]
        radius = int(rng.integers(world.min_radius, world.max_radius + 1))
        while True:
            row, col = rng.integers(world.margin, world.image_size - world.margin, 2).tolist()
            near = any(
                abs(row - o["row"]) < world.spacing and abs(col - o["col"]) < world.spacing
                for o in objects
            )
            if not near and f"{shape}@{cell_name(cell(row, col, world))}" not in world.held_out:
                break
            if not tries:
                return objects
            tries -= 1
        objects.append({"shape": shape, "color": color, "row": row, "col": col, "radius": radius})
    return objects


def draw_picture(objects: list[Object], world: WorldConfig, rng: np.random.Generator) -> Picture:
    """A scene's picture, (C, H, W)."""
    size = world.image_size
    picture = np.zeros((world.channels, size, size), np.float32)
    for item in objects:
        row, col, radius = item["row"], item["col"], item["radius"]
        top, left = max(row - radius, 0), max(col - radius, 0)
        mask = stamp(item["shape"], radius)[top - row + radius :, left - col + radius :]
        mask = mask[: size - top, : size - left]
        for channel in range(world.channels):
            part = picture[channel, top : top + mask.shape[0], left : left + mask.shape[1]]
            part[mask] = RGB[item["color"]][channel]
    picture += world.noise * rng.standard_normal(picture.shape, np.float32)
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def cell(row: int, col: int, world: WorldConfig) -> str:
    """Where a centre lies on the 3x3 grid."""
    return CELLS[3 * (3 * row // world.image_size) + 3 * col // world.image_size]


def caption(objects: list[Object], template: int, world: WorldConfig) -> str:
    """All the facts of a scene in one wording."""
    opening, item, joint, empty = TEMPLATES[template]
    if not objects:
        return empty
    told = []
    for each in objects:
        noun = f"{each['color']} {each['shape']}" if len(world.colors) > 1 else each["shape"]
        place = cell(each["row"], each["col"], world)
        told.append(item.format(noun=noun, a_noun=with_article(noun), cell=place))
    return opening.format(count=counted(len(objects), "shape")) + joint.join(told)


def ask(
    family: str, objects: list[Object], data: DataConfig, rng: np.random.Generator
) -> tuple[str, str, str]:
    """A question of a family, its answer and the phrase."""
    shapes, number = data.world.shapes, len(objects)
    if family == "what_shape":
        phrase = there_are(number, "shape") if number else "there is no shape"
        only = objects[0]["shape"] if number == 1 else None
        said = f"it is {with_article(only)}" if only else phrase
        return "what shape is in the image", only or str(number), said
    if family == "count":
        return "how many shapes are there in the image", str(number), there_are(number, "shape")
    noun, place, ending = "shape", "", " in the image"
    if family == "exists":
        noun = shapes[rng.integers(len(shapes))]
        found = any(o["shape"] == noun for o in objects)
    elif family == "position":
        half = HALVES[rng.integers(len(HALVES))]
        key = "row" if half in ("top", "bottom") else "col"
        firsts = [2 * o[key] < data.world.image_size for o in objects]
        found = any(first == (half in ("top", "left")) for first in firsts)
        place, ending = f" in the {half} half", " of the image"
    else:
        one, other = (shapes[i] for i in rng.choice(len(shapes), 2, replace=False))
        direction = DIRECTIONS[rng.integers(len(DIRECTIONS))]
        key = "col" if direction in ("left of", "right of") else "row"
        sign = 1 if direction in ("left of", "above") else -1
        found = any(
            sign * (b[key] - a[key]) >= data.relation_margin
            for a in objects
            for b in objects
            if a["shape"] == one and b["shape"] == other
        )
        noun, place = one, f" {direction} {with_article(other)}"
    article = with_article(noun)
    phrase = f"yes there is {article}{place}" if found else f"no there is no {noun}{place}"
    return f"is there {article}{place}{ending}", "yes" if found else "no", phrase


def write_plainly(data: DataConfig, seed: int, number: int, folder: Path) -> None:
    """So many scenes with captions and questions, as two Parquet files."""
    rng = np.random.default_rng(seed)
    world, asked = data.world, data.questions_per_scene
    families, shares = list(data.families), np.array(list(data.families.values()))
    scenes: list[dict[str, Any]] = []
    questions: list[dict[str, Any]] = []
    for scene in range(number):
        objects = draw_objects(world, rng)
        pixels = draw_picture(objects, world, rng)
        file = BytesIO()
        shown = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
        Image.fromarray(shown).save(file, "PNG", compress_level=LEVEL)
        told = sorted(objects, key=lambda o: CELLS.index(cell(o["row"], o["col"], world)))
        facts = [f"{o['color']} {o['shape']}@{cell(o['row'], o['col'], world)}" for o in told]
        scenes.append(
            {
                "scene_id": scene,
                "image": {"bytes": file.getvalue(), "path": None},
                "objects": objects,
                "captions": [caption(told, t, world) for t in range(data.captions_per_scene)],
                "caption_keys": [";".join(facts) or "empty"] * data.captions_per_scene,
            }
        )
        for family in rng.choice(families, asked, p=shares / shares.sum()).tolist():
            question, answer, phrase = ask(family, objects, data, rng)
            row = {"family": family, "question": question, "answer": answer, "phrase": phrase}
            questions.append({"question_id": len(questions), "scene_id": scene, **row})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(scenes), folder / "scenes.parquet", compression="zstd")
    pq.write_table(
        pa.Table.from_pylist(questions), folder / "questions.parquet", compression="zstd"
    )
