"""The link to a run's page in Prefect's UI."""

from prefect.artifacts import create_markdown_artifact

from gif_core.artifacts import Artifact, Inputs
from gif_core.reporting import headline_rows
from schemas.files import REPORT_FILE

HOW_TO_OPEN = (
    "Browsers do not follow a link from here to a file or a bucket: open the address itself, or the copy on your own "
    "disk that `gif runs show` names."
)


def show_link(report: Artifact, inputs: Inputs) -> None:
    """The headline metrics of the run and where its page is, as an artifact in Prefect's UI."""
    where = f"{report.ref.uri}/{report.stored(REPORT_FILE).path}"
    rows = [f"| {name} | {value} |" for name, value in headline_rows(inputs)]
    page = [f"[The report of this run]({where})", "", f"`{where}`", "", HOW_TO_OPEN]
    lines = [*page, "", "| metric | |", "|---|---|", *rows]
    create_markdown_artifact(key="report", markdown="\n".join(lines), description="The report of this run")
