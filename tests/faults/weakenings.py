"""An engine's statements without one of their fences: the set is made once for every condition marked `-- fence:`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

from app.store.statements import Engine, Statement, parse

MARK = re.compile(r"^(?P<before>\s*(?:WHERE |AND |OR )?)(?P<condition>.*?)(?P<after>;?)[ \t]*-- fence: (?P<kind>\w+)")
"""A condition on its own line, its conjunction before it and perhaps the end of the statement behind it."""


@dataclass(frozen=True, slots=True)
class Weakening:
    """An engine's statements with one fence void: that of `statement`; `where` says which of its fences."""

    where: str
    statement: str
    statements: Mapping[str, Statement]

    def __str__(self) -> str:
        return self.where


def weakenings(engine: Engine) -> list[Weakening]:
    """One for each marked condition that the engine's statements contain."""
    texts = {name: _text(name) for name in ("common", engine.value)}
    whole = _load(engine, texts)
    found: list[Weakening] = []
    for name, text in texts.items():
        for number, said, weaker in _voided(text):
            statements = _load(engine, texts | {name: weaker})
            changed: Collection[str] = [one for one in whole if statements[one] != whole[one]]
            found += [Weakening(f"{name}.sql:{number + 1} {one}: {said}", one, statements) for one in changed]
    return found


def _voided(text: str) -> Iterator[tuple[int, str, str]]:
    """Each marked line of a file: its number, what it says, and the file without its condition."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if found := MARK.match(line):
            weak = f"{found['before']}1 = 1{found['after']}"
            said = f"{found['condition'].strip()} ({found['kind']})"
            yield number, said, "\n".join([*lines[:number], weak, *lines[number + 1 :]])


def _load(engine: Engine, texts: Mapping[str, str]) -> dict[str, Statement]:
    return {statement.name: statement for text in texts.values() for statement in parse(text, engine)}


def _text(name: str) -> str:
    return (files("app.store") / "sql" / f"{name}.sql").read_text("utf-8")
