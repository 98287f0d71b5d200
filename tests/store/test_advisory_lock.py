"""The advisory lock on a database, for any engine: it is refused, held, lost and taken again."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.refusals import StoreUnavailable
from app.store.in_use import DatabaseInUse
from app.store.pooled.advisory_lock import VERIFIED_SECONDS, AdvisoryLock
from app.store.pooled.pool import Pool, TransactionConflict
from tests.virtual_clock import VirtualClock, run_advancing, run_ready_tasks


class Connection:
    """A connection that takes the lock if the server allows it."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.is_usable = True
        self.is_open = True
        self.is_lost = False
        self.has_left = False

    async def fetch(self, name: str, /, **_values: Any) -> Sequence[Sequence[Any]]:
        self._server.fetched.append(name)
        await asyncio.sleep(0)
        if self._server.is_away or self.is_lost:
            raise StoreUnavailable("The server is away.")
        if name == "is_served":
            return [(self._server.is_served,)]
        return [(not self._server.is_taken,)]

    async def change(self, name: str, /, **_values: Any) -> int:
        self._server.fetched.append(name)
        if self._server.conflicts:
            raise TransactionConflict("a deadlock")
        return 1

    async def begin(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...

    async def close(self) -> None:
        if self._server.is_away:
            raise StoreUnavailable("The server is away.")
        self.has_left = True

    def terminate(self) -> None:
        self.is_open = False


class Server:
    """Makes connections. Another process may hold the lock or have registered too, or the server may be away."""

    def __init__(self) -> None:
        self.is_taken = False
        self.is_served = True
        self.conflicts = False
        self.is_away = False
        self.fetched: list[str] = []
        self.connections: list[Connection] = []

    async def connect(self) -> Connection:
        self.connections.append(Connection(self))
        return self.connections[-1]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def advisory_lock(server: Server, clock: VirtualClock) -> AdvisoryLock:
    return AdvisoryLock(server.connect, clock)


async def test_one_usable_connection_holds_the_lock(server: Server, advisory_lock: AdvisoryLock) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    await advisory_lock.ensure_held()
    assert server.fetched == ["acquire_exclusive"]
    assert [connection.is_open for connection in server.connections] == [True]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("acquire_exclusive", "Another process serves this database, and this one has no Redis."),
        ("acquire_shared", "A process without Redis serves this database."),
    ],
)
async def test_a_lock_of_another_process_is_refused_and_not_requested_again(
    server: Server, advisory_lock: AdvisoryLock, statement: str, reason: str
) -> None:
    server.is_taken = True
    with pytest.raises(DatabaseInUse, match=reason):
        await advisory_lock.acquire(statement)
    await advisory_lock.ensure_held()
    assert server.fetched[-1:] == [statement]
    assert "start_lock_version" not in server.fetched
    assert not server.connections[0].is_open


async def test_a_lock_whose_connection_was_lost_is_taken_again_once(
    server: Server, advisory_lock: AdvisoryLock
) -> None:
    await advisory_lock.acquire("acquire_shared")
    server.connections[0].is_usable = False
    await asyncio.gather(advisory_lock.ensure_held(), advisory_lock.ensure_held())
    assert server.fetched == ["is_served", "acquire_shared"] * 2
    assert [connection.is_open for connection in server.connections] == [False, True]


async def test_a_process_that_registers_again_as_the_first_one_starts_a_lock_version(
    server: Server, advisory_lock: AdvisoryLock
) -> None:
    await advisory_lock.acquire("acquire_shared")
    server.connections[0].is_usable = False
    server.is_served = False
    server.fetched.clear()
    await advisory_lock.ensure_held()
    assert server.fetched == ["is_served", "start_lock_version", "acquire_shared"]


async def test_a_lock_version_that_conflicts_with_another_transaction_is_tried_again(
    server: Server, advisory_lock: AdvisoryLock
) -> None:
    await advisory_lock.acquire("acquire_shared")
    server.connections[0].is_usable = False
    server.is_served, server.conflicts = False, True
    with pytest.raises(StoreUnavailable):
        await advisory_lock.ensure_held()
    server.conflicts = False
    await advisory_lock.ensure_held()
    assert server.fetched[-2:] == ["start_lock_version", "acquire_shared"]
    assert [connection.is_open for connection in server.connections] == [False, False, True]


async def test_the_store_is_unavailable_until_a_faster_process_ends(
    server: Server, advisory_lock: AdvisoryLock, clock: VirtualClock
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    server.connections[0].is_usable = False
    server.is_taken = True
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="Another process serves this database"):
            await run_advancing(clock, advisory_lock.ensure_held())
    server.is_taken = False
    await advisory_lock.ensure_held()
    assert [connection.is_open for connection in server.connections if connection.is_open] == [True]
    assert server.connections[-1].is_open


async def test_a_lock_is_taken_again_although_the_server_still_ends_the_connection_before(
    server: Server, advisory_lock: AdvisoryLock, clock: VirtualClock
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    advisory_lock.disconnect()
    server.is_taken = True
    taking = asyncio.create_task(advisory_lock.ensure_held())
    await run_ready_tasks()
    server.is_taken = False
    await run_advancing(clock, taking)
    assert server.fetched == ["acquire_exclusive"] * 3


async def test_a_connection_on_which_the_lock_cannot_be_requested_is_closed(
    server: Server, advisory_lock: AdvisoryLock
) -> None:
    server.is_away = True
    with pytest.raises(StoreUnavailable, match="away"):
        await advisory_lock.acquire("acquire_exclusive")
    assert not server.connections[0].is_open


@pytest.mark.parametrize("is_usable", [True, False])
async def test_a_release_closes_a_usable_connection_and_takes_no_lock_again(
    server: Server, advisory_lock: AdvisoryLock, is_usable: bool
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    (connection,) = server.connections
    connection.is_usable = is_usable
    await advisory_lock.release()
    await advisory_lock.ensure_held()
    assert (connection.has_left, connection.is_open) == (is_usable, False)
    assert server.fetched == ["acquire_exclusive"]


async def test_a_release_without_a_lock_changes_nothing(server: Server, advisory_lock: AdvisoryLock) -> None:
    await advisory_lock.release()
    assert server.connections == []


async def test_a_release_closes_the_connection_while_the_server_is_away(
    server: Server, advisory_lock: AdvisoryLock
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    server.is_away = True
    await advisory_lock.release()
    assert not server.connections[0].is_open


async def test_the_server_is_queried_again_once_its_answer_is_old(
    server: Server, advisory_lock: AdvisoryLock, clock: VirtualClock
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    await clock.advance(VERIFIED_SECONDS)
    await asyncio.gather(advisory_lock.ensure_held(), advisory_lock.ensure_held())
    await advisory_lock.ensure_held()
    assert server.fetched == ["acquire_exclusive", "now"]


async def test_a_connection_that_was_lost_without_an_error_is_replaced(
    server: Server, advisory_lock: AdvisoryLock, clock: VirtualClock
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    server.connections[0].is_lost = True
    await clock.advance(VERIFIED_SECONDS)
    await advisory_lock.ensure_held()
    assert server.fetched == ["acquire_exclusive", "now", "acquire_exclusive"]
    assert [connection.is_open for connection in server.connections] == [False, True]


async def test_no_connection_of_the_pool_is_used_while_another_process_has_the_lock(
    server: Server, advisory_lock: AdvisoryLock, clock: VirtualClock
) -> None:
    pool = Pool(server.connect, 2, check=advisory_lock.ensure_held)
    await advisory_lock.acquire("acquire_exclusive")
    await pool.fetch("send")
    server.connections[0].is_usable = False
    server.is_taken = True
    with pytest.raises(StoreUnavailable, match="Another process serves this database"):
        await run_advancing(clock, pool.fetch("send"))
    assert server.fetched.count("send") == 1
    server.is_taken = False
    await pool.fetch("send")
    assert server.fetched[-2:] == ["acquire_exclusive", "send"]


async def test_callers_share_a_failed_verification_instead_of_waiting_in_turn(
    server: Server, advisory_lock: AdvisoryLock
) -> None:
    await advisory_lock.acquire("acquire_shared")
    server.connections[0].is_usable = False
    server.is_away = True
    outcomes = await asyncio.gather(*(advisory_lock.ensure_held() for _ in range(20)), return_exceptions=True)
    assert {str(outcome) for outcome in outcomes} == {"The server is away."}
    assert len(server.connections) == 2
    server.is_away = False
    await advisory_lock.ensure_held()
    assert server.connections[2].is_open


async def test_a_cancelled_caller_does_not_give_up_the_lock(
    server: Server, advisory_lock: AdvisoryLock, clock: VirtualClock
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    await clock.advance(VERIFIED_SECONDS)
    callers = [asyncio.create_task(advisory_lock.ensure_held()) for _ in range(2)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.wait(callers)
    assert callers[0].cancelled()
    assert callers[1].exception() is None
    assert server.fetched == ["acquire_exclusive", "now"]


async def test_a_release_cancels_a_verification_in_progress(
    server: Server, advisory_lock: AdvisoryLock, clock: VirtualClock
) -> None:
    await advisory_lock.acquire("acquire_exclusive")
    await clock.advance(VERIFIED_SECONDS)
    caller = asyncio.create_task(advisory_lock.ensure_held())
    await asyncio.sleep(0)
    await advisory_lock.release()
    await asyncio.wait([caller])
    assert [connection.is_open for connection in server.connections] == [False]
