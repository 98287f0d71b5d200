"""docs/protocol.md is true: its names exist, its excerpts are in the code, its tables are right, and its session runs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import SQLModel

import app
from app.broker.queue_cache import CACHE_SECONDS
from app.broker.settling.renew import CLOCK_MARGIN, RECORD_WINDOW
from app.broker.settling.settle import _FIRST_PAUSE_SECONDS, MAX_TRIES
from app.domain.archive import TrimResult
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import lead_time
from app.domain.refusals import BackendUnavailable, LossCause, Refusal
from app.domain.settlement import ANY_LOCK, NEVER_RENEWED, TOMBSTONE_RETENTION, Outcome, fence_above
from app.http.request import ATTEMPT_RETENTION
from app.locks.redis_connection import COOL_DOWN_SECONDS, FAILURES_TO_OPEN
from app.settings import Settings
from app.store import tables
from app.store.pooled.batching import IN_USE_DELAYS
from app.store.shared.archive import BATCH_KEEP
from app.store.shared.messages import DELETED_QUEUE_KEEP
from app.store.url import EngineName
from tests.dialects import statements as statements_of
from tests.guides import after_each, blocks, check_shown, run_blocks, table
from tests.model.offer_model import OfferRules
from tests.model.rules import Rules
from tests.model.runs import ABLATIONS
from tests.peeklock_process import PeeklockProcess

ROOT = Path(app.__file__).parents[1]
PAGE = (ROOT / "docs/protocol.md").read_text()
STORE = ROOT / "app/store"
SCRIPTS = ROOT / "app/locks/scripts"

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROSE = FENCED.sub("", PAGE)
SPAN = re.compile(r"`([^`]+)`")
UNIT = re.compile(r"\n\n|\n(?=\| )|\n(?=\d+\. )|\n(?=- )")
"""Where a paragraph, a row of a table or an entry of a list ends and the next one begins."""

LITERALS = {"<sequence_number>.<32 hex digits>": "a token as it is written", "-- fence:": "the mark in the SQL files"}
"""Spans that name nothing."""

ARGUMENTS_OF_SQL = re.compile(r"'([a-z_]+)'|@@([a-z_]+)")


# ---- names -----------------------------------------------------------------------------------------------------------


@cache
def statements() -> set[str]:
    """The names of the statements of all engines."""
    return {name for engine in EngineName for name in statements_of(engine)}


@cache
def scripts() -> set[str]:
    """The names of the scripts of Redis."""
    return {file.stem for file in SCRIPTS.glob("*.lua")}


@cache
def words() -> set[str]:
    """What a single word in code may be, if it is neither a path nor a test."""
    assert tables  # or the metadata would be empty
    found = {
        *statements(),
        *scripts(),
        *SQLModel.metadata.tables,
        *Rules.__dataclass_fields__,
        *OfferRules.__dataclass_fields__,
    }
    found |= set(statements_of(EngineName.POSTGRESQL)["remove"].with_numbered_params()[1])
    found |= {column.name for column in SQLModel.metadata.tables["message"].columns}
    found |= {state.label for state in MessageState} | {*Outcome, *LossCause, *TrimResult}
    found |= {kind.code for kind in (*below(Refusal), *below(BackendUnavailable))}
    return found | names_in_document() | settings_of_servers()


def below(kind: Any) -> Iterator[Any]:
    """All subclasses."""
    for found in kind.__subclasses__():
        yield found
        yield from below(found)


def names_in_document() -> set[str]:
    """The members and headers of the HTTP interface."""
    document = json.loads((ROOT / "openapi/openapi.json").read_text())
    schemas = document["components"]["schemas"].values()
    members = {name for schema in schemas for name in schema.get("properties", {})}
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    parameters = {parameter["name"] for operation in operations for parameter in operation.get("parameters", ())}
    return members | parameters | set(document["components"]["headers"])


def settings_of_servers() -> set[str]:
    """What the statements that look for weak settings name."""
    texts = (statements_of(engine)["unsafe_settings"].text for engine in (EngineName.POSTGRESQL, EngineName.MYSQL))
    return {name for text in texts for found in ARGUMENTS_OF_SQL.findall(text) for name in found}


def is_known(span: str) -> bool:
    """Whether this stands for something that exists."""
    if span in LITERALS or span in words():
        return True
    if "/" in span:
        return (ROOT / span).exists()
    if span.startswith("python -m "):
        return (ROOT / span.removeprefix("python -m ").replace(".", "/") / "__main__.py").exists()
    if span.startswith('"'):
        return set(json.loads(f"{{{span}}}")) <= words()
    if " = " in span:
        return any(span in file.read_text() for file in (ROOT / "app/store").rglob("*.py"))
    row, _, column = span.partition(".")
    return row in SQLModel.metadata.tables and column in SQLModel.metadata.tables[row].columns


def units() -> list[list[str]]:
    """The spans of each paragraph, row or entry."""
    return [SPAN.findall(" ".join(unit.split())) for unit in UNIT.split(PROSE)]


def test_what_is_named_exists() -> None:
    spans = {span for unit in units() for span in unit if not span.startswith("test_")}
    assert len(spans) > 100  # or they were not found
    assert sorted(span for span in spans if not is_known(span)) == []


def test_each_word_is_in_the_file_beside_it() -> None:
    rows = [(word, ROOT / file.strip("`")) for word, _, file in table(PAGE, "Words", "word")]
    assert len(rows) > 10  # or they were not found
    assert [word for word, file in rows if not in_code(word, file.read_text())] == []


def in_code(word: str, text: str) -> bool:
    """Whether a term occurs, in prose or as part of a name, as in `home_state` and `WorkUnit`."""
    return re.search(word.replace(" ", "[ _]?"), text, re.IGNORECASE) is not None


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert not is_known("remove_all")
    assert not is_known("message.lock_tokens")
    assert not is_known("tests/model/test_nothing.py")
    assert not is_known('"counted": false')
    assert not is_known("python -m tests.nothing")
    assert not is_known("synchronous = NONE")


def test_each_test_is_in_a_file_that_is_named_beside_it() -> None:
    named = [(span, unit) for unit in units() for span in unit if span.startswith("test_")]
    assert len(named) > 40  # or they were not found
    assert [test for test, unit in named if test not in functions_in(unit)] == []


def functions_in(spans: Iterable[str]) -> set[str]:
    """The names of the tests in these files."""
    files = [ROOT / span for span in spans if span.startswith("tests/") and span.endswith(".py")]
    trees = [ast.parse(file.read_text()) for file in files]
    return {
        node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_statements_are_statements() -> None:
    listed = [" ".join(part.split()) for part in PROSE.split("\n\n") if part.startswith("Statements: ")]
    assert len(listed) >= 3
    names = {name for item in listed for name in SPAN.findall(item.partition("Tests: ")[0])}
    names |= {name for row in table(PAGE, "Background loops", "loop") for name in SPAN.findall(row[2])}
    assert names - statements() == set()


def test_links_lead_to_headings() -> None:
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", PROSE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", PROSE)) <= headings


# ---- excerpts --------------------------------------------------------------------------------------------------------


EXCERPTS = [(kind, text) for kind, text in FENCED.findall(PAGE) if kind in ("sql", "lua")]


@pytest.mark.parametrize(("kind", "text"), EXCERPTS, ids=[text.partition("\n")[0] for _, text in EXCERPTS])
def test_an_excerpt_stands_in_the_code(kind: str, text: str) -> None:
    title, _, excerpt = text.partition("\n")
    name, _, engine = title.removeprefix("-- ").partition(" ")
    if kind == "lua":
        assert excerpt in (SCRIPTS / f"{name}.lua").read_text()
    else:
        folder = engine.strip("()")
        file = "shared/common.sql" if folder == "common" else f"{folder}/statements.sql"
        whole = (STORE / file).read_text()
        assert excerpt in re.split(r"\n-- [a-z_]+: ", whole.partition(f"\n-- {name}: ")[2])[0]


def test_every_block_is_an_excerpt_or_part_of_the_session() -> None:
    kinds = [kind for kind, _ in FENCED.findall(PAGE)]
    assert set(kinds) == {"sql", "lua", "sh", "json"}
    assert len([kind for kind in kinds if kind in ("sh", "json")]) == len(blocks(PAGE, SESSION))


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_the_states_have_these_numbers() -> None:
    shown = {int(number): name.strip("`") for number, name, _ in table(PAGE, "States", "number")}
    assert shown == {state.value: state.label for state in MessageState}


def test_the_moves_between_states_name_states_and_outcomes() -> None:
    labels = {state.label for state in MessageState}
    rows = table(PAGE, "States", "from")
    assert len(rows) > 10  # or they were not found
    for before, after, by in rows:
        assert {*SPAN.findall(before), *SPAN.findall(after)} <= labels
        assert set(SPAN.findall(by)) <= labels | {*Outcome}


def test_the_fences_let_these_generations_through() -> None:
    expired_generation = 7
    shown = [row[1:3] for row in table(PAGE, "The fence", "fence")]
    for (generation_above, max_generation), fence in zip(
        shown, (NEVER_RENEWED, fence_above(expired_generation), ANY_LOCK), strict=True
    ):
        assert (int(generation_above.replace("*e*", str(expired_generation))), int(max_generation)) == (
            fence.generation_above,
            fence.max_generation,
        )


UNITS = {"s": SECOND, "h": HOUR, "d": DAY}


def test_the_times_are_these() -> None:
    assert FAILURES_TO_OPEN == 3
    pauses = sum(_FIRST_PAUSE_SECONDS * 2**pause for pause in range(MAX_TRIES - 2))
    shown = [value.split() for _, value in table(PAGE, "Times", "what")[2:]]
    assert [round(float(number) * UNITS[unit]) for number, unit in shown] == [
        CLOCK_MARGIN,
        RECORD_WINDOW,
        int(re.findall(r"local GRACE = (\d+)", (SCRIPTS / "records.lua").read_text())[0]),
        Settings.model_fields["redis_timeout_seconds"].default * SECOND,
        COOL_DOWN_SECONDS * SECOND,
        TOMBSTONE_RETENTION,
        ATTEMPT_RETENTION,
        DELETED_QUEUE_KEEP,
        BATCH_KEEP,
        CACHE_SECONDS * SECOND,
        round(pauses * SECOND),
        round(sum(IN_USE_DELAYS) * SECOND),
    ]


def test_the_lead_is_as_the_formula_says() -> None:
    with_redis, without = (value for _, value in table(PAGE, "Times", "what")[:2])
    assert (with_redis, without) == ("max(D, min(max(4 D, 60 s), 600 s))", "D")
    for duration in (SECOND, MINUTE, 3 * MINUTE, HOUR):
        formula = max(duration, min(max(4 * duration, 60 * SECOND), 600 * SECOND))
        assert lead_time(duration, shared_locks=True) == formula
        assert lead_time(duration, shared_locks=False) == duration


def test_without_a_rule_of_the_model_these_promises_break() -> None:
    shown = {rule.strip("`"): set(broken.split("; ")) for rule, broken in table(PAGE, "The explored model", "rule")}
    single = [run for run in ABLATIONS if run.name.startswith("without ")]
    assert shown == {run.name.removeprefix("without "): set(run.breaks) for run in single}


# ---- the session -----------------------------------------------------------------------------------------------------

SESSION = "A session"


@pytest.mark.full
def test_the_session_runs_as_shown(serve_as_reader: Callable[[], PeeklockProcess]) -> None:
    section = blocks(PAGE, SESSION)
    typed = [block for kind, block in section if kind == "sh"]
    shown = [block for kind, block in after_each("sh", section) if kind == "json"]
    assert len(shown) == len(typed)
    heard = run_blocks(serve_as_reader(), typed)
    for answers, block in zip(heard, shown, strict=True):
        check_shown(answers[-1], block)
    sent, repeated = heard[0][1:]
    assert sent == repeated
    assert lock_tokens(heard[6]) == [lock_tokens(heard[6])[0]] * 2


def lock_tokens(answers: Sequence[Any]) -> list[str]:
    """The token in each of these answers."""
    return [answer["messages"][0]["lock_token"] for answer in answers]
