"""Sentences count in the singular and the plural, through one function."""

import re
from pathlib import Path

import pytest

from app.domain.plurals import count_of

APP = Path(__file__).parents[2] / "app"
OWN_PLURAL = re.compile(r"""["'][^"']*["'] if \S.* (?:==|!=) 1 else |else ["']e?s["']""")
"""A text that depends on whether a number is 1, beside the function for it."""


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("message",), "0 messages"),
        (1, ("message",), "1 message"),
        (2000, ("message",), "2,000 messages"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
        (1, ("message waits", "messages wait"), "1 message waits"),
        (3, ("message waits", "messages wait"), "3 messages wait"),
    ],
)
def test_a_number_is_written_with_what_it_counts(number: int, nouns: tuple[str, ...], text: str) -> None:
    assert count_of(number, *nouns) == text


@pytest.mark.parametrize("text", ["{{ n }} queue{{ '' if n == 1 else 's' }}", 'x = "a" if len(rows) == 1 else many'])
def test_a_plural_of_its_own_is_recognised(text: str) -> None:
    assert OWN_PLURAL.search(text)


def test_every_sentence_of_the_service_counts_through_one_function() -> None:
    # The commands load nothing of the domain, so that they start fast.
    found = [
        f"{path.relative_to(APP)}:{number}: {line.strip()}"
        for path in sorted(APP.rglob("*"))
        if path.suffix in (".py", ".html") and path.name != "plurals.py" and path.parent.name != "cli"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OWN_PLURAL.search(line)
    ]
    assert found == []
