"""The backend of a URL: not shared without one, shared with one, refused with a wrong one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.broker.ports.lock_store import LockRecord
from app.domain.instant import SECOND
from app.locks.backend import LockBackend, RedisOptions, open_locks
from app.locks.connect import BadLockUrl
from app.runtime.clock import SystemClock
from app.runtime.wait_queue import WaitQueue
from tests.locks.conftest import NewToken
from tests.locks.lock_records import EDITION, IN_TIME, TIMEOUT_SECONDS

WAIT_SECONDS = 20.0


def open_backend(url: str | None, wait_queue: WaitQueue[int] | None = None) -> LockBackend:
    clock = SystemClock()
    options = RedisOptions(url, "one", TIMEOUT_SECONDS, "test-room:") if url else None
    return open_locks(options, wait_queue or WaitQueue(clock), clock, _fail)


@pytest.fixture
def wait_queues() -> list[WaitQueue[int]]:
    """The wait queues of two processes."""
    return [WaitQueue(SystemClock()), WaitQueue(SystemClock())]


@pytest.fixture
async def backends(redis_url: str, wait_queues: list[WaitQueue[int]]) -> AsyncIterator[list[LockBackend]]:
    """The lock backends of two processes on one Redis."""
    backends = [open_backend(redis_url, wait_queue) for wait_queue in wait_queues]
    for backend in backends:
        await backend.start()
    yield backends
    for backend in backends:
        await backend.close()


async def test_without_a_url_the_backend_is_not_shared() -> None:
    backend = open_backend(None)
    assert (backend.locks.state, backend.locks.is_shared) == ("none", False)
    await backend.close()


async def test_with_redis_processes_share_locks_and_wake_ups(
    backends: list[LockBackend], wait_queues: list[WaitQueue[int]], new_token: NewToken
) -> None:
    token = new_token()
    await backends[0].locks.write_record(token, LockRecord(1, 30 * SECOND, 4_000_000_000 * SECOND, IN_TIME, EDITION))
    assert (await backends[1].locks.renew(token, 30 * SECOND, EDITION)).remaining == 30 * SECOND
    with wait_queues[1].waiter(12) as waiter:
        async with asyncio.timeout(WAIT_SECONDS):
            backends[0].notifier.notify(12)
            while not await waiter.woken(0.05):
                backends[0].notifier.notify(12)  # the other may not have been listening yet


async def test_close_leaves_no_task_running(redis_url: str) -> None:
    before = asyncio.all_tasks()
    backend = open_backend(redis_url)
    await backend.start()
    backend.notifier.notify(12)
    await asyncio.sleep(0)
    await backend.close()
    assert asyncio.all_tasks() == before


async def test_a_url_of_another_scheme_is_refused() -> None:
    with pytest.raises(BadLockUrl):
        open_backend("http://somewhere")


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
