"""Databases crash, cut connections, do not answer, fill up or change their clock: 503, recovery, and no broken promise.

What cannot be brought about without rights that a test run does not have: a clock that jumps, and a disk of PostgreSQL
that is full. For the first stand stored times that jump, for the second a PostgreSQL that says so.
"""

from __future__ import annotations

import asyncio
import base64
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from app.domain.instant import MINUTE
from app.store.migrate import migrate
from tests.faults.client_process import ACTIONS
from tests.faults.conftest import StartFleet
from tests.faults.conservation import EARLY, UNAVAILABLE
from tests.faults.database_access import execute, pass_time
from tests.faults.fleet import Fleet
from tests.faults.polling import TIMEOUT_SECONDS, wait_until
from tests.faults.proxies import FaultyProxy
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import LONG_LOCK_SECONDS
from tests.server_drivers import DRIVERS, run_in_thread
from tests.servers import MariaServer, PostgresServer, ServerProcess


@dataclass(frozen=True, slots=True)
class OwnDatabase:
    """A database on a server of its own, that a test may hurt."""

    server: ServerProcess
    url: str


@pytest.fixture
def own_database(private_server: Callable[..., ServerProcess]) -> Callable[..., OwnDatabase]:
    """Make a migrated database on a private server of this kind, started with these options."""

    def make(kind: type[ServerProcess], *options: str) -> OwnDatabase:
        server = private_server(kind, *options)
        url = DRIVERS[server.kind].create(server.url, "peeklock")
        run_in_thread(lambda: migrate(url))
        return OwnDatabase(server, url)

    return make


POSTGRESQL = pytest.param(PostgresServer, id="postgresql", marks=pytest.mark.faults)
MARIADB = pytest.param(MariaServer, id="mariadb", marks=[pytest.mark.faults, pytest.mark.nightly])


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
async def test_the_database_is_killed_and_started_again(
    start_fleet: StartFleet, own_database: Callable[..., OwnDatabase], redis_url: str, kind: type[ServerProcess]
) -> None:
    database = own_database(kind)
    fleet = start_fleet(database.url, PEEKLOCK_REDIS_URL=redis_url)
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    clients = await fleet.start_clients(server.url, messages=60)
    await clients.until_sent(25)
    database.server.kill()
    await wait_until(lambda: any(call.status == UNAVAILABLE for call in fleet.calls()), "somebody hears of it")
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{server.url}/livez")).status_code == 200
        assert (await client.get(f"{server.url}/readyz")).status_code == UNAVAILABLE
    await asyncio.to_thread(database.server.start)
    await clients.end()
    assert {call.status for call in fleet.calls() if call.status >= 500} == {UNAVAILABLE}
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_a_server_without_a_database_answers_with_retry_after(
    start_fleet: StartFleet, own_database: Callable[..., OwnDatabase], redis_url: str
) -> None:
    database = own_database(PostgresServer)
    fleet = start_fleet(database.url, PEEKLOCK_REDIS_URL=redis_url)
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    database.server.kill()
    async with httpx.AsyncClient(timeout=60) as client:
        for path in ("messages", "messages/receive"):
            answer = await client.post(f"{server.url}/v1/queues/{fleet.queue}/{path}", json={})
            assert (answer.status_code, answer.json()["code"]) == (UNAVAILABLE, "store-unavailable")
            assert int(answer.headers["retry-after"]) >= 1


TERMINATE = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db = DATABASE() "
    "AND id <> CONNECTION_ID()",
}


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("fixture", ["postgres_url", "mariadb_url"])
async def test_backends_are_terminated(
    start_fleet: StartFleet, redis_url: str, request: pytest.FixtureRequest, fixture: str
) -> None:
    url = request.getfixturevalue(fixture)
    fleet = start_fleet(url, PEEKLOCK_REDIS_URL=redis_url)
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    clients = await fleet.start_clients(server.url, messages=400)
    for sent in range(50, 400, 50):
        await clients.until_sent(sent)
        for (done,) in await asyncio.to_thread(execute, url, TERMINATE[urlsplit(url).scheme]):
            if isinstance(done, str):
                await asyncio.to_thread(execute, url, done)
    await clients.end()
    assert fleet.broken_promises() == []


# ---- a slow disk -----------------------------------------------------------------------------------------------------

SLOW_COMMITS = ("-c", "commit_delay=20000", "-c", "commit_siblings=0")
"""Every COMMIT takes 20 ms, as on a busy disk, and until then its rows stay locked: statements meet there."""


@pytest.mark.faults
@pytest.mark.nightly
async def test_completions_meet_renewals_where_commits_take_long(
    start_fleet: StartFleet, own_database: Callable[..., OwnDatabase], redis_url: str
) -> None:
    fleet = start_fleet(own_database(PostgresServer, *SLOW_COMMITS).url, PEEKLOCK_REDIS_URL=redis_url)
    servers = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(servers[0].url)
    others = [action for action in ACTIONS if action != "renew while completing"]
    clients = await fleet.start_clients(*(server.url for server in servers), messages=60, without=others)
    await clients.end()
    assert fleet.broken_promises() == []


# ---- in doubt --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def behind_proxy(
    start_fleet: StartFleet, url: str, redis_url: str
) -> AsyncIterator[tuple[Fleet, FaultyProxy, RetryingClient]]:
    """A server that reaches its database over a wire, and a client of it."""
    address = urlsplit(url)
    assert address.port is not None
    async with FaultyProxy(address.port).open() as proxy:
        netloc = address.netloc.replace(f":{address.port}", f":{proxy.port}")
        fleet = start_fleet(
            url, PEEKLOCK_DATABASE_URL=address._replace(netloc=netloc).geturl(), PEEKLOCK_REDIS_URL=redis_url
        )
        server = await fleet.serve()
        await fleet.create_queue(server.url)
        async with fleet.client(server.url) as retrying_client:
            yield fleet, proxy, retrying_client


def contains(*wanted: bytes) -> Callable[[bytes], bool]:
    """Whether a piece on the wire contains one of these."""
    return lambda piece: any(batch in piece for batch in wanted)


def token_spellings(token: str) -> tuple[bytes, bytes]:
    """A lock token as it travels to PostgreSQL and to MariaDB."""
    secret = bytes.fromhex(token.partition(".")[2])
    return secret, base64.b64encode(secret)


@pytest.mark.parametrize(
    "fixture",
    [
        pytest.param("postgres_url", marks=pytest.mark.faults),
        pytest.param("mariadb_url", marks=[pytest.mark.faults, pytest.mark.nightly]),
    ],
)
async def test_the_connection_is_lost_inside_commit(
    start_fleet: StartFleet, redis_url: str, request: pytest.FixtureRequest, fixture: str
) -> None:
    async with behind_proxy(start_fleet, request.getfixturevalue(fixture), redis_url) as (
        fleet,
        proxy,
        retrying_client,
    ):
        proxy.drop_answer_to(contains(b"COMMIT"))
        await retrying_client.send("m0", b"body")
        proxy.drop_answer_to(contains(b"unmistakable"))
        await retrying_client.send("m1", b"unmistakable", with_key=False)
        proxy.drop_answer_to(contains(b"COMMIT"))
        held = {
            message["message_id"]: message["lock_token"]
            for message in await retrying_client.receive_until_any(max_messages=2, lock_seconds=LONG_LOCK_SECONDS)
        }
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(held) < 2:
                held |= {
                    message["message_id"]: message["lock_token"]
                    for message in await retrying_client.receive_until_any(
                        max_messages=2, lock_seconds=LONG_LOCK_SECONDS
                    )
                }
        for verb, message_id in (("renew", "m0"), ("complete", "m0"), ("dead_letter", "m1")):
            proxy.drop_answer_to(contains(*token_spellings(held[message_id])))
            assert (await retrying_client.settle(verb, held[message_id]))[0] == 200
    assert proxy.drops >= 5
    assert {call.status for call in fleet.calls() if call.status >= 500} == {UNAVAILABLE}
    assert fleet.broken_promises() == []


# ---- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("fixture", ["postgres_url", "mariadb_url"])
async def test_the_clock_of_the_database_jumps_a_minute(
    start_fleet: StartFleet, redis_url: str, request: pytest.FixtureRequest, fixture: str
) -> None:
    """The stored times jump instead, which is the same to every comparison; a server's own clock cannot be set here."""
    url = request.getfixturevalue(fixture)
    fleet = start_fleet(url, PEEKLOCK_REDIS_URL=redis_url)
    servers = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(servers[0].url)
    clients = await fleet.start_clients(*(server.url for server in servers), messages=400)
    for sent, jump in ((80, MINUTE), (140, -MINUTE), (200, MINUTE), (260, MINUTE), (320, -MINUTE), (380, MINUTE)):
        await clients.until_sent(sent)
        await asyncio.to_thread(pass_time, url, jump)
    await clients.end()
    assert fleet.broken_promises(excused=EARLY) == []


# ---- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.faults
async def test_the_disk_of_a_sqlite_file_is_full(sqlite_fleet: Fleet) -> None:
    """No file of the server may grow, which SQLite meets like a full disk; then they may again."""
    server = await sqlite_fleet.serve()
    await sqlite_fleet.create_queue(server.url)
    process, log = psutil.Process(server.pid), f"{sqlite_fleet.database.removeprefix('sqlite:///')}-wal"
    async with sqlite_fleet.client(server.url) as retrying_client:
        await retrying_client.send("before", b"body")
        size = (await asyncio.to_thread(os.stat, log)).st_size
        process.rlimit(resource.RLIMIT_FSIZE, (size + 8192, resource.RLIM_INFINITY))
        sending = asyncio.create_task(retrying_client.send("meanwhile", bytes(100_000)))
        await wait_until(lambda: any(call.status >= 500 for call in sqlite_fleet.calls()), "a sender hears of it")
        process.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await sending
        await retrying_client.send("after", b"body")
        assert len(await retrying_client.receive_until_any(max_messages=3)) == 3
    assert {call.status for call in sqlite_fleet.calls() if call.status >= 500} == {UNAVAILABLE}
    assert sqlite_fleet.broken_promises() == []


FULL_DISK = (
    "CREATE FUNCTION say_full() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RAISE EXCEPTION ''could not extend file'' USING ERRCODE = ''disk_full''; END'",
    "CREATE TRIGGER full_disk BEFORE INSERT ON message EXECUTE FUNCTION say_full()",
)


@pytest.mark.faults
@pytest.mark.nightly
async def test_postgresql_says_that_its_disk_is_full(fleet: Fleet) -> None:
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    async with fleet.client(server.url) as retrying_client:
        await retrying_client.send("before", b"body")
        for statement in FULL_DISK:
            await asyncio.to_thread(execute, fleet.database, statement)
        sending = asyncio.gather(
            retrying_client.send("keyed", b"body"), retrying_client.send("plain", b"body", with_key=False)
        )
        await wait_until(lambda: sum(call.status >= 500 for call in fleet.calls()) >= 2, "both senders hear of it")
        await asyncio.to_thread(execute, fleet.database, "DROP FUNCTION say_full CASCADE")
        await sending
        assert len(await retrying_client.receive_until_any(max_messages=3)) == 3
    assert {call.status for call in fleet.calls() if call.status >= 500} == {UNAVAILABLE}
    assert fleet.broken_promises() == []
