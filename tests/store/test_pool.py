"""The pool lends connections in turn, repeats conflicts and replaces broken connections, for any engine."""

import asyncio
from typing import Any

import pytest

from app.domain.refusals import StoreUnavailable
from app.store.pooled.pool import MAX_TRIES, Pool, TransactionConflict
from app.store.shared.database import DiskNotWritable, NotWritable


class Connection:
    """A connection that gives prepared answers."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self.is_usable = True
        self.is_open = True
        self.has_left = False
        self.cannot_leave: BaseException | None = None
        self.ran: list[str] = []

    async def fetch(self, name: str, /, **values: Any) -> Any:
        await asyncio.sleep(0)
        self.ran.append(name)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def change(self, name: str, /, **values: Any) -> int:
        return await self.fetch(name)

    async def begin(self) -> None:
        await self.fetch("begin")

    async def commit(self) -> None:
        await self.fetch("commit")

    async def rollback(self) -> None:
        await self.fetch("rollback")

    async def close(self) -> None:
        if self.cannot_leave is not None:
            raise self.cannot_leave
        self.has_left = True

    def terminate(self) -> None:
        self.is_open = self.is_usable = False


class Server:
    """Makes connections that share its answers."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.connections: list[Connection] = []

    async def connect(self) -> Connection:
        self.connections.append(Connection(self.answers))
        return self.connections[-1]

    def pool(self, most: int = 2) -> Pool[Connection]:
        return Pool(self.connect, most)


async def test_each_caller_gets_the_answer_of_its_connection() -> None:
    pool = Server("rows", 3).pool()
    assert await pool.fetch("a") == "rows"
    assert await pool.change("b") == 3


async def test_a_transaction_is_committed_when_its_work_returns() -> None:
    server = Server(None, "the result of the work", None)
    assert await server.pool().transaction(lambda session: session.fetch("a")) == "the result of the work"
    assert server.connections[0].ran == ["begin", "a", "commit"]


async def test_a_transaction_is_undone_when_its_work_raises() -> None:
    server = Server(None, ValueError("a bug"), None)
    with pytest.raises(ValueError, match="a bug"):
        await server.pool().transaction(lambda session: session.fetch("a"))
    assert server.connections[0].ran == ["begin", "a", "rollback"]


async def test_a_transaction_that_conflicts_at_its_commit_is_repeated() -> None:
    conflict = TransactionConflict("changed since it was read")
    server = Server(None, "first", conflict, None, None, "second", None)
    assert await server.pool().transaction(lambda session: session.fetch("a")) == "second"
    assert server.connections[0].ran == ["begin", "a", "commit", "rollback", "begin", "a", "commit"]


async def test_callers_in_sequence_share_one_connection() -> None:
    server = Server("first", "second")
    pool = server.pool()
    assert [await pool.fetch("a"), await pool.fetch("b")] == ["first", "second"]
    assert len(server.connections) == 1


async def test_the_pool_never_exceeds_its_maximum_of_connections() -> None:
    server = Server(*range(20))
    pool = server.pool(most=3)
    assert sorted(await asyncio.gather(*(pool.fetch("a") for _ in range(20)))) == list(range(20))
    assert len(server.connections) == 3


async def test_a_caller_waits_for_a_connection_for_a_limited_time() -> None:
    server = Server("not used")
    pool, done = Pool(server.connect, 1, acquire_seconds=0.01), asyncio.Event()
    holder = asyncio.create_task(pool.run(lambda _connection: done.wait()))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="Every connection to the database is in use"):
        await pool.fetch("a")
    done.set()
    await holder
    assert server.answers == ["not used"]


async def test_a_conflict_is_repeated() -> None:
    server = Server(TransactionConflict("deadlock"), "done")
    assert await server.pool().fetch("a") == "done"


async def test_repeated_conflicts_are_unavailable_without_the_driver_text() -> None:
    server = Server(*[TransactionConflict("Duplicate entry 'hunter2'")] * MAX_TRIES, "too late")
    with pytest.raises(StoreUnavailable) as refused:
        await server.pool().fetch("a")
    assert server.answers == ["too late"]
    assert "hunter2" not in repr(refused.value)


async def test_any_other_error_is_raised_at_once() -> None:
    server = Server(KeyError("a mistake"), "not used")
    with pytest.raises(KeyError):
        await server.pool().fetch("a")
    assert server.answers == ["not used"]


async def test_a_broken_connection_is_closed_and_replaced() -> None:
    server = Server("first", "second")
    pool = server.pool()
    await pool.fetch("a")
    server.connections[0].is_usable = False
    assert await pool.fetch("b") == "second"
    assert [connection.is_open for connection in server.connections] == [False, True]


async def test_a_connection_that_breaks_in_use_is_closed() -> None:
    server = Server(StoreUnavailable("lost"), "second")
    pool = server.pool()

    async def lose(connection: Connection) -> None:
        connection.is_usable = False
        await connection.fetch("a")

    with pytest.raises(StoreUnavailable):
        await pool.run(lose)
    assert not server.connections[0].is_open
    assert await pool.fetch("b") == "second"


async def test_a_cancelled_caller_frees_its_slot() -> None:
    server = Server("first", "second")
    pool = server.pool(most=1)
    caller = asyncio.create_task(pool.fetch("a"))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert await pool.fetch("b") == "first"


async def test_a_failed_connect_frees_the_slot() -> None:
    server = Server("first")
    failures = [StoreUnavailable("refused")]

    async def connect() -> Connection:
        if failures:
            raise failures.pop()
        return await server.connect()

    pool = Pool(connect, 1)
    with pytest.raises(StoreUnavailable):
        await pool.fetch("a")
    assert await pool.fetch("b") == "first"


async def test_broken_idle_connections_are_closed_until_a_usable_one_is_found() -> None:
    server = Server("first", "second", "third")
    pool = server.pool()
    await asyncio.gather(pool.fetch("a"), pool.fetch("b"))
    broken = server.connections[1]
    broken.is_usable = False
    assert await pool.fetch("c") == "third"
    assert [connection.is_open for connection in server.connections] == [True, False]


async def test_close_ends_usable_connections_politely_and_closes_all() -> None:
    server = Server("first", "second")
    pool = server.pool()
    await asyncio.gather(pool.fetch("a"), pool.fetch("b"))
    server.connections[1].is_usable = False
    await pool.close()
    assert [connection.has_left for connection in server.connections] == [True, False]
    assert [connection.is_open for connection in server.connections] == [False, False]


async def test_close_ends_all_connections_while_the_server_is_away() -> None:
    server = Server(1, 2, 3)
    pool = server.pool(3)
    await asyncio.gather(*(pool.fetch("a") for _ in range(3)))
    server.connections[1].cannot_leave = StoreUnavailable("The server is away.")
    await pool.close()
    assert [connection.is_open for connection in server.connections] == [False] * 3


async def test_a_connection_whose_goodbye_is_cancelled_is_closed() -> None:
    server = Server(1)
    pool = server.pool()
    await pool.fetch("a")
    server.connections[0].cannot_leave = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await pool.close()
    assert not server.connections[0].is_open


async def test_a_closed_pool_lends_no_connection() -> None:
    server = Server("not used")
    pool = server.pool()
    await pool.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await pool.fetch("a")
    assert server.connections == []


async def test_an_error_that_means_no_writes_closes_the_idle_connections_and_is_reported() -> None:
    server = Server("first", "second", NotWritable("read-only"), "of a new connection")
    pool = server.pool()
    await asyncio.gather(pool.fetch("a"), pool.fetch("b"))
    reported: list[NotWritable] = []
    pool.on_refused = reported.append
    with pytest.raises(NotWritable):
        await pool.fetch("c")
    assert [str(error) for error in reported] == ["read-only"]
    assert await pool.fetch("d") == "of a new connection"
    assert [connection.is_open for connection in server.connections][:2] == [False, False]


async def test_a_connection_that_is_lent_meanwhile_is_closed_when_it_is_returned() -> None:
    server = Server(NotWritable("read-only"), "read by the other one", "of a new connection")
    pool, refused = server.pool(), asyncio.Event()

    async def read_late(connection: Connection) -> Any:
        await refused.wait()
        return await connection.fetch("b")

    reader = asyncio.create_task(pool.run(read_late))
    await asyncio.sleep(0)
    with pytest.raises(NotWritable):
        await pool.fetch("a")
    refused.set()
    assert await reader == "read by the other one"
    assert await pool.fetch("c") == "of a new connection"
    assert [connection.is_open for connection in server.connections] == [False, False, True]


async def test_a_full_disk_is_reported_and_connections_that_can_read_are_kept() -> None:
    server = Server(DiskNotWritable("full"), "a read")
    pool = server.pool()
    reported: list[NotWritable] = []
    pool.on_refused = reported.append
    with pytest.raises(NotWritable):
        await pool.fetch("a")
    assert await pool.fetch("b") == "a read"
    assert [str(error) for error in reported] == ["full"]
    assert len(server.connections) == 1
