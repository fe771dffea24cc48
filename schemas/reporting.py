"""Settings of reporting: one self-contained HTML page."""

from schemas.base import Frozen


class ReportingConfig(Frozen):
    """All artifacts of a run → a report."""

    title: str = "GIF run"
    compare: bool = True
    """Show other runs of the store beside this one: those of the same faces with the same evaluation."""
