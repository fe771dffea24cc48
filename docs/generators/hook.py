"""MkDocs hook: adds the pages that are generated from the code, draws the package graph, and keeps the site offline."""

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(PROJECT)]

import artifact_files  # noqa: E402
import command_line  # noqa: E402
import package_graph  # noqa: E402
import python_api  # noqa: E402
import settings  # noqa: E402
import sql_tables  # noqa: E402

PAGES = {
    "reference/command-line.md": command_line.page,
    "reference/settings.md": settings.page,
    "reference/artifact-files.md": artifact_files.page,
    "reference/sql-tables.md": sql_tables.page,
    "reference/python-api.md": python_api.page,
}
FETCHED = "https://unpkg.com/iframe-worker/shim"
"""What the theme would fetch so that the search works on file://."""
GRAPH, MATRIX = "<!-- package graph -->", "<!-- package matrix -->"


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks of the package graph and its matrix by what the imports of today are."""
    if GRAPH not in markdown:
        return markdown
    imports = package_graph.read_imports()
    return markdown.replace(GRAPH, package_graph.draw(imports)).replace(MATRIX, package_graph.matrix(imports))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Let the search use a script of the site instead of one from the network."""
    return output.replace(FETCHED, get_relative_url("javascripts/file_worker.js", page.url))


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """The same for pages without a source, such as 404.html."""
    return output_content.replace(FETCHED, get_relative_url("javascripts/file_worker.js", template_name))
