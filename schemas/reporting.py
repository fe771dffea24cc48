"""Settings of reporting: a self-contained HTML page."""

from schemas.base import Frozen


class ReportingConfig(Frozen):
    """All artifacts of a run → an HTML report."""

    title: str = "GIF run"
    """Title of the page."""
    compare: bool = True
    """Compare this run with the other runs in the store that have the same faces and evaluation settings."""
