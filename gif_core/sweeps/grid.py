"""The variants of a sweep: every combination of the values of its settings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from schemas.errors import GifError


@dataclass(frozen=True)
class Variant:
    """One combination of values, as overrides `stage.field=value`."""

    overrides: tuple[str, ...]
    label: str | None = None
    preset: str | None = None
    """Preset in place of that of the sweep."""

    @property
    def name(self) -> str:
        """The label, or the values: `cosface, length=4`."""
        if self.label:
            return self.label
        parts = (override.partition("=") for override in self.overrides)
        named = ((path.rpartition(".")[2], value) for path, _, value in parts)
        return ", ".join(value if name == "head" else f"{name}={value}" for name, value in named)

    def with_seed(self, seed: int) -> list[str]:
        """The overrides of one run."""
        return [*self.overrides, f"seed={seed}"]


def expand(vary: Sequence[str]) -> list[Variant]:
    """All combinations of `stage.field=a,b` settings; the first has the first value of each."""
    choices = [list(_values(each)) for each in vary]
    if not choices:
        raise GifError("a sweep needs a setting to vary, for instance --vary training.head=gif,cosface")
    names = [each.partition("=")[0] for each in vary]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise GifError(f"--vary names {twice} twice: give all its values at once, as in {twice}=a,b")
    return [Variant(combination) for combination in product(*choices)]


def _values(vary: str) -> Iterator[str]:
    name, _, values = vary.partition("=")
    if not name or not values:
        raise GifError(f"--vary takes stage.field=value,value, for instance training.head=gif,cosface, not {vary!r}")
    return (f"{name}={value}" for value in _split(values))


def _split(text: str) -> list[str]:
    """Split at commas that are not inside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in ")}]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
