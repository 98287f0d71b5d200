"""An engine's statements without one of their fences: the set is made once for every condition marked `-- fence:`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

from app.store.records.statements import Statement, parse
from app.store.url import Engine
from tests.dialects import DIALECTS

FENCE_PATTERN = re.compile(
    r"^(?P<before>\s*(?:WHERE |AND |OR )?)(?P<condition>.*?)(?P<after>;?)[ \t]*-- fence: (?P<kind>\w+)"
)
"""A condition on its own line, its conjunction before it and perhaps the end of the statement behind it."""


@dataclass(frozen=True, slots=True)
class RemovedFence:
    """An engine's statements with one fence void: that of `statement`. `location` says which of its fences."""

    location: str
    statement: str
    statements: Mapping[str, Statement]

    def __str__(self) -> str:
        return self.location


def removed_fences(engine: Engine) -> list[RemovedFence]:
    """One for each marked condition that the engine's statements contain."""
    texts = {name: _text(name) for name in ("common", engine.value)}
    whole = _load(engine, texts)
    found: list[RemovedFence] = []
    for name, text in texts.items():
        for number, condition, without_fence in _without_each_fence(text):
            weak = _load(engine, texts | {name: without_fence})
            # One text may be two statements. Each of them must be noticed.
            found += [
                RemovedFence(
                    f"{name}.sql:{number + 1} {statement}: {condition}", statement, whole | {statement: weak[statement]}
                )
                for statement in whole
                if weak[statement] != whole[statement]
            ]
    return found


def _without_each_fence(text: str) -> Iterator[tuple[int, str, str]]:
    """Each marked line of a file: its number, what it says, and the file without its condition."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if found := FENCE_PATTERN.match(line):
            weak = f"{found['before']}1 = 1{found['after']}"
            condition = f"{found['condition'].strip()} ({found['kind']})"
            yield number, condition, "\n".join([*lines[:number], weak, *lines[number + 1 :]])


def _load(engine: Engine, texts: Mapping[str, str]) -> dict[str, Statement]:
    return {statement.name: statement for text in texts.values() for statement in parse(text, DIALECTS[engine])}


def _text(name: str) -> str:
    return (
        (files("app.store.records") / "common.sql").read_text("utf-8")
        if name == "common"
        else DIALECTS[Engine(name)].own_text
    )
