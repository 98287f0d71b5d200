"""Opens the room: Redis where a URL names one, else what a process on its own needs."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.broker.ports import Locks
from app.locks.connect import connect
from app.locks.keys import DEFAULT_PREFIX, Keys
from app.locks.link import Link
from app.locks.memory_locks import MemoryLocks
from app.locks.redis_locks import RedisLocks
from app.locks.wake_ups import LocalWakeUps, SharedWakeUps
from app.runtime.bell import Bell
from app.runtime.clock import Clock
from app.runtime.loop import Report


@dataclass(frozen=True, slots=True)
class LockRoom:
    """An open lock store and the wake-ups that go with it; `close` lets both go."""

    locks: Locks
    wake_ups: LocalWakeUps
    close: Callable[[], Awaitable[None]]


def open_locks(
    url: str | None,
    bell: Bell[int],
    clock: Clock,
    report: Report,
    *,
    prefix: str = DEFAULT_PREFIX,
    patience_seconds: float,
) -> LockRoom:
    """The room for this URL, inside a running event loop. Redis need not answer yet.

    What Redis has not answered within `patience_seconds` is done without it: choose it far above what a healthy Redis
    takes, and far below a caller's own patience.

    `report` hears of every failure that was answered instead of raised. Refuses with
    `BadLockUrl` a URL that names no Redis.
    """
    if url is None:
        locks, wake_ups = MemoryLocks(), LocalWakeUps(bell)
        return LockRoom(locks, wake_ups, locks.close)
    link = Link(connect(url, patience_seconds=patience_seconds), clock, report)
    return _open_redis(link, bell, clock, report, Keys(prefix))


def _open_redis(link: Link, bell: Bell[int], clock: Clock, report: Report, keys: Keys) -> LockRoom:
    locks = RedisLocks(link, keys)
    wake_ups = SharedWakeUps(bell, link, keys, secrets.token_hex(8), clock, report)
    wake_ups.start()

    async def close() -> None:
        await wake_ups.close()
        await locks.close()
        await link.close()

    return LockRoom(locks, wake_ups, close)
