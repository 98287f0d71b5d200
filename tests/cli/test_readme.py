"""The README does what it says: its start, its tour line by line, its keys."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import app
from tests.service import PROGRAM, Service, environment

ROOT = Path(app.__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = "localhost:8080"
ENDED = "-- a block has ended --"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Service]]:
    """Start servers in this test's directory."""
    services: list[Service] = []

    def begin() -> Service:
        services.append(Service(tmp_path))
        return services[-1]

    yield begin
    for service in services:
        service.end()


def test_the_tour_is_true(start: Callable[[], Service]) -> None:
    section = blocks("A tour with curl")
    typed = [block for kind, block in section if kind == "sh"]
    heard = typing(start(), typed)
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


def test_a_repeated_settlement_is_answered_as_the_readme_says(start: Callable[[], Service]) -> None:
    typed = [block for kind, block in blocks("A tour with curl") if kind == "sh"][:3]
    complete = typed[-1].splitlines()[-1]
    assert complete.endswith("/complete")
    other = complete.replace("/complete", "/abandon")
    *_, (replay, refusal) = typing(start(), [*typed, f"{complete}\n{other}\n"])
    assert replay == {"outcome": "completed", "sequence_number": 1, "replayed": True}
    assert refusal["status"] == 409


def test_the_keys_are_made_as_the_readme_says(start: Callable[[], Service]) -> None:
    ((answer,),) = typing(start(), [block for _, block in blocks("Who may do what")])
    assert answer["state"] == "available"


def test_the_start_prints_lines_that_work(start: Callable[[], Service]) -> None:
    service = start()
    lines = [line.strip() for line in service.printed().splitlines() if line.startswith("  curl")]
    assert len(lines) == 3
    _, (received,) = typing(service, lines[:2])
    ((completed,),) = typing(service, [lines[2].replace("LOCK_TOKEN", received["messages"][0]["lock_token"])])
    assert completed["outcome"] == "completed"


def typing(service: Service, typed: Sequence[str]) -> list[list[Any]]:
    """What the server answers to each block, all typed as they are into one shell, but for where the server is."""
    script = "".join(f"{block}\necho '{ENDED}'\n" for block in typed)
    script = script.replace(HERE, service.url.removeprefix("http://")).replace(".venv/bin/peeklock", str(PROGRAM))
    done = subprocess.run(
        ["bash", "-euc", script],
        env=environment(),
        cwd=service.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [list(documents(said)) for said in done.stdout.split(ENDED)[:-1]]


def documents(said: str) -> Iterator[Any]:
    """The JSON documents that stand one after the other."""
    decode = json.JSONDecoder().raw_decode
    while said := said.strip():
        document, end = decode(said)
        yield document
        said = said[end:]


def after_each(kind: str, section: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What stands after each block of a kind; nothing after the last of all."""
    return [after for (one, _), after in pairwise([*section, ("", "")]) if one == kind]


def blocks(heading: str) -> list[tuple[str, str]]:
    """The blocks of one section: what is typed (sh) and what is answered (json)."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [(match[1], match[2]) for match in BLOCK.finditer(section)]
    assert found, heading
    return found


def resembles(answer: Any, shown: str) -> None:
    """Hold an answer to what is shown of it; `...` stands for what differs from time to time."""
    wanted = json.loads(shown.replace(",...", ""))
    if "messages" in wanted:
        answer, wanted = answer["messages"][0], wanted["messages"][0]
    assert wanted.keys() <= answer.keys()
    fixed = {name for name, value in wanted.items() if "..." not in str(value) and not name.endswith("_at")}
    fixed -= {"lock_remaining_ms"}  # a moment less on a slow machine
    assert {name: answer[name] for name in fixed} == {name: wanted[name] for name in fixed}
