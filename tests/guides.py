"""Runs the examples of a guide unchanged in one shell, and compares their answers with the guide."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any

from tests.peeklock_process import PeeklockProcess
from tests.reader import reader_environment

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = ("sh", "json")
GUIDE_ADDRESS = "localhost:8080"
END_OF_BLOCK = "-- a block has ended --"


def run_blocks(service: PeeklockProcess, typed: Sequence[str]) -> list[list[Any]]:
    """Return the documents that the server answers to each block; see `printed`."""
    return [list(documents(output)) for output in printed(service, typed)]


def printed(service: PeeklockProcess, typed: Sequence[str]) -> list[str]:
    """Return the output of each block. All run unchanged in one shell, except for the address of the server."""
    script = "".join(f"{block}\necho '{END_OF_BLOCK}'\n" for block in typed)
    script = script.replace(GUIDE_ADDRESS, service.url.removeprefix("http://")).replace(
        ".venv/bin/", f"{service.programs}/"
    )
    done = subprocess.run(
        ["bash", "-euc", script],
        env=reader_environment(service.programs),
        cwd=service.directory,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split(END_OF_BLOCK)[:-1]


def documents(output: str) -> Iterator[Any]:
    """Yield the JSON documents in the output."""
    decode = json.JSONDecoder().raw_decode
    while output := output.strip():
        document, end = decode(output)
        yield document
        output = output[end:]


def section(guide: str, heading: str) -> str:
    """Return the text of one section of a guide."""
    found = guide.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert found, heading
    return found


def blocks(guide: str, heading: str, kinds: Sequence[str] = KINDS) -> list[tuple[str, str]]:
    """Return the blocks of one section of a guide: commands (sh) and answers (json)."""
    return blocks_of(section(guide, heading), kinds)


def blocks_of(text: str, kinds: Sequence[str] = KINDS) -> list[tuple[str, str]]:
    """Return the blocks of a text: commands (sh) and answers (json)."""
    found = [(match[1], match[2]) for match in BLOCK.finditer(text) if match[1] in kinds]
    assert found, text
    return found


def table(guide: str, heading: str, first: str) -> list[list[str]]:
    """Return the rows of a section's table whose first column has this title, without the header row."""
    return rows_of(section(guide, heading), first)


def rows_of(text: str, first: str) -> list[list[str]]:
    """Return the rows of a text's table whose first column has this title, without the header row."""
    lines = text.partition(f"\n| {first} |")[2].splitlines()[2:]
    rows = takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in row.removeprefix("|").removesuffix("|").split(" | ")] for row in rows]


def after_each(kind: str, section: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the block after each block of a kind, and an empty one after the last block."""
    return [after for (block_kind, _), after in pairwise([*section, ("", "")]) if block_kind == kind]


def check_shown(answer: Any, shown: str) -> None:
    """Compare an answer with the guide, where `...` marks varying values."""
    wanted = json.loads(shown.replace(",...", ""))
    if "messages" in wanted:
        answer, wanted = answer["messages"][0], wanted["messages"][0]
    assert wanted.keys() <= answer.keys()
    varies = ("_at", "_until")
    fixed = {name for name, value in wanted.items() if "..." not in str(value) and not name.endswith(varies)}
    fixed -= {"lock_remaining_ms"}  # a moment less on a slow machine
    assert {name: answer[name] for name in fixed} == {name: wanted[name] for name in fixed}
