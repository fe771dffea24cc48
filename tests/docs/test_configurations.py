"""Every YAML block of README and docs is a configuration that validates, and every Python block is Python."""

import ast

import pytest
import yaml

from schemas.loading import load_config
from schemas.retraining import RetrainingPolicy
from tests.docs.pages import PAGES, Block, blocks

BLOCKS = [block for page in PAGES for block in blocks(page)]
CONFIGURATIONS = [block for block in BLOCKS if block.language == "yaml"]
PROGRAMS = [block for block in BLOCKS if block.language == "python"]
POLICY = 'title="policy.yaml"'
"""How the pages mark a file that is a retraining policy; all other YAML is a run's configuration, or a part of one."""


def name(block: Block) -> str:
    return f"{block.page}: {block.text.splitlines()[0]}"


def test_the_pages_have_configurations_and_programs() -> None:
    assert len(CONFIGURATIONS) > 8
    assert len(PROGRAMS) > 8


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=name)
def test_a_configuration_validates(block: Block) -> None:
    table = yaml.safe_load(block.text)
    if POLICY in block.about:
        RetrainingPolicy.model_validate(table)
    else:
        load_config(table)


@pytest.mark.parametrize("block", PROGRAMS, ids=name)
def test_a_program_parses(block: Block) -> None:
    ast.parse(block.text)
