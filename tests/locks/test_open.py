"""The room that a URL asks for: on its own without one, shared with one, refused with a wrong one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.broker.ports import LockRecord
from app.domain.instant import SECOND
from app.locks.connect import BadLockUrl
from app.locks.open import LockRoom, SharedRedis, open_locks
from app.runtime.bell import Bell
from app.runtime.clock import SystemClock
from tests.locks.conftest import NewToken
from tests.locks.records import EDITION, PATIENCE_SECONDS, PROMISED

WAIT_SECONDS = 20.0


def open_room(url: str | None, bell: Bell[int] | None = None) -> LockRoom:
    clock = SystemClock()
    shared = SharedRedis(url, "one", PATIENCE_SECONDS, "test-room:") if url else None
    return open_locks(shared, bell or Bell(clock), clock, _fail)


@pytest.fixture
def bells() -> list[Bell[int]]:
    """The bells of two processes."""
    return [Bell(SystemClock()), Bell(SystemClock())]


@pytest.fixture
async def rooms(redis_url: str, bells: list[Bell[int]]) -> AsyncIterator[list[LockRoom]]:
    """The rooms of two processes on one Redis."""
    rooms = [open_room(redis_url, bell) for bell in bells]
    for room in rooms:
        await room.begin()
    yield rooms
    for room in rooms:
        await room.close()


async def test_without_a_url_a_process_is_on_its_own() -> None:
    room = open_room(None)
    assert (room.locks.state, room.locks.is_shared) == ("none", False)
    await room.close()


async def test_with_redis_processes_share_locks_and_wake_ups(
    rooms: list[LockRoom], bells: list[Bell[int]], new_token: NewToken
) -> None:
    token = new_token()
    await rooms[0].locks.record(token, LockRecord(1, 30 * SECOND, 4_000_000_000 * SECOND, PROMISED, EDITION))
    assert (await rooms[1].locks.renew(token, 30 * SECOND, EDITION)).remaining == 30 * SECOND
    with bells[1].waiter(12) as waiter:
        async with asyncio.timeout(WAIT_SECONDS):
            rooms[0].wake_ups.ring(12)
            while not await waiter.rung(0.05):
                rooms[0].wake_ups.ring(12)  # the other may not have been listening yet


async def test_nothing_is_left_running_after_closing(redis_url: str) -> None:
    before = asyncio.all_tasks()
    room = open_room(redis_url)
    await room.begin()
    room.wake_ups.ring(12)
    await asyncio.sleep(0)
    await room.close()
    assert asyncio.all_tasks() == before


async def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(BadLockUrl):
        open_room("http://somewhere")


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
