"""An engine's statements without one of their fences: the set is made once for every condition marked `-- fence:`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

from app.store.shared.statements import Statement, parse
from app.store.url import EngineName
from tests.dialects import DIALECTS

FENCE_PATTERN = re.compile(r"^(?P<before>\s*(?:WHERE |AND |OR )?).*?(?P<after>;?)[ \t]*-- fence: (?P<kind>\w+)")
"""A condition on its own line, its conjunction before it and perhaps the end of the statement behind it."""


@dataclass(frozen=True, slots=True)
class RemovedFence:
    """An engine's statements with one fence void: the one at `location`, in the statement of this name."""

    engine: EngineName
    location: str
    statement: str
    kind: str
    statements: Mapping[str, Statement]

    def __str__(self) -> str:
        return f"{self.location}-{self.statement}-{self.kind}"


def removed_fences(engine: EngineName) -> Iterator[RemovedFence]:
    """One for each marked condition that the engine's statements contain."""
    dialect = DIALECTS[engine]
    whole = dialect.statements
    for name, text in _texts(engine).items():
        used = {statement.name for statement in parse(text, dialect) if statement == whole[statement.name]}
        for number, kind, without_fence in _without_each_fence(text):
            # One text may be two statements. Each of them must be noticed.
            for weak in parse(without_fence, dialect):
                if weak.name in used and weak != whole[weak.name]:
                    location = f"{name}.sql:{number}"
                    yield RemovedFence(engine, location, weak.name, kind, {**whole, weak.name: weak})


def _without_each_fence(text: str) -> Iterator[tuple[int, str, str]]:
    """Each marked line of a file: its number, the kind of its fence, and the file without its condition."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if fence := FENCE_PATTERN.match(line):
            weak = f"{fence['before']}1 = 1{fence['after']}"
            yield index + 1, fence["kind"], "\n".join([*lines[:index], weak, *lines[index + 1 :]])


def _texts(engine: EngineName) -> Mapping[str, str]:
    common = (files("app.store.shared") / "common.sql").read_text("utf-8")
    return {"common": common, engine.value: DIALECTS[engine].own_text}
