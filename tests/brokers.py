"""A broker for tests: any real store, the lock store of a single process, a virtual clock."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

from app.assembly import Components, assemble, connect_notifications
from app.broker.filtering.search_state import SearchRegistry
from app.broker.ports.attempts import AttemptResult
from app.broker.ports.notifier import Counters
from app.broker.ports.store import Store
from app.broker.queue_cache import QueueCache
from app.broker.response_limits import ResponseLimits
from app.broker.sending.durability import DurabilityCheck
from app.broker.sending.volatile_buffer import VolatileBuffer
from app.broker.topics.topic_cache import TopicCache
from app.domain.consumer import ConsumerReport, ConsumersUnknown, ListedConsumer
from app.domain.delivery import Claim
from app.domain.instant import MINUTE, Duration
from app.domain.message import MessageState
from app.domain.queue import FEATURE_LEVEL, Queue
from app.domain.refusals import Overloaded
from app.domain.settlement import Move, Outcome, token_of
from app.domain.weight import MAX_RESPONSE_BYTES
from app.locks.backend import open_locks
from app.runtime.byte_budget import ByteBudget
from app.runtime.wait_queue import WaitQueue
from app.store.open import open_store
from app.store.sqlite.store import SqliteStore
from tests.virtual_clock import VirtualClock

ANSWER_BYTES = 128 << 20
Result = TypeVar("Result")


class CountingTally(Counter[str], Counters):
    """Counters that tests can read; `messages` counts by queue id and event."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = Counter[tuple[int, str]]()

    def count(self, event: str, amount: int = 1) -> None:  # type: ignore[override]
        self[event] += amount

    def count_messages(self, queue_id: int, event: str, amount: int = 1) -> None:
        self.messages[queue_id, event] += amount


class OpenBroker(Components):
    """The components of a broker, and the ports of its verbs."""

    def __getattr__(self, family: str) -> Any:
        """Return the ports of this family, for these components: a test may have replaced one."""
        if family.startswith("_"):
            raise AttributeError(family)
        return getattr(assemble(self), family)


def build_broker(store: Store, clock: VirtualClock, *, auto_create: bool = True) -> OpenBroker:
    """Return a deterministic broker over an open store: ids are counted, and jitter is 0."""
    wait_queue: WaitQueue[int] = WaitQueue(clock)
    lock_backend = open_locks(None, wait_queue, clock, _fail)
    ids: Iterator[int] = count(1)
    queue_cache = QueueCache(store.queues, clock, auto_create=auto_create)
    broker = OpenBroker(
        store=store,
        lock_store=lock_backend.locks,
        consumers=lock_backend.consumers,
        queue_cache=queue_cache,
        topic_cache=TopicCache(store.topics, clock),
        wait_queue=wait_queue,
        notifier=lock_backend.notifier,
        volatile_buffer=VolatileBuffer(
            store, queue_cache.reload_for_send, clock, lambda error, _messages: _fail("outbox", error)
        ),
        durability=DurabilityCheck(store, clock, is_required=False),
        searches=SearchRegistry(clock, 200),
        counters=CountingTally(),
        clock=clock,
        random_fraction=lambda: 0.0,
        new_id=lambda: f"made-{next(ids)}",
        response_limits=ResponseLimits(ByteBudget(ANSWER_BYTES, Overloaded), MAX_RESPONSE_BYTES),
    )
    connect_notifications(broker)
    return broker


class ChangedStore:
    """A store in which a test replaces some methods."""

    def __init__(self, store: Any, **methods: Any) -> None:
        self._store = store
        vars(self).update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class UnknownConsumers:
    """Implements `ConsumerDirectory` as Redis does while it does not answer."""

    async def report(self, queue_id: int, report: ConsumerReport, ttl: Duration) -> None:
        raise ConsumersUnknown

    async def remove(self, queue_id: int, principal: str, consumer: str) -> None:
        raise ConsumersUnknown

    async def of_queue(self, queue_id: int) -> Sequence[ListedConsumer]:
        raise ConsumersUnknown

    async def paused(self) -> Mapping[int, Sequence[ListedConsumer]]:
        raise ConsumersUnknown


@asynccontextmanager
async def sqlite_broker(url: str, clock: VirtualClock, *, auto_create: bool = True) -> AsyncIterator[OpenBroker]:
    """Yield a broker over a migrated SQLite database with the virtual clock."""
    store = await open_store(url, clock, 2)
    broker = build_broker(store, clock, auto_create=auto_create)
    try:
        yield broker
    finally:
        await broker.volatile_buffer.close()
        await broker.topic_cache.close()
        await broker.queue_cache.close()
        await store.close()


async def dead_letter_all(store: Store, queue: Queue) -> int:
    """Dead-letter the available messages of a queue, as their receiver would. Return their number."""
    messages = await store.claim(Claim(queue.id, 1000, MINUTE))
    outcome, state = Outcome.DEAD_LETTERED, MessageState.DEAD_LETTERED
    return sum(await store.move([Move(token_of(message), queue.id, outcome, state) for message in messages]))


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed in the background") from error


async def need_newer_server(broker: OpenBroker, name: str = "orders") -> None:
    """Give this queue a setting that only a newer version knows, as its server does. The database is SQLite."""
    assert isinstance(broker.store, SqliteStore)
    change = f"UPDATE queue SET feature_level = {FEATURE_LEVEL + 1} WHERE name = '{name}'"
    await broker.store.database.call_on_writer(lambda connection: connection.execute(change))
    broker.queue_cache.clear()


async def set_forwarding(broker: OpenBroker, name: str, target: str) -> None:
    """Let a queue forward to another one without the checks of a change. The database is SQLite."""
    assert isinstance(broker.store, SqliteStore)
    change = f"UPDATE queue SET settings = json_set(settings, '$.forward_to', '{target}') WHERE name = '{name}'"
    await broker.store.database.call_on_writer(lambda connection: connection.execute(change))
    broker.queue_cache.clear()


async def result_of(request: Awaitable[AttemptResult[Result]]) -> Result:
    """Return the result of a request that has no attempt."""
    return (await request).result
