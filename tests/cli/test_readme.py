"""The README does what it says: its start, its tour line by line, its keys."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from tests.service import PROGRAM, Service, environment

ROOT = Path(app.__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = "localhost:8080"
SHOWN_STATUS = "\n%{http_code}"


class Reader:
    """Somebody who types what the README shows, in a shell that keeps what they set."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.variables: dict[str, str] = {}
        self.answer: Any = None

    def type(self, line: str) -> None:
        """Type one line; a curl has to be answered with success."""
        line = line.replace(HERE, self.service.url.removeprefix("http://"))
        line = line.replace(".venv/bin/peeklock", str(PROGRAM))
        if line.startswith("curl"):
            line = line.replace("curl -s", f"curl -s --fail-with-body -w '{SHOWN_STATUS}'", 1)
        done = subprocess.run(
            ["bash", "-c", line],
            env=environment() | self.variables,
            cwd=self.service.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said, _, status = done.stdout.rpartition("\n") if line.startswith("curl") else (done.stdout, "", "200")
        assert status in ("200", "201"), line
        self.answer = json.loads(said) if said.startswith("{") else said.strip()

    def receive(self) -> None:
        """Have a message locked, and its token at hand."""
        self.type(f"curl -s {HERE}/v1/queues/orders/messages -d '{{\"body\": 1}}'")
        self.type(f"curl -s -X POST {HERE}/v1/queues/orders/messages/receive")
        self.take_token()

    def take_token(self) -> None:
        """Keep the token of the message that was received."""
        self.variables["TOKEN"] = self.answer["messages"][0]["lock_token"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader who has just started the server."""
    service = Service(tmp_path_factory.mktemp("reader"))
    yield Reader(service)
    service.end()


def test_the_tour_is_true(reader: Reader) -> None:
    for kind, block in blocks("A tour with curl"):
        if kind == "json":
            resembles(reader.answer, block)
            continue
        for line in block.splitlines():
            if line.startswith("TOKEN="):
                reader.take_token()
                continue
            if "$TOKEN" in line and not is_held(reader):
                reader.receive()
            reader.type(line)
    assert [one["outcome"] for one in reader.answer["settled"]] == ["completed"]


def test_a_repeated_settlement_is_answered_as_the_readme_says(reader: Reader) -> None:
    reader.receive()
    complete = f"curl -s -X POST {HERE}/v1/queues/orders/locks/$TOKEN/complete"
    for replayed in (False, True):
        reader.type(complete)
        assert reader.answer["replayed"] is replayed


def test_the_keys_are_made_as_the_readme_says(reader: Reader) -> None:
    ((_, block),) = blocks("Who may do what")
    script = block.replace(HERE, reader.service.url.removeprefix("http://")).replace(".venv/bin/peeklock", str(PROGRAM))
    done = subprocess.run(
        ["bash", "-euc", script], env=environment(), cwd=reader.service.directory, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["state"] == "available"


def test_the_start_prints_lines_that_work(tmp_path: Path, start: Callable[[Path], Service]) -> None:
    reader = Reader(start(tmp_path))
    lines = [line.strip() for line in reader.service.printed().splitlines() if line.startswith("  curl")]
    assert len(lines) == 3
    for line in lines[:2]:
        reader.type(line)
    reader.take_token()
    reader.type(lines[2].replace("LOCK_TOKEN", "$TOKEN"))
    assert reader.answer["outcome"] == "completed"


@pytest.fixture
def start() -> Iterator[Callable[[Path], Service]]:
    """Start a server in a directory."""
    services: list[Service] = []

    def begin(directory: Path) -> Service:
        services.append(Service(directory))
        return services[-1]

    yield begin
    for service in services:
        service.end()


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


def is_held(reader: Reader) -> bool:
    """Whether the token at hand still is that of a locked message."""
    token = reader.variables["TOKEN"]
    reader.type(f"curl -s '{HERE}/v1/queues/orders/messages?state=locked'")
    return any(f"{one['sequence_number']}" == token.partition(".")[0] for one in reader.answer["items"])
