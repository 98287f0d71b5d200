"""docs/sdks.md: it names every language, and its code is that of the programs that a test runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from developing.sdk import GENERATORS
from tests.guides import BLOCK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/sdks.md").read_text()
PROGRAMS = {"go": "go/program/main.go", "java": "java/Program.java", "ts": "hey-api/program.ts"}


def test_the_first_table_has_every_language() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|.* \|.* \| (?:yes|no)", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(GENERATORS)


@pytest.mark.parametrize("language", PROGRAMS)
def test_the_code_is_that_of_a_program_that_is_run(language: str) -> None:
    program = (ROOT / "tests/sdks" / PROGRAMS[language]).read_text()
    parts = PAGE[PAGE.index("## Send, receive, settle") :]
    code = [line for kind, text in BLOCK.findall(parts) for line in text.splitlines() if kind == language]
    assert code
    assert [line for line in code if line not in program] == []


def test_the_command_makes_the_sdk_of_a_language() -> None:
    assert set(re.findall(r"dev\.py sdk (\w+)", PAGE)) <= {*GENERATORS, "LANGUAGE"}
