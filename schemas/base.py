"""Base classes of all schemas: settings reject unknown fields, stored records ignore them."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, field_validator


class Stored(BaseModel):
    """An immutable record in a store. Unknown fields are ignored, so that older code reads newer records."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)


class Frozen(BaseModel):
    """Immutable settings. Unknown fields, non-finite numbers and text that is not Unicode are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        """YAML and JSON can escape lone surrogates, which no file and no terminal can hold."""
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError("must be text that can be written as UTF-8, without lone surrogates")
        return value


LARGEST_SEED: Final = 2**63 - 1
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
"""A seed that every library and file format can hold."""


class Job(Frozen):
    """Input of the processes of a job, as a JSON file."""

    device: str
    """Device of `execution.device`."""
    process_timeout: PositiveFloat = 3600.0
    """Seconds that a process waits for the others."""
    lost_after: PositiveFloat = 60.0
    """Seconds without an answer after which another machine counts as lost."""
