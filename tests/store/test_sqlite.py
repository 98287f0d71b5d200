"""Particular to SQLite: one process, one writer, few commits, and errors that are reported and temporary."""

import asyncio
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.domain.instant import HOUR
from app.domain.message import MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import Overloaded, StoreUnavailable
from app.domain.weight import MAX_RESPONSE_BYTES
from app.store.in_use import FileInUse
from app.store.migrate import migrate
from app.store.open import create_tables
from app.store.shared.statements import Statement
from app.store.sqlite.database import WRITE_LIMITS, Step, Transaction
from app.store.sqlite.dialect import DIALECT
from app.store.sqlite.file import FileLock, translate_errors
from app.store.sqlite.store import SqliteStore, open_sqlite
from tests.contract.store_fixture import LOCK_DURATION, bodies, claim, completion, draft, token
from tests.databases import RunResources
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import VirtualClock, run_ready_tasks
from tests.walks import for_each

Batches = list[tuple[str, int]]


@pytest.fixture
def path(run_resources: RunResources, tmp_path: Path) -> Path:
    """A file with tables."""
    return Path(shutil.copy(run_resources.sqlite_template(), tmp_path / "peeklock.sqlite3"))


@pytest.fixture
def batches() -> Batches:
    """The batches that the store reports."""
    return []


@pytest.fixture
async def store(path: Path, batches: Batches) -> AsyncIterator[SqliteStore]:
    """A store on the file."""
    store = await open_sqlite(
        path, VirtualClock(), lambda name, entries: batches.append((name, entries)), create_tables
    )
    yield store
    await store.close()


@pytest.fixture
async def queue(store: SqliteStore) -> Queue:
    """A queue with nothing in it."""
    return (await store.queues.create("queue", QueueSettings()))[0]


# ---- file modes ------------------------------------------------------------------------------------------------------


def modes(directory: Path) -> dict[str, int]:
    """Return the mode of each file."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()}


async def test_only_the_owner_can_read_the_files_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite3"
    before = os.umask(0)
    try:
        migrate(f"sqlite:///{path}")
        store = await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
        await store.queues.create("queue", QueueSettings())
        files = modes(tmp_path)
        await store.close()
    finally:
        os.umask(before)
    assert files == {f"new.sqlite3{end}": 0o600 for end in ("", "-wal", "-shm", ".lock")}


async def test_only_the_owner_can_read_a_newly_created_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = await open_sqlite(tmp_path / "new.sqlite3", VirtualClock(), lambda *_: None, create_tables)
        await store.close()
    finally:
        os.umask(before)
    assert modes(tmp_path) == {"new.sqlite3": 0o600, "new.sqlite3.lock": 0o600}


async def test_another_program_that_reads_leaves_the_write_ahead_log(
    store: SqliteStore, queue: Queue, path: Path
) -> None:
    counts: list[int] = []
    for _ in range(3):
        await store.send([draft(queue)])
        counts.append(count_in_other_process(path))
    assert counts == [1, 2, 3]


def count_in_other_process(path: Path) -> int:
    """Count the messages that another program finds in the file."""
    code = (
        "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('SELECT COUNT(*) FROM message').fetchone())"
    )
    return int(subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True).stdout)


# ---- one process -----------------------------------------------------------------------------------------------------


async def test_a_file_has_one_store(store: SqliteStore, path: Path) -> None:
    with pytest.raises(FileInUse, match=r"in use by process .* one process at a time"):
        await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    await store.close()
    again = await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    with pytest.raises(FileInUse, match=rf"in use by process {os.getpid()}\."):
        await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    await again.close()


@pytest.mark.usefixtures("store")
async def test_a_symbolic_link_names_the_same_file(path: Path) -> None:
    link = path.with_name("link.sqlite3")
    link.symlink_to(path)
    with pytest.raises(FileInUse, match="in use by process"):
        await open_sqlite(link, VirtualClock(), lambda *_: None, create_tables)


def test_a_file_system_without_locks_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreUnavailable, match="cannot be locked: No locks available"):
        FileLock(path)


def test_a_lock_file_that_cannot_be_made_is_reported(path: Path) -> None:
    path.with_name(f"{path.name}.lock").mkdir()
    with pytest.raises(StoreUnavailable, match=r"\.lock cannot be opened: Is a directory"):
        FileLock(path)


async def test_a_file_with_a_second_name_is_refused_under_both(path: Path) -> None:
    link = path.with_name("link.sqlite3")
    link.hardlink_to(path)
    for name in (path, link):
        with pytest.raises(StoreUnavailable, match=r"has 2 names \(hard links\)"):
            await open_sqlite(name, VirtualClock(), lambda *_: None, create_tables)
        with pytest.raises(StoreUnavailable, match=r"has 2 names \(hard links\)"):
            migrate(f"sqlite:///{name}")
    link.unlink()
    await (await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)).close()


def move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def remove_lock_file(path: Path) -> None:
    path.with_name(f"{path.name}.lock").unlink()


def move_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def remove_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def replace_log(path: Path) -> None:
    replace(path.with_name(f"{path.name}-wal"))


LOSSES = [Path.unlink, move_away, replace, remove_lock_file, move_directory, remove_log, replace_log]


async def test_what_a_removed_write_ahead_log_had_is_in_the_file_after_a_stop(store: SqliteStore, path: Path) -> None:
    queue, _ = await store.queues.create("queue", QueueSettings())
    await store.send([draft(queue)])
    remove_log(path)
    with pytest.raises(StoreUnavailable, match="restart the server"):
        await store.send([draft(queue)])
    await store.close()
    again = await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    assert len(await again.browse(queue.id, list(MessageState), 0, 10)) == 1
    await again.close()


async def test_a_log_that_the_last_connection_has_removed_is_no_loss(store: SqliteStore, path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await store.database.write(Step(lambda transaction: transaction._connection.execute("SELECT * FROM absent")))
    assert not path.with_name(f"{path.name}-wal").exists()
    queue, _ = await store.queues.create("queue", QueueSettings())
    await store.send([draft(queue)])


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_file_that_is_not_at_its_path_any_more_serves_nothing(
    store: SqliteStore, queue: Queue, path: Path, lose: Callable[[Path], object]
) -> None:
    await store.read(queue.id, 1)
    lose(path)
    for refused in (
        store.send([draft(queue)]),
        store.claim(claim(queue)),
        store.read(queue.id, 1),
        store.now(),
        store.check_writable(),
    ):
        with pytest.raises(StoreUnavailable, match="moved, replaced or removed while it was served"):
            await refused


async def test_a_file_that_was_away_is_served_only_after_a_restart(
    store: SqliteStore, queue: Queue, path: Path
) -> None:
    move_away(path)
    with pytest.raises(StoreUnavailable, match="restart the server"):
        await store.send([draft(queue)])
    path.with_name("elsewhere").rename(path)
    with pytest.raises(StoreUnavailable, match="restart the server"):
        await store.send([draft(queue)])
    await store.close()
    again = await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    await again.send([draft(queue)])
    await again.close()


async def test_a_symbolic_link_that_leads_elsewhere_serves_nothing(path: Path, run_resources: RunResources) -> None:
    link = path.with_name("link.sqlite3")
    link.symlink_to(path)
    store = await open_sqlite(link, VirtualClock(), lambda *_: None, create_tables)
    other = shutil.copy(run_resources.sqlite_template(), path.with_name("other.sqlite3"))
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(StoreUnavailable, match="moved, replaced or removed"):
        await store.now()
    await store.close()


async def test_a_commit_into_a_file_that_was_removed_meanwhile_is_not_confirmed(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="moved, replaced or removed"):
        await store.database.write(Step(lambda _transaction: path.unlink()))


def test_another_process_is_refused_until_the_first_ends(path: Path) -> None:
    serve = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from app.runtime.clock import SystemClock\n"
        "from app.store.open import create_tables\n"
        "from app.store.sqlite.store import open_sqlite\n"
        "async def main():\n"
        "    await open_sqlite(Path(sys.argv[1]), SystemClock(), lambda *_: None, create_tables)\n"
        "    print('open', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", serve, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
        assert second.returncode != 0
        assert f"in use by process {first.pid}" in second.stderr
        first.kill()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as third:
        assert third.stdout is not None
        assert third.stdout.readline() == "open\n"
        third.kill()


# ---- one writer ------------------------------------------------------------------------------------------------------


async def test_a_commit_is_on_the_disk_when_it_returns(store: SqliteStore) -> None:
    def settings(connection: sqlite3.Connection) -> tuple[str, int]:
        ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
        ((synchronous,),) = connection.execute("PRAGMA synchronous").fetchall()
        return mode, synchronous

    assert await store.database.call_on_writer(settings) == ("wal", 2)


async def test_the_log_shrinks_again_after_a_long_read(store: SqliteStore) -> None:
    def limit(connection: sqlite3.Connection) -> int:
        ((bytes_left,),) = connection.execute("PRAGMA journal_size_limit").fetchall()
        return bytes_left

    assert await store.database.call_on_writer(limit) == 64 << 20


@pytest.mark.behaviour("S3.6")
async def test_concurrent_writes_share_a_commit(store: SqliteStore, queue: Queue, batches: Batches) -> None:
    batches.clear()
    await asyncio.gather(*(store.send([draft(queue)]) for _ in range(64)))
    assert batches == [("write", 64)]
    messages = await store.claim(claim(queue, 64))
    batches.clear()
    await asyncio.gather(
        *(store.remove([completion(queue, message)]) for message in messages[:32]),
        *(store.send([draft(queue)]) for _ in range(16)),
        store.promote(10),
        store.queues.create("another", QueueSettings()),
    )
    # A write that begins with a read comes a little later.
    assert len(batches) <= 2
    assert sum(entries for _, entries in batches) == 32 + 16 + 1 + 1


class SlowStep:
    """The work of a step that runs until the test lets it end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.has_begun = asyncio.Event()
        self.may_end = threading.Event()

    def __call__(self, _transaction: Transaction) -> None:
        self._loop.call_soon_threadsafe(self.has_begun.set)
        assert self.may_end.wait(60)


async def test_writes_during_a_commit_share_the_next_one(store: SqliteStore, queue: Queue, batches: Batches) -> None:
    batches.clear()
    slow = SlowStep()
    writes: list[asyncio.Future[Any]] = [asyncio.ensure_future(store.database.write(Step(slow)))]
    await slow.has_begun.wait()
    for _ in range(3):
        writes.append(asyncio.ensure_future(store.send([draft(queue)])))
        for _ in range(3):  # a batch starts in the turn after its first caller submitted
            await asyncio.sleep(0)
    slow.may_end.set()
    await asyncio.gather(*writes)
    assert batches == [("write", 1), ("write", 3)]


@pytest.mark.parametrize(("weight", "commits"), [(MAX_RESPONSE_BYTES, [3, 2, 1]), (MAX_RESPONSE_BYTES - 1, [3, 1])])
async def test_steps_after_a_full_response_run_in_the_next_commit(
    store: SqliteStore, batches: Batches, weight: int, commits: list[int]
) -> None:
    def answer(transaction: Transaction) -> str:
        transaction.result_weight += weight
        return "done"

    batches.clear()
    assert await asyncio.gather(*(store.database.write(Step(answer)) for _ in range(3))) == ["done"] * 3
    assert batches == [("write", entries) for entries in commits]


async def test_a_step_is_refused_while_the_queue_of_steps_is_full(store: SqliteStore) -> None:
    slow = SlowStep()
    under_way = asyncio.ensure_future(store.database.write(Step(slow)))
    await slow.has_begun.wait()
    waiting = asyncio.ensure_future(
        store.database.write(Step(lambda _: "done", weight=WRITE_LIMITS.max_waiting_weight))
    )
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await store.database.write(Step(lambda _: "not done", weight=1))
    slow.may_end.set()
    await under_way
    assert await waiting == "done"


async def test_a_bug_in_one_step_fails_only_its_caller(store: SqliteStore, queue: Queue) -> None:
    def mistaken(transaction: Transaction) -> None:
        transaction.execute("dead_letter", numbers=[1], reason="left from a step that failed")
        raise LookupError("a mistake")

    await store.send([draft(queue, b"first")])
    sends = [store.send([draft(queue, b"good")]) for _ in range(5)]
    *receipts, error = await asyncio.gather(*sends, store.database.write(Step(mistaken)), return_exceptions=True)
    assert isinstance(error, LookupError)
    assert all(isinstance(receipt, list) for receipt in receipts)
    assert bodies(await store.claim(claim(queue))) == [b"first", *[b"good"] * 5]


async def test_readers_see_committed_data_and_wait_for_no_writer(store: SqliteStore, queue: Queue) -> None:
    (receipt,) = await store.send([draft(queue)])
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slowly(transaction: Transaction) -> None:
        transaction.execute("dead_letter", numbers=[receipt.sequence_number], reason="why")
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(10)

    writing = asyncio.ensure_future(store.database.write(Step(slowly)))
    await begun.wait()
    before = await store.read(queue.id, receipt.sequence_number)
    go_on.set()
    await writing
    after = await store.read(queue.id, receipt.sequence_number)
    assert before is not None
    assert after is not None
    assert (before.state, after.state) == (MessageState.AVAILABLE, MessageState.DEAD_LETTERED)


async def test_sequential_reads_use_one_connection(
    store: SqliteStore, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    def record_connection(connection: sqlite3.Connection) -> sqlite3.Connection:
        opened.append(connection)
        return connection

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *where, **how: record_connection(connect(*where, **how)))
    for _ in range(3):
        await store.read(queue.id, 1)
    assert len(opened) <= 1


async def test_time_comes_from_the_given_clock(path: Path) -> None:
    clock = VirtualClock()
    store = await open_sqlite(path, clock, lambda *_: None, create_tables)
    assert await store.now() == clock.now()
    await clock.advance(3600)
    assert await store.now() == clock.now()
    await store.close()


async def test_the_work_of_a_transaction_may_await_only_its_session(store: SqliteStore) -> None:
    with pytest.raises(RuntimeError, match="has awaited something"):
        await store.database.transaction(lambda _session: asyncio.sleep(0))


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["in a file", "in memory"])
async def test_a_full_disk_is_reported_until_space_returns(path: Path, storage: str) -> None:
    store = await open_sqlite(path if storage == "in a file" else None, VirtualClock(), lambda *_: None, create_tables)
    queue, _ = await store.queues.create("queue", QueueSettings())
    await store.send([draft(queue, b"before")])

    def leave_no_room(connection: sqlite3.Connection) -> None:
        ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {pages}")

    await store.database.call_on_writer(leave_no_room)
    sends = [store.send([draft(queue, b"x" * 100_000)]) for _ in range(4)]
    for error in await asyncio.gather(*sends, return_exceptions=True):
        assert isinstance(error, StoreUnavailable)
        assert "full" in str(error)
    await store.send([draft(queue, b"after")])
    assert bodies(await store.claim(claim(queue))) == [b"before", b"after"]
    await store.close()


async def test_a_store_whose_disk_is_full_is_not_writable_until_space_returns() -> None:
    store = await open_sqlite(None, VirtualClock(), lambda *_: None, create_tables)
    await store.check_writable()
    queue, _ = await store.queues.create("queue", QueueSettings())

    def allow_pages(connection: sqlite3.Connection, more: int) -> None:
        ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {pages + more}")

    await store.database.call_on_writer(partial(allow_pages, more=0))

    async def fill() -> None:
        for _ in range(1000):
            await store.send([draft(queue, b"x" * 10_000)])

    with pytest.raises(StoreUnavailable, match="full"):
        await fill()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="full"):
            await store.check_writable()
    await store.database.call_on_writer(partial(allow_pages, more=1000))
    await store.check_writable()
    await store.close()


async def test_a_file_that_may_not_be_written_is_not_writable(store: SqliteStore) -> None:
    await store.check_writable()
    await store.database.call_on_writer(lambda connection: connection.execute("PRAGMA query_only = ON"))
    with pytest.raises(StoreUnavailable, match="may not be written"):
        await store.check_writable()
    await store.check_writable()  # over a new connection


async def test_a_lock_of_another_program_is_reported_until_it_ends(
    store: SqliteStore, queue: Queue, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def set_short_busy_timeout(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA busy_timeout = 10")

    await store.database.call_on_writer(set_short_busy_timeout)
    with pytest.raises(StoreUnavailable, match="locked by another program"):
        await store.send([draft(queue)])
    assert await store.now() > 0
    other.execute("ROLLBACK")
    other.close()
    await store.send([draft(queue)])
    assert len(await store.claim(claim(queue))) == 1


def damage(path: Path, start: int) -> None:
    """Write over the first page of the file, from here on."""
    page = bytearray(path.read_bytes())
    page[start:4096] = b"?" * (4096 - start)
    path.write_bytes(page)


@pytest.mark.parametrize("start", [0, 100], ids=["no database", "a database with a damaged schema"])
async def test_a_damaged_file_is_reported_on_open(path: Path, start: int) -> None:
    damage(path, start)
    with pytest.raises(StoreUnavailable, match="damaged"):
        await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    # The refusal releases the file.
    with pytest.raises(StoreUnavailable, match="damaged"):
        await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)


class WithoutWal(sqlite3.Connection):
    """A connection to a file on a file system that allows no write-ahead log."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql.replace("PRAGMA journal_mode = WAL", "PRAGMA journal_mode = DELETE"), parameters)


async def test_a_file_system_without_a_write_ahead_log_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=WithoutWal))
    with pytest.raises(StoreUnavailable, match="allows no write-ahead log, only delete"):
        await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)


def test_each_variant_of_a_file_error_is_reported() -> None:
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    with pytest.raises(StoreUnavailable, match="cannot be read or written"), translate_errors():
        raise failure


async def test_a_bug_in_a_statement_is_not_reported_as_unavailable(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await store.database.call_on_writer(lambda connection: connection.execute("SELECT * FROM absent"))
    with pytest.raises(sqlite3.ProgrammingError, match="binding"):
        await store.database.fetch("read")


async def test_messages_claimed_for_a_cancelled_caller_are_released_on_close(path: Path) -> None:
    clock = VirtualClock()
    store = await open_sqlite(path, clock, lambda _what, _how_many: None, create_tables)
    queue, _ = await store.queues.create("orders", QueueSettings())
    await store.send([draft(queue)])
    notified: list[Sequence[bool]] = []
    store.on_moved = lambda _moves, effective: notified.append(effective)
    slow = SlowStep()
    claiming = asyncio.create_task(store.claim(claim(queue)))
    others = asyncio.gather(store.database.write(Step(slow)), store.close())
    await slow.has_begun.wait()
    claiming.cancel()
    slow.may_end.set()
    await others
    assert notified == [[True]]
    again = await open_sqlite(path, clock, lambda _what, _how_many: None, create_tables)
    (message,) = await again.browse(queue.id, list(MessageState), 0, 10)
    await again.close()
    assert message.state is MessageState.AVAILABLE


async def test_a_closed_store_is_unavailable(store: SqliteStore, queue: Queue) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.send([draft(queue)])
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read(queue.id, 1)
    await store.close()


async def test_requests_before_close_are_completed(path: Path) -> None:
    clock = VirtualClock()
    store = await open_sqlite(path, clock, lambda *_: None, create_tables)
    queue, _ = await store.queues.create("queue", QueueSettings())
    sends = [asyncio.ensure_future(store.send([draft(queue)])) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert all(receipt.sequence_number for (receipt,) in await asyncio.gather(*sends))
    again = await open_sqlite(path, clock, lambda *_: None, create_tables)
    assert len(await again.claim(claim(queue))) == 20
    await again.close()


async def test_a_closed_store_leaves_no_thread_and_no_connection(path: Path) -> None:
    threads = set(threading.enumerate())
    store = await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    queue, _ = await store.queues.create("queue", QueueSettings())
    await store.read(queue.id, 1)
    await store.close()
    assert set(threading.enumerate()) <= threads
    # The last connection that is closed removes the log.
    assert not path.with_name(f"{path.name}-wal").exists()


async def test_all_work_on_the_writer_runs_in_one_thread(store: SqliteStore) -> None:
    first_may_end = threading.Event()

    def first(_writer: sqlite3.Connection) -> int:
        first_may_end.wait()
        return threading.get_ident()

    work = (first, lambda _writer: threading.get_ident())
    running = [asyncio.ensure_future(store.database.call_on_writer(action)) for action in work]
    await run_ready_tasks()
    first_may_end.set()
    assert len(set(await asyncio.gather(*running))) == 1


async def test_a_write_during_close_is_committed_before_the_file_is_closed(path: Path) -> None:
    store = await open_sqlite(path, VirtualClock(), lambda *_: None, create_tables)
    queue, _ = await store.queues.create("orders", QueueSettings())
    await store.send([draft(queue)])
    late: list[asyncio.Future[Any]] = []
    store.on_moved = lambda _moves, _effective: late.append(asyncio.ensure_future(store.send([draft(queue)])))
    slow = SlowStep()
    claiming = asyncio.create_task(store.claim(claim(queue)))
    others = asyncio.gather(store.database.write(Step(slow)), store.close())
    await slow.has_begun.wait()
    claiming.cancel()
    slow.may_end.set()
    await others
    assert [len(await sending) for sending in late] == [1]
    assert not path.with_name(f"{path.name}-wal").exists()


async def test_calls_during_close_complete_or_are_refused_and_leak_nothing(
    store: SqliteStore, queue: Queue, path: Path
) -> None:
    closing = asyncio.ensure_future(store.close())
    sends: list[asyncio.Future[Any]] = []
    while not closing.done():
        sends.append(asyncio.ensure_future(store.send([draft(queue)])))
        await asyncio.sleep(0)
    for end in await asyncio.gather(*sends, return_exceptions=True):
        assert isinstance(end, list | StoreUnavailable)
    assert not path.with_name(f"{path.name}-wal").exists()


async def test_a_cancelled_commit_reports_that_the_store_was_closed(store: SqliteStore) -> None:
    tasks, slow = asyncio.all_tasks(), SlowStep()
    writing = asyncio.ensure_future(store.database.write(Step(slow)))
    await slow.has_begun.wait()
    for task in asyncio.all_tasks() - tasks - {writing}:  # as the end of an event loop does
        task.cancel()
    with pytest.raises(StoreUnavailable, match="closed in the middle of a transaction"):
        await writing
    slow.may_end.set()


@pytest.mark.behaviour("S3.32")
async def test_all_data_survives_a_restart(path: Path) -> None:
    clock = VirtualClock()
    store = await open_sqlite(path, clock, lambda *_: None, create_tables)
    queue, _ = await store.queues.create("queue", QueueSettings())
    await store.send([draft(queue, b"locked"), draft(queue, b"available"), draft(queue, b"scheduled", delay=HOUR)])
    (locked,) = await store.claim(claim(queue, 1))
    before = await store.browse(queue.id, list(MessageState), 0, 10)
    await store.close()
    again = await open_sqlite(path, clock, lambda *_: None, create_tables)
    assert await again.browse(queue.id, list(MessageState), 0, 10) == before
    assert (await again.locked_messages([token(locked)]))[0] is not None
    assert locked.locked_until == clock.now() + LOCK_DURATION
    assert await again.remove([completion(queue, locked)]) == [True]
    await again.close()


# ---- query plans -----------------------------------------------------------------------------------------------------

IN_ORDER = {
    "next_available",
    "next_dead_lettered",
    "candidates",
    "expired_locks",
    "due",
    "until_next_due",
    "locks_of_queue",
}


@for_each("statement", DIALECT.statements.values(), lambda statement: statement.name)
async def test_no_statement_reads_all_messages(store: SqliteStore, statement: Statement) -> None:
    def plan(connection: sqlite3.Connection) -> list[str]:
        _, names = statement.with_numbered_params()
        values = dict.fromkeys(names, 1) | {"numbers": [1], "queue_ids": [1]}
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", values)]

    steps = await store.database.call_on_writer(plan)
    # Scanning an index that holds every message is as bad. A recursive look-up of queue ids searches it.
    full_scans = [step for step in steps if step.startswith("SCAN message")]
    assert full_scans == []
    # The first column of this index has two values.
    assert [step for step in steps if "message_group" in step and "queue_id=?" not in step] == []
    if statement.name in IN_ORDER:
        assert not any("TEMP B-TREE" in step for step in steps)
