"""docs/protocol.md says what Peeklock does not promise, so that no program relies on it."""

import re
from pathlib import Path

import pytest

import app

ROOT = Path(app.__file__).parents[1]
SECTION = "What is not promised"
ENTRY = re.compile(r"^- \*\*(.+?)\.\*\* (.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)


def not_promised() -> dict[str, str]:
    """Return the text of each entry of the section, by what it says is not promised."""
    page = (ROOT / "docs/protocol.md").read_text()
    section = page.partition(f"\n## {SECTION}\n")[2].partition("\n## ")[0]
    return {title: " ".join(text.split()) for title, text in ENTRY.findall(section)}


def test_the_entries_are_found() -> None:
    assert len(not_promised()) > 10
    assert "Exactly-once processing" in not_promised()


@pytest.mark.behaviour("S1.81")
def test_senders_that_do_not_wait_for_each_other_are_promised_no_order() -> None:
    text = not_promised()["Order between senders that do not wait for each other"]
    assert "may cross" in text
    assert "tasks of one process" in text


@pytest.mark.behaviour("S1.82")
def test_senders_in_several_processes_are_promised_no_order() -> None:
    assert "in several processes" in not_promised()["Order between senders that do not wait for each other"]
    assert "One order for several processes on PostgreSQL at every moment" in not_promised()


@pytest.mark.behaviour("S1.86")
def test_a_message_that_returns_is_promised_no_place() -> None:
    assert "is delivered again after later ones" in not_promised()["Order of messages that return"]


@pytest.mark.behaviour("S1.12")
def test_a_volatile_message_is_promised_no_copy_in_another_process() -> None:
    text = not_promised()['A message with `"durability": "volatile"`']
    assert "It may be lost" in text
    assert "no other process keeps a copy" in text
    assert "every process delivers it" in text
