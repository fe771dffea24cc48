"""Base classes of all schemas: settings reject unknown fields, stored records ignore them."""

from pydantic import BaseModel, ConfigDict


class Stored(BaseModel):
    """An immutable record in a store. Unknown fields are ignored, so that older code reads newer records."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)


class Frozen(BaseModel):
    """Immutable settings. Unknown fields and non-finite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Job(Frozen):
    """Input of the processes of a job, as a JSON file."""

    device: str
    """Device of `execution.device`."""
