"""PostgreSQL URLs of several hosts: those that do not answer, or accept no writes, are passed over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.domain.refusals import StoreUnavailable
from app.store.postgresql.connect import ConnectFailed, Connector, parse_address
from app.store.postgresql.timelines import UNKNOWN
from app.store.url import BadStoreUrl
from tests.servers import free_port

SECONDS = 1
"""The shortest `connect_timeout`."""


class SilentHost:
    """A host that accepts connections and says nothing."""

    def __init__(self) -> None:
        self.port = free_port()
        self.connections = 0
        self.was_reached = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["SilentHost"]:
        """Listen until the end of the block."""
        async with await asyncio.start_server(self._accept, "127.0.0.1", self.port):
            yield self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.was_reached.set()
        while await reader.read(1000):
            pass
        writer.close()


@pytest.fixture
async def silent() -> AsyncIterator[SilentHost]:
    """A host that never answers."""
    async with SilentHost().listening() as host:
        yield host


def with_first_host(url: str, first: str, options: str = f"connect_timeout={SECONDS}") -> str:
    """Return the URL with one more host before its own."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{first},{host}", query=options).geturl()


async def test_a_host_that_never_answers_is_passed_over(postgres_url: str, silent: SilentHost) -> None:
    connect = Connector(parse_address(with_first_host(postgres_url, f"127.0.0.1:{silent.port}")))
    connection = await connect()
    assert [tuple(row) for row in await connection.fetch("SELECT 1")] == [(1,)]
    await connection.close()
    assert silent.connections == 1


async def test_the_host_of_an_open_connection_is_tried_first(postgres_url: str, silent: SilentHost) -> None:
    connect = Connector(parse_address(with_first_host(postgres_url, f"127.0.0.1:{silent.port}")))
    connections = [await connect() for _ in range(3)]
    assert silent.connections == 1
    for connection in connections:
        await connection.close()
    await (await connect()).close()
    assert silent.connections == 2


async def test_hosts_of_the_option_host_are_tried_in_the_same_way(postgres_url: str, silent: SilentHost) -> None:
    parts = urlsplit(postgres_url)
    hosts = f"host=127.0.0.1,{parts.hostname}&port={silent.port},{parts.port}"
    user = parts.netloc.rpartition("@")[0]
    url = parts._replace(netloc=f"{user}@" if user else "", query=f"{hosts}&connect_timeout={SECONDS}").geturl()
    await (await Connector(parse_address(url))()).close()
    assert silent.connections == 1


async def test_the_operator_reads_the_reason_of_each_host(silent: SilentHost) -> None:
    refusing = f"127.0.0.1:{free_port()}"
    url = with_first_host(f"postgresql://{refusing}/peeklock", f"127.0.0.1:{silent.port}")
    with pytest.raises(StoreUnavailable) as raised:
        await Connector(parse_address(url))()
    assert isinstance(raised.value.__cause__, ConnectFailed)
    silence, refusal = sorted(str(raised.value.__cause__).split("; "), key=lambda reason: "no answer" not in reason)
    assert silence == f"127.0.0.1:{silent.port}: no answer within {SECONDS} s"
    assert refusal.startswith(f"{refusing}: ")
    assert "Connect call failed" in refusal


async def test_a_cancelled_caller_leaves_no_connection(silent: SilentHost) -> None:
    url = f"postgresql://127.0.0.1:{silent.port}/peeklock?connect_timeout=600"
    connecting = asyncio.create_task(Connector(parse_address(url))())
    await silent.was_reached.wait()
    connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("connect to")] == []


async def test_a_database_that_cannot_hold_every_character_is_refused(postgres_url: str) -> None:
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        url = urlsplit(postgres_url)._replace(path="/latin1").geturl()
        with pytest.raises(BadStoreUrl, match="The encoding of the database is LATIN1"):
            await Connector(parse_address(url))()
    finally:
        await admin.execute("DROP DATABASE latin1 WITH (FORCE)")
        await admin.close()


async def test_a_pooler_that_refuses_the_settings_is_named_with_the_remedy() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        error = b"SFATAL\0C08P01\0Munsupported startup parameter: enable_hashjoin\0\0"
        writer.write(b"E" + (len(error) + 4).to_bytes(4, "big") + error)
        writer.close()

    port = free_port()
    async with await asyncio.start_server(refuse, "127.0.0.1", port):
        with pytest.raises(StoreUnavailable) as raised:
            await Connector(parse_address(f"postgresql://127.0.0.1:{port}/peeklock?sslmode=disable"))()
    assert "unsupported startup parameter: enable_hashjoin" in str(raised.value.__cause__)
    assert "statement_cache_size=0" in str(raised.value.__cause__)


class OpenAtOnce(Connector):
    """Opens a connection of a test at once."""

    def __init__(self) -> None:
        super().__init__(parse_address("postgresql://first,second/database"))
        self.opened: list[ClosableConnection] = []

    async def _connect(self, host: str) -> Any:
        self.opened.append(ClosableConnection())
        return self.opened[-1], UNKNOWN


class ClosableConnection:
    is_open = True

    def is_closed(self) -> bool:
        return not self.is_open

    def terminate(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("turns", range(8))
async def test_a_caller_that_is_cancelled_at_any_moment_leaves_no_connection(turns: int) -> None:
    connect = OpenAtOnce()
    connecting = asyncio.create_task(connect())
    for _ in range(turns):
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.wait([connecting])
    kept = [] if connecting.cancelled() else [connecting.result()]
    assert [connection for connection in connect.opened if connection.is_open] == kept
