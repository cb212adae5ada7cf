"""The sections that say what the data is: a drawn world, or the user's own pictures."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from vlm.config.section import NaturalFloat, NaturalInt, PositiveFloat, PositiveInt, Section
from vlm.errors import UserError

Shape = Literal["plus", "circle", "square", "triangle", "diamond", "ring", "star"]
Color = Literal["white", "red", "green", "blue", "yellow", "cyan", "magenta"]
Family = Literal["what_shape", "count", "exists", "position", "relation", "compare", "color"]
Source = Literal["scenes", "easy_vqa", "clevr", "vqa_v2", "llava", "imagefolder", "hf_parquet"]

Share = Annotated[float, Field(ge=0, le=1)]
# Where DVC sees a change: `data/external` is a dependency of the stage that reads it.
OwnFolder = Annotated[str, Field(pattern=r"^data/external(/\w[\w.-]*)+/?$")]


class WorldConfig(Section):
    """What a scene may hold and how it is drawn. Lengths are in pixels."""

    image_size: Annotated[int, Field(ge=8, le=1024)]
    channels: Literal[1, 3]
    shapes: Annotated[list[Shape], Field(min_length=1)]
    colors: Annotated[list[Color], Field(min_length=1)]
    min_radius: Annotated[int, Field(ge=1)]
    max_radius: Annotated[int, Field(ge=1)]
    min_objects: NaturalInt
    max_objects: Annotated[int, Field(ge=1, le=9)]
    spacing: NaturalInt  # two objects clash when closer than this in both row and column
    margin: NaturalInt  # centres lie in [margin, image_size - 1 - margin]
    max_tries: PositiveInt  # draws of clashing objects per scene before giving up on the rest
    held_out: list[str]  # shapes kept out of cells of the 3x3 grid, save in test_ood
    noise: NaturalFloat  # sigma of the Gaussian noise, on intensities in [0, 1]
    clutter: NaturalInt  # marks that belong to no object: up to so many, under the objects
    overlap: Share  # of an object's pixels that later ones may cover, at most

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(set(self.shapes)) < len(self.shapes):
            raise ValueError(f"shapes {self.shapes} holds a shape twice")
        if len(set(self.colors)) < len(self.colors):
            raise ValueError(f"colors {self.colors} holds a color twice")
        if self.channels == 1 and self.colors != ["white"]:
            raise ValueError(f"colors {self.colors} need channels 3; with channels 1 only [white]")
        if self.min_radius > self.max_radius:
            raise ValueError(f"min_radius {self.min_radius} exceeds max_radius {self.max_radius}")
        if 2 * self.max_radius + 1 > self.image_size:
            raise ValueError(
                f"max_radius {self.max_radius} exceeds image_size {self.image_size} / 2"
            )
        if self.min_objects > self.max_objects:
            raise ValueError(
                f"min_objects {self.min_objects} exceeds max_objects {self.max_objects}"
            )
        if 2 * self.margin >= self.image_size:
            raise ValueError(f"margin {self.margin} leaves no room in image_size {self.image_size}")
        return self


class OwnConfig(Section):
    """Where the user's own data lies and how its pictures are read; unused with drawn scenes."""

    path: OwnFolder
    image_size: Annotated[int, Field(ge=8, le=1024)]  # every picture is brought to this square
    channels: Literal[1, 3]
    fit: Literal["pad", "crop", "stretch"]  # how a picture that is no square becomes one
    on_bad: Literal["error", "skip"]  # a broken row stops the import, or is left out and listed
    val_share: Annotated[float, Field(ge=0, lt=1)]  # of train's pictures, moved to val
    test_share: Annotated[float, Field(ge=0, lt=1)]  # of train's pictures, moved to test
    max_pixels: PositiveInt  # a picture that says it has more is not decoded

    @model_validator(mode="after")
    def _leaves_train(self) -> Self:
        if self.val_share + self.test_share >= 1:
            raise ValueError(
                f"val_share {self.val_share} and test_share {self.test_share} leave train nothing"
            )
        return self


class DataConfig(Section):
    """What there is to see, and what is asked and said about it."""

    source: Source
    train_scenes: PositiveInt
    val_scenes: PositiveInt
    test_scenes: PositiveInt
    test_ood_scenes: NaturalInt  # unlike those of train: held-out combinations, one object more
    world: WorldConfig
    captions_per_scene: Annotated[int, Field(ge=1, le=8)]
    questions_per_scene: Annotated[int, Field(ge=1, le=64)]
    families: Annotated[dict[Family, PositiveFloat], Field(min_length=1)]  # relative shares
    answer_balance: Literal["natural", "balanced"]
    degenerate: Literal["keep", "refuse"]  # questions of which a step changes nothing
    relation_margin: PositiveInt  # "left of" holds from this many pixels between two centres
    own: OwnConfig

    @property
    def is_drawn(self) -> bool:
        """Whether the scenes are ours; else only pictures and texts are known."""
        return self.source == "scenes"

    @property
    def image_size(self) -> int:
        """Height and width of every picture."""
        return self.world.image_size if self.is_drawn else self.own.image_size

    @property
    def channels(self) -> int:
        """1 or 3."""
        return self.world.channels if self.is_drawn else self.own.channels


class AugmentConfig(Section):
    """How training changes a picture anew at each sight of it; validation and test never do."""

    flip: bool  # left and right swapped, half of the time
    turn: bool  # by 0, 90, 180 or 270 degrees
    shift: NaturalInt  # moved by up to so many pixels each way; what comes in repeats the border
    brightness: Share  # all intensities multiplied by 1 - this to 1 + this

    @property
    def is_off(self) -> bool:
        """Whether pictures stay as they are."""
        return not (self.flip or self.turn or self.shift or self.brightness)


def check_augmenting(name: str, augment: AugmentConfig, data: DataConfig, captions: bool) -> None:
    """Raise UserError where a change of the picture would make what is said of it untrue.

    Args:
        name: of the section, for the message.
        augment: the changes.
        data: what is said.
        captions: whether captions are learned from, rather than questions.
    """
    if augment.shift >= data.image_size:
        raise UserError(
            f"{name}.shift: got {augment.shift}, expected less than the picture's {data.image_size}"
            " pixels"
        )
    if data.source not in ("scenes", "clevr"):
        return  # what own texts say of places is for their owner to know
    says_places = captions or data.source == "clevr"
    placed = [family for family in ("position", "relation") if family in data.families]
    for key, what in (("flip", "a flipped"), ("turn", "a turned"), ("shift", "a shifted")):
        told = placed if key != "shift" else [name for name in placed if name == "position"]
        if getattr(augment, key) and (says_places or told):
            texts = "captions" if captions else "questions"
            which = "" if says_places else f" of the families {', '.join(told)}"
            raise UserError(
                f"{name}.{key}: got {getattr(augment, key)}, expected it off: {what} picture makes"
                f" {texts}{which} untrue"
            )
    room = data.world.margin - data.world.max_radius
    if data.is_drawn and augment.shift > max(room, 0):
        raise UserError(
            f"{name}.shift: got {augment.shift}, expected at most {max(room, 0)}, data.world.margin"
            " less max_radius: objects would leave the picture"
        )
