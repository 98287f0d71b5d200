"""A renewal promises what the message store and the lock store both keep, counted by the clock that grants it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.broker import Broker
from app.broker.complete import complete
from app.broker.ports import Extension, LockRecord, LockStore, NotRenewed, QueueVersion, Renewed, Store
from app.broker.receive import ReceiveRequest, receive
from app.broker.renew import CLOCK_MARGIN, renew
from app.broker.send import send
from app.broker.settle import FIRST_PAUSE_SECONDS, MAX_TRIES, settle_one
from app.domain.instant import MINUTE, SECOND, Duration, Instant
from app.domain.message import Envelope
from app.domain.queue import LEAD_TIME_FACTOR, Queue, QueueSettings
from app.domain.refusals import AlreadySettled, LockLost, LossCause, MessageBusy, MessageNotFound
from app.domain.sending import NewMessage
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken, token_of
from app.locks.memory_lock_store import MemoryLockStore
from tests.brokers import CountingTally
from tests.virtual_clock import VirtualClock, run_advancing

LOCK_DURATION = 30 * SECOND
LOCK_STORE_CLOCK_OFFSET = 7 * SECOND
"""How far the clock of the lock store is ahead of that of the message store."""
ASKING_SECONDS = 0.5


class SharedLockStore(MemoryLockStore):
    """A lock store with a clock of its own, which takes a moment to answer and notes what it is told."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.is_reachable = True
        self.prolongs_until: Instant | None = None
        self.records: list[LockRecord] = []

    @property
    def is_shared(self) -> bool:
        return True

    def now(self) -> Instant:
        return self._clock.now() + LOCK_STORE_CLOCK_OFFSET

    async def renew(self, token: LockToken, duration: Duration, queue_version: QueueVersion) -> Renewed | NotRenewed:
        asked_at = self.now() if self.is_reachable else None
        await self._clock.advance(ASKING_SECONDS)
        if self.prolongs_until is not None:
            return Renewed(self.prolongs_until, duration)
        return NotRenewed(asked_at, NO_EXPIRED_GENERATION)

    async def write_record(self, token: LockToken, record: LockRecord) -> None:
        self.records.append(record)


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(lock_duration=LOCK_DURATION))
    return queue


@pytest.fixture
async def token(broker: Broker, queue: Queue) -> LockToken:
    await send(broker, queue, [NewMessage(Envelope(""))])
    (message,) = await receive(broker, queue, ReceiveRequest())
    return token_of(message)


@pytest.fixture
def locks(clock: VirtualClock) -> SharedLockStore:
    return SharedLockStore(clock)


@pytest.fixture
def sharing_broker(broker: Broker, locks: SharedLockStore) -> Broker:
    """The broker, beside others that share its lock store."""
    return replace(broker, lock_store=cast("LockStore", locks))


async def locked_until(broker: Broker, queue: Queue, token: LockToken) -> Instant | None:
    """The end of the lock in SQL."""
    message = await broker.store.read(queue.id, token.sequence_number)
    assert message is not None
    return message.locked_until


# ---- what is promised ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "promised"), [(None, LOCK_DURATION), (MINUTE, MINUTE)], ids=["of the queue", "asked for"]
)
async def test_a_lock_lasts_from_now_on_as_long_as_its_queue_or_its_holder_says(
    broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock, asked: Duration | None, promised: Duration
) -> None:
    await clock.advance(20)
    promise = await renew(broker, queue, token, asked)
    assert promise.locked_until == clock.now() + promised == await locked_until(broker, queue, token)
    await clock.advance(5)
    assert promise.remaining(clock.monotonic()) == promised - 5 * SECOND


async def test_a_shared_renewal_counts_from_before_the_lock_store_was_asked(
    sharing_broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    began, asked_at = clock.monotonic(), locks.now()
    promise = await renew(sharing_broker, queue, token)
    assert (promise.locked_until, promise.measured_from) == (asked_at + LOCK_DURATION, began)
    assert promise.remaining(clock.monotonic()) == LOCK_DURATION - round(ASKING_SECONDS * SECOND)


async def test_sql_grants_a_shared_lock_ahead_and_the_lock_store_keeps_a_margin_to_it(
    sharing_broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    asked_at = locks.now()
    await renew(sharing_broker, queue, token)
    lead = LEAD_TIME_FACTOR * LOCK_DURATION
    assert await locked_until(sharing_broker, queue, token) == clock.now() + lead
    edition = QueueVersion(queue.id, queue.lock_version)
    assert locks.records == [
        LockRecord(1, LOCK_DURATION, asked_at + lead - CLOCK_MARGIN, asked_at + LOCK_DURATION, edition)
    ]


async def test_the_deadline_of_a_shorter_renewal_lies_beyond_every_earlier_promise(
    sharing_broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    await renew(sharing_broker, queue, token, 10 * MINUTE)
    granted = await locked_until(sharing_broker, queue, token)
    assert granted is not None
    await renew(sharing_broker, queue, token)
    assert [record.duration for record in locks.records] == [10 * MINUTE, granted - clock.now()]


async def test_where_the_lock_store_prolongs_the_lock_sql_is_not_written(
    sharing_broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    before = await locked_until(sharing_broker, queue, token)
    locks.prolongs_until = locks.now() + LOCK_DURATION
    began = clock.monotonic()
    promise = await renew(sharing_broker, queue, token)
    assert (promise.locked_until, promise.duration, promise.measured_from) == (
        locks.prolongs_until,
        LOCK_DURATION,
        began,
    )
    assert (await locked_until(sharing_broker, queue, token), locks.records) == (before, [])
    tally = sharing_broker.counters
    assert isinstance(tally, CountingTally)
    assert tally["renewals_without_sql"] == 1


async def test_while_the_lock_store_is_away_sql_grants_nothing_ahead(
    sharing_broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    locks.is_reachable = False
    promise = await renew(sharing_broker, queue, token)
    assert promise.locked_until == clock.now() + LOCK_DURATION == await locked_until(sharing_broker, queue, token)
    assert promise.measured_from == clock.monotonic(), "SQL was asked after the lock store"
    assert locks.records == []


# ---- what is refused -------------------------------------------------------------------------------------------------


async def test_a_lock_that_has_ended_is_lost_since_its_end(
    broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock
) -> None:
    end = await locked_until(broker, queue, token)
    await clock.advance(LOCK_DURATION / SECOND + 10)
    with pytest.raises(LockLost) as lost:
        await renew(broker, queue, token)
    assert (lost.value.cause, lost.value.lost_at) == (LossCause.EXPIRED, end)


async def test_a_delivery_that_was_settled_is_not_renewed(broker: Broker, queue: Queue, token: LockToken) -> None:
    await settle_one(broker, queue, complete(queue, token))
    with pytest.raises(AlreadySettled):
        await renew(broker, queue, token)


async def test_a_token_of_another_queue_is_not_found(broker: Broker, queue: Queue, token: LockToken) -> None:
    other, _ = await broker.store.queues.create("others", QueueSettings())
    with pytest.raises(MessageNotFound):
        await renew(broker, other, token)
    assert (await renew(broker, queue, token)).duration == LOCK_DURATION


class BusyStore:
    """A store in which another request holds the row of every renewal; it notes when each was tried."""

    def __init__(self, store: Any, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.tries: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def extend(self, extensions: Sequence[Extension]) -> list[None]:
        self.tries.append(self._clock.monotonic())
        return [None for _ in extensions]


async def test_a_row_that_another_request_holds_is_tried_for_a_second_or_so(
    broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock
) -> None:
    store = BusyStore(broker.store, clock)
    with pytest.raises(MessageBusy):
        await run_advancing(clock, renew(replace(broker, store=cast("Store", store)), queue, token))
    pauses = [later - earlier for earlier, later in zip(store.tries, store.tries[1:], strict=False)]
    assert pauses == pytest.approx([0] + [FIRST_PAUSE_SECONDS * 2**look for look in range(MAX_TRIES - 2)])
    assert sum(pauses) == pytest.approx(1.275)
