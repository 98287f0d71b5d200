"""Opens the room: Redis where a URL names one, else what a process on its own needs."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.broker.ports import Locks
from app.locks.client import Client
from app.locks.connect import connect
from app.locks.keys import DEFAULT_PREFIX, Keys
from app.locks.link import Link
from app.locks.memory_locks import MemoryLocks
from app.locks.ownership import Ownership, take
from app.locks.redis_locks import RedisLocks
from app.locks.wake_ups import LocalWakeUps, SharedWakeUps
from app.runtime.bell import Bell
from app.runtime.clock import Clock
from app.runtime.loop import Report


@dataclass(frozen=True, slots=True)
class LockRoom:
    """An open lock store and the wake-ups that go with it; `close` lets both go.

    `begin` makes sure that the broker has its prefix in Redis for itself, where Redis answers, and goes on doing so.
    Refuses with `PrefixInUse`.
    """

    locks: Locks
    wake_ups: LocalWakeUps
    begin: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SharedRedis:
    """The Redis that the processes of one broker share.

    `broker` is the identity of their database, `prefix` what the names of their keys begin with. What Redis has not
    answered within `patience_seconds` is done without it: choose it far above what a healthy Redis takes, and far below a
    caller's own patience.
    """

    url: str
    broker: str
    patience_seconds: float
    prefix: str = DEFAULT_PREFIX

    @property
    def keys(self) -> Keys:
        """The names of its keys."""
        return Keys(self.prefix)

    def client(self) -> Client:
        """A client that connects when first used. Refuses with `BadLockUrl` a URL that names no Redis."""
        return connect(self.url, patience_seconds=self.patience_seconds)


def open_locks(shared: SharedRedis | None, bell: Bell[int], clock: Clock, report: Report) -> LockRoom:
    """The room over this Redis, or of a process on its own, inside a running event loop. Redis need not answer yet.

    `report` hears of every failure that was answered instead of raised. Refuses with `BadLockUrl` a URL that names no
    Redis.
    """
    if shared is None:
        locks, wake_ups = MemoryLocks(), LocalWakeUps(bell)
        return LockRoom(locks, wake_ups, _take_nothing, locks.close)
    return _open_redis(shared, bell, clock, report)


async def take_prefix(shared: SharedRedis, clock: Clock, report: Report) -> None:
    """Take the prefix for a broker before any of its processes starts. Refuses with `PrefixInUse`.

    Redis need not answer. Refuses with `BadLockUrl` a URL that names no Redis.
    """
    link = Link(shared.client(), clock, report)
    try:
        await take(link, shared.keys, shared.broker)
    finally:
        await link.close()


async def _take_nothing() -> None:
    """A process on its own shares nothing."""


def _open_redis(shared: SharedRedis, bell: Bell[int], clock: Clock, report: Report) -> LockRoom:
    client, keys = shared.client(), shared.keys
    link = Link(client, clock, report)
    ownership = Ownership(Link(client, clock, report), link, keys, shared.broker, clock, report)
    locks = RedisLocks(link, keys)
    wake_ups = SharedWakeUps(bell, link, keys, secrets.token_hex(8), clock, report)
    wake_ups.start()

    async def begin() -> None:
        await ownership.take()
        ownership.start()

    async def close() -> None:
        await ownership.stop()
        await wake_ups.close()
        await locks.close()
        await link.close()

    return LockRoom(locks, wake_ups, begin, close)
