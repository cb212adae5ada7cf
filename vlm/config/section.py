"""What every section of the parameters is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
NaturalInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NaturalFloat = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """Base of every section: unknown keys refused, frozen, finite numbers, no type coercion."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    def __hash__(self) -> int:
        """Of all values, lists and mappings among them, so that results can be kept by section."""
        return hash(self.model_dump_json())
