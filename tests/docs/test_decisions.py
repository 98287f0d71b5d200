"""Decisions have numbers of their own and name the files that they explain, and what refers to a decision finds it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/decisions"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})

DECISION = re.compile(r"\*\*(\d+)\. .+\*\*.* In ((?:`[^`]+`(?:, )?)+)\.")
"""A paragraph, in one line: its number, and the files that it explains."""
REFERENCE = re.compile(r"\b[Dd]ecisions?(?: |\n *)(\d+)\b")


def decisions() -> Iterator[tuple[int, list[str]]]:
    """The number and the files of each decision. Fails on a paragraph that is none."""
    for page in PAGES:
        title, about, *paragraphs = page.read_text("utf-8").strip().split("\n\n")
        assert title.startswith("# Decisions: "), page.name
        assert about.startswith("About "), page.name
        for paragraph in paragraphs:
            decision = DECISION.fullmatch(" ".join(paragraph.split()))
            assert decision, f"{page.name}: {paragraph}"
            yield int(decision[1]), re.findall("`([^`]+)`", decision[2])


def numbers() -> list[int]:
    return [number for number, _ in decisions()]


def references(text: str) -> set[int]:
    """The numbers of the decisions that a text refers to."""
    return {int(number) for number in REFERENCE.findall(text)}


def test_each_number_is_that_of_one_decision() -> None:
    assert len(numbers()) > 50
    assert len(set(numbers())) == len(numbers())


def test_a_page_has_its_decisions_by_number() -> None:
    for page in PAGES:
        found = [int(number) for number in re.findall(r"^\*\*(\d+)\. ", page.read_text("utf-8"), re.MULTILINE)]
        assert found == sorted(found), page.name


def test_the_index_knows_the_last_number() -> None:
    [last] = re.findall(r"The last number given is (\d+)\.", INDEX.read_text("utf-8"))
    assert max(numbers()) <= int(last)


def test_the_index_lists_each_page() -> None:
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) ", INDEX.read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES]


def test_each_file_that_a_decision_explains_exists() -> None:
    assert [(number, file) for number, files in decisions() for file in files if not (ROOT / file).is_file()] == []


def test_each_decision_that_a_file_refers_to_exists() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: ROOT / name for name in listed if name.endswith((".py", ".md", ".sql", ".lua", ".toml", ".yml"))}
    known = set(numbers())
    assert {
        name for name, file in texts.items() if file.is_file() and references(file.read_text("utf-8")) - known
    } == set()


def test_a_reference_is_found_in_any_place_of_a_sentence() -> None:
    assert references("as decision\n    2 says; decision: 3; Decision 14. A decision\n\n1. is") == {2, 14}
