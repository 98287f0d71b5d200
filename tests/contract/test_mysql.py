"""Particular to MariaDB and MySQL: literals, packets, numbering, lock waits, and servers with unusual settings."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from urllib.parse import urlsplit

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.instant import MINUTE
from app.domain.message import Envelope, MessageHeaders, MessageState
from app.domain.queue import QueueSettings
from app.domain.refusals import MessageTooLarge, StoreUnavailable
from app.runtime.clock import SystemClock
from app.store.in_use import DatabaseInUse
from app.store.migrate import migrate
from app.store.mysql.connect import Connector, driver_options
from app.store.mysql.session import MysqlSession
from app.store.mysql.store import UNSAFE_SETTINGS, MysqlStore, ServerTooOld, check_version
from app.store.mysql.templates import literal, numbers_json, rows_json, templates
from app.store.open import open_store
from app.store.pooled.pool import Pool
from app.store.shared.message_rows import ARCHIVED_COLUMNS
from app.store.shared.rows import Row
from tests.bounds import bounded
from tests.contract.store_fixture import MariadbFixture, abandonment, draft, numbers
from tests.databases import RunResources
from tests.server_drivers import DRIVERS
from tests.servers import POLL_SECONDS, TIMEOUT_SECONDS, MariaServer, ServerProcess

UNUSUAL_SETTINGS = (
    "--max-allowed-packet=1M",
    "--auto-increment-increment=3",
    "--auto-increment-offset=2",
    "--default-time-zone=+05:30",
    "--character-set-server=latin1",
    "--collation-server=latin1_german1_ci",
    "--sql-mode=NO_BACKSLASH_ESCAPES,ANSI_QUOTES",
    "--transaction-isolation=SERIALIZABLE",
    "--autocommit=0",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-doublewrite=0",
    "--group-concat-max-len=4",
    "--log-bin",
    "--binlog-format=ROW",
    "--sync-binlog=0",
)
"""Settings that no default has. Each would break a store that relied on the default."""

SMALL_DISK = "--innodb-data-file-path=ibdata1:12M:autoextend:max:24M"
LARGE_DISK = "--innodb-data-file-path=ibdata1:12M:autoextend:max:64M"

SLEEPING_QUERY = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%' AND db = DATABASE()"

SPECIAL_TEXT = "größer → 消息 🐇 'quoted' \"twice\" back\\slash %s :name -- ; "


@pytest.fixture(scope="module")
def unusual_url(run_resources: RunResources, require_server: Callable[[str], str]) -> Iterator[str]:
    """A database on a server with unusual settings."""
    require_server(MariaServer.kind)
    server = MariaServer(run_resources.new_directory(), *UNUSUAL_SETTINGS)
    server.start()
    yield with_tables(server)
    server.kill()


@pytest.fixture
async def store_fixture(mariadb_url: str) -> AsyncIterator[MariadbFixture]:
    """A store on an ordinary server."""
    async for store_fixture in opened_fixture(MariadbFixture(mariadb_url)):
        yield store_fixture


@pytest.fixture
async def unusual_fixture(unusual_url: str) -> AsyncIterator[MariadbFixture]:
    """A store on the server with unusual settings."""
    async for store_fixture in opened_fixture(MariadbFixture(unusual_url)):
        yield store_fixture


async def opened_fixture(store_fixture: MariadbFixture) -> AsyncIterator[MariadbFixture]:
    await store_fixture.open()
    yield store_fixture
    await store_fixture.close()


def with_tables(server: ServerProcess) -> str:
    """A new database on the server, with the current tables."""
    url = DRIVERS["mariadb"].create(server.url, "peeklock")
    migrate(url)
    return url


def admin_connection(url: str) -> closing[pymysql.Connection]:
    """A foreign connection that begins a transaction with its first statement."""
    parts = urlsplit(url)
    return closing(
        pymysql.connect(
            host=parts.hostname or "", port=parts.port or 0, user=parts.username, database=parts.path.strip("/")
        )
    )


async def wait_for_rows(store_fixture: MariadbFixture, question: str) -> None:
    """Return once the query yields a row."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            if await store_fixture.execute(question):
                return
            await asyncio.sleep(0.01)


async def run_on_session(url: str, work: Callable[[MysqlSession], Awaitable[None]]) -> None:
    """Run the work on a connection of its own."""
    session = await Connector(url)()
    try:
        await work(session)
    finally:
        await session.close()


# ---- values in the text of statements --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=20),
    blobs=st.lists(st.binary(), max_size=20),
    integers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
)
def test_a_literal_is_read_as_the_same_value(
    unusual_url: str, texts: list[str], blobs: list[bytes], integers: list[int]
) -> None:
    values = [None, SPECIAL_TEXT, b"\x00'\\\xff%", *texts, *blobs, *integers]

    async def work(session: MysqlSession) -> None:
        (answer,) = await session.execute(b"SELECT " + b", ".join(map(literal, values)))
        assert list(answer.rows[0]) == values

    asyncio.run(run_on_session(unusual_url, work))


def test_a_value_without_a_literal_is_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        literal(0.5)


# ---- unusual servers -------------------------------------------------------------------------------------------------


async def test_every_character_is_kept_in_a_database_with_another_charset(unusual_fixture: MariadbFixture) -> None:
    queue = await unusual_fixture.queue()
    envelope = Envelope(
        SPECIAL_TEXT,
        MessageHeaders(subject=SPECIAL_TEXT),
        group_id=SPECIAL_TEXT,
        properties=b'{"key": "\xe6\xb6\x88 \\" \'"}',
    )
    window = {"duplicate_window": MINUTE}
    await unusual_fixture.store.send([draft(queue, envelope=envelope, **window)])
    (repeat,) = await unusual_fixture.store.send([draft(queue, envelope=envelope, **window)])
    (message,) = await unusual_fixture.claim(queue, receiver_id=SPECIAL_TEXT)
    reason = {"last_failure": SPECIAL_TEXT, "dead_letter_reason": SPECIAL_TEXT, "dead_letter_description": SPECIAL_TEXT}
    buried = abandonment(message, state=MessageState.DEAD_LETTERED, properties=b'{"new": "\xe6\xb6\x88"}', **reason)
    await unusual_fixture.store.move([buried])
    now = await unusual_fixture.store.read(queue.id, message.sequence_number)
    assert now is not None
    assert (repeat.duplicate, message.envelope, message.receiver_id) == (True, envelope, SPECIAL_TEXT)
    assert (now.last_failure, now.dead_letter_reason, now.dead_letter_description) == (
        SPECIAL_TEXT,
        SPECIAL_TEXT,
        SPECIAL_TEXT,
    )
    assert now.envelope.properties == buried.properties


async def test_receipts_name_the_numbers_that_the_server_gave(unusual_fixture: MariadbFixture) -> None:
    queue = await unusual_fixture.queue()
    receipts = await unusual_fixture.store.send([draft(queue, message_id=f"{index}") for index in range(20)])
    stored = await unusual_fixture.execute("SELECT sequence_number, message_id FROM message ORDER BY sequence_number")
    assert [(receipt.sequence_number, receipt.message_id) for receipt in receipts] == stored


async def test_a_send_larger_than_a_packet_is_stored_whole_and_in_order(unusual_fixture: MariadbFixture) -> None:
    queue = await unusual_fixture.queue()
    bodies = [bytes([65 + index]) * 200_000 for index in range(20)]
    receipts = await unusual_fixture.store.send([draft(queue, body) for body in bodies])
    order = [receipt.sequence_number for receipt in receipts]
    messages = await unusual_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100)
    assert order == sorted(order) == numbers(messages)
    assert [message.body for message in messages] == bodies


async def test_a_message_larger_than_a_packet_is_refused_and_affects_no_other(
    unusual_fixture: MariadbFixture,
) -> None:
    queue = await unusual_fixture.queue()
    good, bad, other = await asyncio.gather(
        unusual_fixture.store.send([draft(queue, b"good")]),
        unusual_fixture.store.send([draft(queue, b"with it"), draft(queue, b"x" * 1_100_000)]),
        unusual_fixture.store.send([draft(queue, b"other")]),
        return_exceptions=True,
    )
    assert isinstance(bad, MessageTooLarge)
    assert not isinstance(good, BaseException)
    assert not isinstance(other, BaseException)
    assert sorted(message.body for message in await unusual_fixture.claim(queue)) == [b"good", b"other"]


async def test_changes_of_counts_are_folded(unusual_fixture: MariadbFixture) -> None:
    queue = await unusual_fixture.queue()
    for _ in range(3):
        await unusual_fixture.send(queue, b"body")
    await unusual_fixture.store.delete_expired(10)
    assert await unusual_fixture.execute("SELECT first_number, accepted FROM accepted_count") == [(0, 3)]


async def test_the_clock_ignores_the_time_zone(unusual_fixture: MariadbFixture) -> None:
    assert unusual_fixture.is_close(await unusual_fixture.store.now(), time.time_ns() // 1_000)


async def test_unsafe_server_settings_are_reported(
    unusual_fixture: MariadbFixture, store_fixture: MariadbFixture
) -> None:
    risks = await unusual_fixture.store.durability_risks()
    assert await unusual_fixture.store.acquire_exclusive() == risks == list(UNSAFE_SETTINGS.values())
    assert await store_fixture.store.acquire_exclusive() == []


@pytest.mark.parametrize(
    "version", ["8.0.11", "9.4.0", "10.8.2-MariaDB", "5.5.5-10.11.6-MariaDB-log", "11.4.2-MariaDB"]
)
def test_a_supported_server_version_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["5.7.44-log", "10.6.21-MariaDB", "5.5.5-10.5.28-MariaDB", "5.5.68-MariaDB"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(ServerTooOld, match="at least"):
        check_version(version)


def test_an_unknown_url_option_is_refused() -> None:
    known = driver_options(f"mysql://me:p%40ss@db:3307/queues?ssl_ca={__file__}&ssl_check_hostname=false")
    assert (known["password"], known["port"]) == ("p@ss", 3307)
    assert known["ssl"] == {"ca": __file__, "check_hostname": False}
    # Without a port the driver uses the default one. A transaction begins only when a statement says so.
    assert (driver_options("mysql://db/queues")["port"], known["autocommit"]) == (0, True)
    with pytest.raises(ValueError, match=r"cannot be read: ssl_ca=/nowhere/ca\.pem"):
        driver_options("mysql://db/queues?ssl_ca=/nowhere/ca.pem")
    with pytest.raises(ValueError, match="tls_mode"):
        driver_options("mysql://db/queues?tls_mode=verify")


# ---- lock waits ------------------------------------------------------------------------------------------------------


async def test_deadlocked_transactions_both_complete(store_fixture: MariadbFixture, mariadb_url: str) -> None:
    queue = await store_fixture.queue()
    first, second = await store_fixture.send(queue, b"first", b"second")
    pool = Pool(Connector(mariadb_url), 2)
    both_hold_one = asyncio.Barrier(2)
    tries: list[int] = []

    async def touch(session: MysqlSession, one: int, other: int) -> None:
        tries.append(one)
        await session.change("change_priority", sequence_number=one, priority=5)
        if len(tries) <= 2:
            await both_hold_one.wait()
        await session.change("change_priority", sequence_number=other, priority=5)

    await asyncio.gather(
        pool.transaction(lambda session: touch(session, first, second)),
        pool.transaction(lambda session: touch(session, second, first)),
    )
    await pool.close()
    assert len(tries) == 3


async def test_a_caller_cancelled_during_a_statement_leaves_no_broken_connection(
    store_fixture: MariadbFixture, mariadb_url: str
) -> None:
    pool = Pool(Connector(mariadb_url), 1)
    sleeping = asyncio.create_task(pool.run(lambda session: session.execute(b"SELECT SLEEP(10), 'stale'")))
    await wait_for_rows(store_fixture, SLEEPING_QUERY)
    sleeping.cancel()
    await asyncio.wait([sleeping])
    answers = await pool.run(lambda session: session.execute(b"SELECT 'fresh'"))
    await pool.close()
    assert answers[0].rows == (("fresh",),)


# ---- plans -----------------------------------------------------------------------------------------------------------


async def test_a_claim_reads_only_the_entries_that_it_locks(store_fixture: MariadbFixture, mariadb_url: str) -> None:
    queue = await store_fixture.queue()
    await store_fixture.send(queue, *[b""] * 1000)
    columns = ", ".join(column for column in ARCHIVED_COLUMNS if column != "sequence_number")
    columns += ", state, home_state, lock_generation"
    doubled = columns.replace("priority", "(priority + 1) % 10")
    for _ in range(5):
        await store_fixture.execute(f"INSERT INTO message ({columns}) SELECT {doubled} FROM message")
    await store_fixture.execute("ANALYZE TABLE message")

    async def work(session: MysqlSession) -> None:
        await session.execute(b"FLUSH STATUS")
        assert len(await session.fetch("next_available", queue_id=queue.id, limit=10)) == 10
        (read,) = await session.execute(b"SHOW SESSION STATUS LIKE 'Handler_read%'")
        (sorts,) = await session.execute(b"SHOW SESSION STATUS LIKE 'Sort_rows'")
        assert sum(int(count) for _, count in read.rows) <= 20
        assert sorts.rows[0][1] == "0"

    await run_on_session(mariadb_url, work)


INDEX_LOOKUP = re.compile(rb"\b(FROM|JOIN|UPDATE) (message|recent_id AS known)\b")
ANY_VALUE = {
    "rows": rows_json([{"place": 0, "sequence_number": 1, "queue_id": 1, "lock_token": b"x" * 16, "message_id": "id"}]),
    "key": b"k" * 32,
    "lock_token": b"x" * 16,
    "group_id": "a",
    "numbers": [1, 2, 3],
    "queue_ids": [1, 2, 3],
}
MAY_SCAN = {
    *("promote", "block", "dead_letter", "redrive", "delete_messages", "archive_messages", "group_ids"),
    *("properties_of", "end_deliveries"),
}
"""Statements that may read all of a small table: those of background loops, and some about messages that their own
transaction has locked.
"""

SORTS = {"available_in_group"}
"""Statements that sort the messages that one group has in flight."""


@pytest.mark.parametrize("messages", [0, 2000])
async def test_every_plan_finds_messages_by_an_index(
    store_fixture: MariadbFixture, mariadb_url: str, messages: int
) -> None:
    queue = await store_fixture.queue()
    if messages:
        await store_fixture.send(queue, *[b""] * 1000)
        await store_fixture.send(queue, *[b""] * 1000)
    await store_fixture.execute("ANALYZE TABLE message")

    async def work(session: MysqlSession) -> None:
        looking = {name: statement for name, statement in templates().items() if INDEX_LOOKUP.search(statement.text)}
        assert len(looking) > 25
        for name, statement in looking.items():
            values = {value: ANY_VALUE.get(value, 1) for value in statement.names}
            if b"JSON_TABLE(%s" in statement.text and "numbers" in values:
                values["numbers"] = numbers_json([1, 2, 3])
            (plan,) = await session.execute(b"EXPLAIN " + statement.render(values))
            walked = [row for row in plan.rows if row[2] in ("message", "m", "known") and is_full_scan(row)]
            assert not walked or name in SORTS or (name in MAY_SCAN and not messages), (name, walked)

    await run_on_session(mariadb_url, work)


def is_full_scan(row: Row) -> bool:
    """Return whether a row of a plan reads a whole table or sorts its input."""
    return row[3] in ("ALL", "index") or "filesort" in (row[9] or "") or "join buffer" in (row[9] or "")


# ---- lock on the database --------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[MysqlStore]:
    """Open the database once more, as another process does."""
    store = await open_store(url, SystemClock())
    assert isinstance(store, MysqlStore)
    try:
        yield store
    finally:
        await store.close()


async def test_one_process_without_redis_locks_the_database_exclusively(mariadb_url: str) -> None:
    async with opened(mariadb_url) as one, opened(mariadb_url) as other:
        assert await when_free(one.acquire_exclusive) == []
        with pytest.raises(DatabaseInUse, match="Redis"):
            await other.acquire_exclusive()
        with pytest.raises(DatabaseInUse, match="Redis"):
            await other.acquire_shared()


async def test_processes_with_redis_share_the_database_but_not_with_one_without(mariadb_url: str) -> None:
    async with opened(mariadb_url) as one, opened(mariadb_url) as other, opened(mariadb_url) as third:
        await when_free(one.acquire_shared)
        await other.acquire_shared()
        with pytest.raises(DatabaseInUse):
            await third.acquire_exclusive()


async def test_a_lost_lock_on_the_database_is_taken_again(store_fixture: MariadbFixture, mariadb_url: str) -> None:
    async with opened(mariadb_url) as one, opened(mariadb_url) as other:
        await when_free(one.acquire_exclusive)
        await end_connections(store_fixture)
        await eventually(one.now)
        with pytest.raises(DatabaseInUse):
            await eventually(other.acquire_exclusive)


async def test_a_store_is_unavailable_while_another_process_has_taken_its_lock(
    store_fixture: MariadbFixture, mariadb_url: str
) -> None:
    async with opened(mariadb_url) as one:
        await when_free(one.acquire_exclusive)
        async with opened(mariadb_url) as other:
            await end_connections(store_fixture)
            await eventually(other.acquire_exclusive)
            with pytest.raises(StoreUnavailable, match="Redis"):
                await one.now()
        await eventually(one.now)


async def end_connections(store_fixture: MariadbFixture) -> None:
    """Let the server end every connection except the one that requests it."""
    others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    for (connection,) in await store_fixture.execute(others):
        await store_fixture.execute(f"KILL {connection}")


async def when_free(acquire: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """Take the lock on the database once the server has ended the connections of the test before."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            with suppress(DatabaseInUse):
                return await acquire()
            await asyncio.sleep(POLL_SECONDS)


async def eventually(action: Callable[[], Awaitable[object]]) -> None:
    """Retry until the lost connections have been noticed."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                await action()
            except StoreUnavailable:
                await asyncio.sleep(POLL_SECONDS)
            else:
                return


# ---- servers that fail -----------------------------------------------------------------------------------------------


async def test_a_full_disk_loses_nothing_and_heals(
    private_server: Callable[..., ServerProcess], run_resources: RunResources
) -> None:
    server = await asyncio.to_thread(private_server, MariaServer, "--innodb-file-per-table=0", SMALL_DISK)
    store = await open_store(await asyncio.to_thread(with_tables, server), SystemClock())
    queue, _ = await store.queues.create("filled", QueueSettings())
    stored: list[int] = []

    async def fill() -> None:
        for _ in bounded("the disk is full"):
            stored.extend(receipt.sequence_number for receipt in await store.send([draft(queue, b"x" * 200_000)]))

    with pytest.raises(StoreUnavailable, match="full"):
        await fill()
    await asyncio.to_thread(server.kill)
    with pytest.raises(StoreUnavailable):
        await store.now()
    server.options = ("--innodb-file-per-table=0", LARGE_DISK)
    await asyncio.to_thread(server.start)
    assert numbers(await store.browse(queue.id, [MessageState.AVAILABLE], 0, 1000)) == stored
    assert await store.send([draft(queue, b"x" * 200_000)])
    await store.close()


async def test_a_read_only_server_is_unavailable_until_it_accepts_writes(
    unusual_fixture: MariadbFixture, unusual_url: str
) -> None:
    parts = urlsplit(unusual_url)
    await unusual_fixture.execute("CREATE OR REPLACE USER clerk IDENTIFIED BY ''")
    await unusual_fixture.execute("GRANT ALL ON peeklock.* TO clerk")
    store = await open_store(unusual_url.replace(f"{parts.username}@", "clerk@"), SystemClock())
    queue = await unusual_fixture.queue()
    await unusual_fixture.execute("SET GLOBAL read_only = 1")
    with pytest.raises(StoreUnavailable, match="accepts no writes"):
        await store.send([draft(queue)])
    with pytest.raises(StoreUnavailable, match="accepts no writes"):
        await store.check_writable()
    await unusual_fixture.execute("SET GLOBAL read_only = 0")
    await store.check_writable()
    assert await store.send([draft(queue)])
    await store.close()
