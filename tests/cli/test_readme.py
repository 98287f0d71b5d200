"""The commands of the README work as shown: its start, its tour line by line, its keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import app
from tests.databases import RunResources
from tests.guides import after_each, blocks, check_shown, run_blocks
from tests.peeklock_process import PeeklockProcess, services
from tests.reader import clone_that_runs

README = (Path(app.__file__).parents[1] / "README.md").read_text()
TOUR = "A tour with curl"


@pytest.fixture
def serve(run_resources: RunResources, tmp_path: Path) -> Iterator[Callable[..., PeeklockProcess]]:
    """Start servers as the README says: by `python3 dev.py run` in a fresh copy of the repository."""
    with services(tmp_path, clone_that_runs(run_resources)) as start:
        yield start


def test_the_tour_works_as_shown(serve: Callable[[], PeeklockProcess]) -> None:
    section = blocks(README, TOUR)
    typed = [block for kind, block in section if kind == "sh"]
    answered = run_blocks(serve(), typed)
    for answers in answered:
        assert answers
        assert not [answer for answer in answers if "tracking_id" in answer]
    for (kind, shown), answers in zip(after_each("sh", section), answered, strict=True):
        assert kind == "json"
        check_shown(answers[-1], shown)
    dead_letters = next(answer for answers in answered for answer in answers if "items" in answer)
    assert [message["dead_letter_reason"] for message in dead_letters["items"]] == ["no-such-article"]
    [loop] = answered[-2]
    assert [settlement["outcome"] for settlement in loop["settled"]] == ["completed"]
    assert len(loop["messages"]) == 1


def test_a_repeated_settlement_is_answered_as_the_readme_says(serve: Callable[[], PeeklockProcess]) -> None:
    typed = [block for kind, block in blocks(README, TOUR) if kind == "sh"][:4]
    complete = typed[-1].splitlines()[-1]
    assert complete.endswith("/complete")
    other = complete.replace("/complete", "/abandon")
    *_, (replay, refusal) = run_blocks(serve(), [*typed, f"{complete}\n{other}\n"])
    assert replay == {"outcome": "completed", "sequence_number": 1, "replayed": True}
    assert refusal["status"] == 409


def test_the_keys_are_made_as_the_readme_says(serve: Callable[[], PeeklockProcess]) -> None:
    ((answer,),) = run_blocks(serve(), [block for _, block in blocks(README, "Access")])
    assert answer["state"] == "available"


def test_the_start_prints_commands_that_work(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve(on_terminal=True)
    lines = re.findall(r"curl .*?(?=  \(|\r?$)", service.output(), re.MULTILINE)
    assert len(lines) == 3
    _, (received,) = run_blocks(service, lines[:2])
    ((completed,),) = run_blocks(service, [lines[2].replace("LOCK_TOKEN", received["messages"][0]["lock_token"])])
    assert completed["outcome"] == "completed"
