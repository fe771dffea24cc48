"""The base of every schema: frozen, and a misspelt field is an error."""

from pydantic import BaseModel, ConfigDict


class Stored(BaseModel):
    """Immutable and written to a store: a reader of an older version passes over what it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)


class Frozen(BaseModel):
    """Immutable, refuses unknown fields and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
