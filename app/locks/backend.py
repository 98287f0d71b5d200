"""Opens the lock backend: in Redis if a URL names one, else in the memory of a single process."""

import random
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from app.broker.ports.consumer_directory import ConsumerDirectory
from app.broker.ports.lock_store import LockStore, SharedRecord
from app.broker.ports.server_directory import ServerDirectory
from app.locks.connect import connect
from app.locks.memory_consumer_directory import MemoryConsumerDirectory
from app.locks.memory_lock_store import MemoryLockStore
from app.locks.memory_server_directory import MemoryServerDirectory
from app.locks.notifier import LocalNotifier, SharedNotifier
from app.locks.prefix_ownership import PrefixOwnership, acquire
from app.locks.redis_check import RedisCheck
from app.locks.redis_client import RedisClient
from app.locks.redis_connection import RedisConnection
from app.locks.redis_consumer_directory import RedisConsumerDirectory
from app.locks.redis_keys import DEFAULT_PREFIX, RedisKeys
from app.locks.redis_lock_store import RedisLockStore
from app.locks.redis_server_directory import RedisServerDirectory
from app.locks.shared_record import MemorySharedRecord, RedisSharedRecord
from app.runtime.background_loop import ErrorReporter
from app.runtime.clock import Clock
from app.runtime.wait_queue import WaitQueue


@dataclass(frozen=True, slots=True)
class LockBackend:
    """An open lock store, its notifier, the directories of servers and of consumers, and the shared record; `close` closes all.

    `start` takes the broker's prefix in Redis, if Redis answers, and keeps it from then on. Refuses with `PrefixInUse`.
    """

    locks: LockStore
    notifier: LocalNotifier
    servers: ServerDirectory
    consumers: ConsumerDirectory
    record: SharedRecord
    start: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """The Redis that the processes of one broker share.

    `broker_id` is the identity of their database; the names of their keys begin with `prefix`. Work that Redis has not
    answered within `timeout_seconds` is done without Redis. Choose a timeout far above the response time of a healthy
    Redis, and far below the timeout of a caller.
    """

    url: str
    broker_id: str
    timeout_seconds: float
    prefix: str = DEFAULT_PREFIX

    @property
    def keys(self) -> RedisKeys:
        """The names of the keys."""
        return RedisKeys(self.prefix)

    def client(self) -> RedisClient:
        """Return a client that connects on first use. Refuses with `BadLockUrl` a URL that names no Redis."""
        return connect(self.url, timeout_seconds=self.timeout_seconds)


def open_locks(
    options: RedisOptions | None, wait_queue: WaitQueue[int], clock: Clock, report: ErrorReporter
) -> LockBackend:
    """Open the backend of this Redis, or of a single process without one, in a running event loop.

    Redis need not answer yet. `report` gets every failure that is not raised. Refuses with `BadLockUrl` a URL that names
    no Redis.
    """
    if options is None:
        locks, notifier = MemoryLockStore(), LocalNotifier(wait_queue)
        servers, consumers = MemoryServerDirectory(), MemoryConsumerDirectory(clock)
        return LockBackend(locks, notifier, servers, consumers, MemorySharedRecord(), _do_nothing, locks.close)
    return _open_redis(options, wait_queue, clock, report)


async def acquire_prefix(
    options: RedisOptions, seen: Mapping[str, int], clock: Clock, report: ErrorReporter
) -> Mapping[str, int]:
    """Take the prefix for a broker before its processes start. Return the highest values that its processes have ever seen.

    Redis need not answer: then these are the values that this process has `seen`. Refuses with `PrefixInUse`, and with
    `BadLockUrl` a URL that names no Redis.
    """
    connection = RedisConnection(options.client(), clock, report)
    try:
        has_answered = await acquire(connection, options.keys, options.broker_id)
        return await RedisSharedRecord(connection, options.keys).raise_to(seen) if has_answered else seen
    finally:
        await connection.close()


async def _do_nothing() -> None:
    """A single process takes no prefix."""


def _open_redis(options: RedisOptions, wait_queue: WaitQueue[int], clock: Clock, report: ErrorReporter) -> LockBackend:
    client, keys = options.client(), options.keys
    connection = RedisConnection(client, clock, report)
    ownership = PrefixOwnership(
        RedisConnection(client, clock, report, connection.failing), connection, keys, options.broker_id, clock, report
    )
    check = RedisCheck(connection, keys, clock, report)
    locks = RedisLockStore(connection, keys)
    notifier = SharedNotifier(wait_queue, connection, keys, secrets.token_hex(8), clock, report)
    notifier.start()
    servers = RedisServerDirectory(connection, keys, random.random())
    consumers = RedisConsumerDirectory(connection, keys)

    async def start() -> None:
        await ownership.acquire()
        ownership.start()
        check.start()

    async def close() -> None:
        await check.stop()
        await ownership.stop()
        await notifier.close()
        await locks.close()
        await connection.close()

    return LockBackend(locks, notifier, servers, consumers, RedisSharedRecord(connection, keys), start, close)
