"""The README is short, its links resolve, and its tree of the folders is right."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, PROJECT, name_of, prose

README = (PROJECT / "README.md").read_text("utf-8")
MOST_LINES = 200
OUTSIDE = [page for page in PAGES if page.parent == PROJECT]
"""Pages that are not part of the site, whose links the build of the site checks."""


def test_the_readme_has_at_most_200_lines() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", OUTSIDE, ids=name_of)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if not target.startswith(("http://", "https://", "mailto:")):
            found = (page.parent / path) if path else page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), target


def tree() -> Iterator[tuple[str, str]]:
    """Folders and the names of files and packages in them, as the tree of the README has them."""
    block = README.partition("## Where everything is")[2].partition("```\n")[2].partition("```")[0]
    parents: list[str] = []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        del parents[depth:]
        if match := re.match(r" *([\w-]+)/ ", line):
            yield "/".join(parents), match[1]
            parents.append(match[1])
            continue
        for entry in line.strip().split("·"):
            for name in filter(None, re.split(r",\s*", entry.strip().partition("  ")[0].strip())):
                yield "/".join(parents), name


NAMED = list(tree())


@pytest.mark.parametrize(("folder", "name"), NAMED, ids=[f"{folder}/{name}" for folder, name in NAMED])
def test_what_the_tree_names_exists(folder: str, name: str) -> None:
    path = PROJECT / folder / name
    assert path.exists() or path.with_suffix(".py").is_file()


def test_the_tree_names_every_package_of_the_core_and_most_of_its_files() -> None:
    core = PROJECT / "gif_core"
    packages = {path.parent.name for path in core.glob("*/__init__.py")}
    assert packages == {name for folder, name in NAMED if folder == "gif_core"}
    files = {f"{path.parent.name}/{path.stem}" for path in core.glob("*/*.py") if path.stem != "__init__"}
    named = {f"{folder.rpartition('/')[2]}/{name}" for folder, name in NAMED if folder.startswith("gif_core/")}
    assert len(files & named) / len(files) > 0.9


def test_files_of_the_papers_equations_exist() -> None:
    table = README.partition("## Paper → code")[2].partition("##")[0]
    for row in table.splitlines():
        folder = PROJECT
        for name in re.findall(r"`([\w/]+\.py)`", row):
            folder = (PROJECT / name).parent if "/" in name else folder
            assert (folder / Path(name).name).is_file(), name
