"""The site builds without a warning (links, anchors, pages without a place), and a reader's browser fetches nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.run import RunConfig
from tests.docs.pages import PROJECT

FETCHED = re.compile(r"""<(?:script|img|iframe|source)[^>]+src=["'](https?:)?//|<link[^>]+href=["'](https?:)?//""")
IMPORTED = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT)}
    built = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_no_page_or_style_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 25
    assert [str(page) for page in pages if FETCHED.search(page.read_text("utf-8"))] == []
    styles = [*site.rglob("*.css"), *pages]
    assert [str(style) for style in styles if IMPORTED.search(style.read_text("utf-8"))] == []


def test_the_reference_has_every_section_of_settings_and_every_command(site: Path) -> None:
    settings = (site / "reference/settings.html").read_text("utf-8")
    for name in RunConfig.model_fields.keys() - {"preset", "seed", "store", "data"}:
        assert f'id="{name}"' in settings
    assert "<td></td>\n</tr>" not in settings, "a setting has no meaning"
    commands = (site / "reference/command-line.html").read_text("utf-8")
    assert 'id="gif-artifacts-prune"' in commands
    assert "graph" in (site / "contributing/architecture.html").read_text("utf-8")
