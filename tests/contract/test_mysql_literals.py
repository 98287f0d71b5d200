"""Values written into statements of MariaDB and MySQL stay values: every byte, under hostile settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from app.store.mysql.connect import Connector
from app.store.mysql.session import MysqlSession, StatementFailed
from app.store.mysql.templates import literal
from tests.databases import RunResources
from tests.servers import MariaServer

HOSTILE_SERVERS = {
    "usual": (),
    "no backslash escapes": ("--sql-mode=NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT",),
    # Character sets in which the last byte of a character can be a backslash.
    "gbk": ("--character-set-server=gbk", "--skip-character-set-client-handshake"),
    "sjis": ("--character-set-server=sjis", "--skip-character-set-client-handshake"),
}

CHARACTERS = (
    "\0",
    "'",
    '"',
    "`",
    "\\",
    "%",
    "\n",
    "\r",
    "\x1a",
    ";",
    "-",
    "/*",
    "#",
    "\u00a5",
    "\u7e17",
    "\u8868",
    "🐇",
)
"""What ends, escapes or comments a text, and characters with a backslash in gbk or sjis."""

BYTES = (
    b"\0",
    b"'",
    b'"',
    b"\\",
    b"%",
    b"\n",
    b"\x1a",
    b";",
    b"\x81",
    b"\x95",
    b"\xbf",
    b"\xc0",
    b"\xe5",
    b"\xf0",
    b"\xff",
)
"""The same, with first bytes of characters in gbk, sjis and UTF-8 that nothing completes."""

INJECTIONS = (
    "' OR 1 = 1 -- ",
    "\\' OR 1 = 1 -- ",
    "\\\\' OR 1 = 1 # ",
    "'; DROP TABLE message; -- ",
    "' UNION SELECT 1 /*",
    "\u7e17' OR 1 = 1 -- ",
    "%s' :name %(x)s",
)

VALUES: Sequence[Any] = (
    *map("".join, product(CHARACTERS, repeat=2)),
    *map(b"".join, product(BYTES, repeat=3)),
    *(bytes([number]) for number in range(256)),
    *(chr(number) for number in range(256)),
    *INJECTIONS,
    *(text.encode("gbk", "replace") for text in INJECTIONS),
    *(None, "", b"", 0, -1, 2**63 - 1, -(2**63), bytes(range(256)) * 64, os.urandom(4096)),
)

PER_STATEMENT = 1000


@pytest.fixture(scope="module", params=HOSTILE_SERVERS.values(), ids=HOSTILE_SERVERS)
def hostile_url(
    request: pytest.FixtureRequest, run_resources: RunResources, require_server: Callable[[str], str]
) -> Iterator[str]:
    """A server with one of these settings."""
    require_server(MariaServer.kind)
    server = MariaServer(run_resources.new_directory(), *request.param)
    server.start()
    yield f"{server.url}mysql"
    server.kill()


@pytest.fixture
def session_of(hostile_url: str) -> Callable[[], Any]:
    """Open a session as the store does."""
    return Connector(hostile_url)


async def read_back(session: MysqlSession, values: Sequence[Any]) -> list[Any]:
    """The values as the server has read their literals."""
    read: list[Any] = []
    for start in range(0, len(values), PER_STATEMENT):
        some = values[start : start + PER_STATEMENT]
        (result,) = await session.execute(b"SELECT " + b", ".join(map(literal, some)))
        read += result.rows[0]
    return read


async def test_every_hostile_value_is_read_as_itself(session_of: Callable[[], Any]) -> None:
    session = await session_of()
    assert await read_back(session, VALUES) == list(VALUES)
    await session.close()


async def test_a_hostile_text_matches_itself_alone(session_of: Callable[[], Any]) -> None:
    session = await session_of()
    for text in INJECTIONS:
        statement = b"SELECT COUNT(*) FROM (SELECT 'a' AS x UNION ALL SELECT %s) AS t WHERE x = %s"
        (result,) = await session.execute(statement % (literal(text), literal(text)))
        assert result.rows[0][0] == 1
    await session.close()


async def test_an_operand_of_in_holds_only_its_numbers(session_of: Callable[[], Any]) -> None:
    session = await session_of()
    (result,) = await session.execute(b"SELECT -2 IN %s, 3 IN %s" % (literal([1, -2]), literal([1, -2])))
    assert result.rows[0] == (1, 0)
    await session.close()


@pytest.mark.parametrize("setting", [b"SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'", b"SET NAMES gbk"])
async def test_without_a_setting_of_the_session_a_value_is_misread(
    session_of: Callable[[], Any], setting: bytes
) -> None:
    session = await session_of()
    await session.execute(setting)
    with pytest.raises((StatementFailed, AssertionError, UnicodeError)):
        assert await read_back(session, VALUES) == list(VALUES)
    session.terminate()


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        Decimal(1),
        datetime(2026, 1, 1, tzinfo=UTC),
        bytearray(b"x"),
        memoryview(b"x"),
        ("x",),
        {"x": 1},
        {1},
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_type_without_a_literal_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        literal(value)


@pytest.mark.parametrize("value", [["1"], [b"1"], [None], [[1]], ["1) OR (1"]], ids=repr)
def test_a_list_of_anything_but_integers_is_refused(value: list[Any]) -> None:
    with pytest.raises(TypeError):
        literal(value)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"], ids=ascii)
def test_a_text_that_is_not_unicode_is_refused(text: str) -> None:
    with pytest.raises(UnicodeEncodeError):
        literal(text)
