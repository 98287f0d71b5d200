"""The README does what it says: its start, its tour line by line, its keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import app
from tests.guides import after_each, blocks, resembles, typing
from tests.service import Service

README = (Path(app.__file__).parents[1] / "README.md").read_text()
TOUR = "A tour with curl"


def test_the_tour_is_true(serve: Callable[[], Service]) -> None:
    section = blocks(README, TOUR)
    typed = [block for kind, block in section if kind == "sh"]
    heard = typing(serve(), typed)
    for answers in heard:
        assert answers
        assert not [answer for answer in answers if "tracking_id" in answer]
    for (kind, shown), answers in zip(after_each("sh", section), heard, strict=True):
        if kind == "json":
            resembles(answers[-1], shown)
    looked_at = next(answer for answers in heard for answer in answers if "items" in answer)
    assert [one["dead_letter_reason"] for one in looked_at["items"]] == ["no-such-article"]
    assert [one["outcome"] for one in heard[-1][-1]["settled"]] == ["completed"]
    assert len(heard[-1][-1]["messages"]) == 1


def test_a_repeated_settlement_is_answered_as_the_readme_says(serve: Callable[[], Service]) -> None:
    typed = [block for kind, block in blocks(README, TOUR) if kind == "sh"][:3]
    complete = typed[-1].splitlines()[-1]
    assert complete.endswith("/complete")
    other = complete.replace("/complete", "/abandon")
    *_, (replay, refusal) = typing(serve(), [*typed, f"{complete}\n{other}\n"])
    assert replay == {"outcome": "completed", "sequence_number": 1, "replayed": True}
    assert refusal["status"] == 409


def test_the_keys_are_made_as_the_readme_says(serve: Callable[[], Service]) -> None:
    ((answer,),) = typing(serve(), [block for _, block in blocks(README, "Who may do what")])
    assert answer["state"] == "available"


def test_the_start_prints_lines_that_work(serve: Callable[[], Service]) -> None:
    service = serve()
    lines = [line.strip() for line in service.printed().splitlines() if line.startswith("  curl")]
    assert len(lines) == 3
    _, (received,) = typing(service, lines[:2])
    ((completed,),) = typing(service, [lines[2].replace("LOCK_TOKEN", received["messages"][0]["lock_token"])])
    assert completed["outcome"] == "completed"
