"""The pages of docs/reference are as the code says, and name everything that it has."""

from __future__ import annotations

import re

import pytest

from app.cli.lazy_commands import COMMANDS
from app.settings import Settings
from developing.processes import Refusal
from developing.reference import words
from developing.reference.__main__ import DIRECTORY, PAGES
from developing.reference.contract import SCHEMAS, constants, constants_of_ranges, errors, operations
from developing.reference.limits import named_constants
from developing.reference.markdown import table
from developing.reference.schemas import kind_of
from tests.guides import table as rows_of


def text(page: str) -> str:
    return (DIRECTORY / f"{page}.md").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_as_the_code_says(page: str) -> None:
    assert text(page) == PAGES[page]()


def test_every_page_is_written_from_the_code() -> None:
    assert {file.stem for file in DIRECTORY.iterdir()} == PAGES.keys()


def test_every_operation_has_a_section() -> None:
    rows = rows_of(text("http-api"), "All operations", "call")
    listed = {row[0].strip("`"): row[1].split("`")[1] for row in rows}
    assert listed == {call.strip("`"): name.strip("`") for call, name, *_ in operations()}
    assert sorted(listed.values()) == sorted(re.findall(r"^### (\w+)$", text("http-api"), re.MULTILINE))


def test_every_type_has_a_section() -> None:
    assert sorted(re.findall(r"^## (\w+)$", text("http-types"), re.MULTILINE)) == sorted(SCHEMAS)


def test_every_problem_has_a_meaning_and_an_action() -> None:
    found: dict[str, tuple[int, bool]] = {}
    for section in text("problems").split("\n## ")[1:]:
        rows = re.findall(r"^\| `([\w-]+)` \| (yes|no) \| \S.*\. \| \S.*\. \|$", section, re.MULTILINE)
        found |= {code: (int(section[:3]), retryable == "yes") for code, retryable in rows}
    assert found == errors()


def test_every_setting_has_a_row() -> None:
    found = re.findall(r"^\| `PEEKLOCK_(\w+)` \| (\w+) \|.* \| \S.*\. \|$", text("settings"), re.MULTILINE)
    assert {name.lower() for name, _ in found} == Settings.model_fields.keys()
    assert {kind for _, kind in found} == {"text", "integer", "number", "boolean", "word", "secret", "path", "URL"}


def test_every_command_has_a_section() -> None:
    found = re.findall(r"^## peeklock ([\w-]+)", text("command-line"), re.MULTILINE)
    assert set(found) == COMMANDS.keys()


def test_each_limit_in_the_code_is_on_a_page_or_says_that_it_limits_no_request() -> None:
    assert constants().keys() - named_constants() - constants_of_ranges() == set()


def test_words_are_those_of_the_names_in_the_code() -> None:
    said = {"names": {"known": "x", "stale": "y"}}
    with pytest.raises(Refusal, match="has words for stale"):
        words.of(said, "names", ["known"])
    with pytest.raises(Refusal, match="has no words for new"):
        words.of(said, "names", ["known", "new", "stale"])


def test_a_bar_in_a_cell_is_escaped() -> None:
    assert table(("a", "b"), [("x|y", "")]) == "| a | b |\n|---|---|\n| x\\|y | |"
    assert table(("a",), []) == ""


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": ["integer", "null"], "minimum": 1}, "integer (from 1) or null"),
        (
            {"anyOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "null"}]},
            "[Problem](http-types.md#problem) or null",
        ),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 3}, "array of string (at most 3 entries)"),
        ({"enum": ["a", "b"], "type": "string"}, "`a` or `b`"),
        ({"$ref": "#/components/schemas/Problem"}, "[Problem](http-types.md#problem)"),
        ({}, "any JSON value"),
    ],
)
def test_a_schema_in_words(schema: dict[str, object], kind: str) -> None:
    assert kind_of(schema) == kind
