"""A renewal promises what the message store and the lock store both keep, counted by the clock that grants it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.broker import Broker
from app.broker.complete import complete
from app.broker.ports import Edition, Extension, LockRecord, Locks, NotRenewed, Renewed, Store
from app.broker.receive import Wish, receive
from app.broker.renew import MARGIN, renew
from app.broker.send import send
from app.broker.settling import FIRST_PAUSE_SECONDS, MOST_LOOKS, settle_one
from app.domain.instant import MINUTE, SECOND, Duration, Instant
from app.domain.message import Envelope
from app.domain.queue import LEAD_FACTOR, Queue, QueueSettings
from app.domain.refusals import AlreadySettled, LockLost, LossCause, MessageBusy, MessageNotFound
from app.domain.sending import Letter
from app.domain.settlement import NO_EVIDENCE, LockToken, token_of
from app.locks.memory_locks import MemoryLocks
from tests.clock import VirtualClock, through
from tests.rooms import Counted

LOCK = 30 * SECOND
AHEAD = 7 * SECOND
"""How far the clock of the lock store is ahead of that of the message store."""
ASKING_SECONDS = 0.5


class SharedLocks(MemoryLocks):
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
        return self._clock.now() + AHEAD

    async def renew(self, token: LockToken, duration: Duration, edition: Edition) -> Renewed | NotRenewed:
        asked_at = self.now() if self.is_reachable else None
        await self._clock.advance(ASKING_SECONDS)
        if self.prolongs_until is not None:
            return Renewed(self.prolongs_until, duration)
        return NotRenewed(asked_at, NO_EVIDENCE)

    async def record(self, token: LockToken, record: LockRecord) -> None:
        self.records.append(record)


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(lock_duration=LOCK))
    return queue


@pytest.fixture
async def token(broker: Broker, queue: Queue) -> LockToken:
    await send(broker, queue, [Letter(Envelope(""))])
    (message,) = await receive(broker, queue, Wish())
    return token_of(message)


@pytest.fixture
def locks(clock: VirtualClock) -> SharedLocks:
    return SharedLocks(clock)


@pytest.fixture
def sharing(broker: Broker, locks: SharedLocks) -> Broker:
    """The broker, beside others that share its lock store."""
    return replace(broker, locks=cast("Locks", locks))


async def locked_until(broker: Broker, queue: Queue, token: LockToken) -> Instant | None:
    """The end of the lock in SQL."""
    message = await broker.store.read(queue.id, token.sequence_number)
    assert message is not None
    return message.locked_until


# ---- what is promised ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "promised"), [(None, LOCK), (MINUTE, MINUTE)], ids=["of the queue", "asked for"])
async def test_a_lock_lasts_from_now_on_as_long_as_its_queue_or_its_holder_says(
    broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock, asked: Duration | None, promised: Duration
) -> None:
    await clock.advance(20)
    promise = await renew(broker, queue, token, asked)
    assert promise.locked_until == clock.now() + promised == await locked_until(broker, queue, token)
    await clock.advance(5)
    assert promise.remaining(clock.monotonic()) == promised - 5 * SECOND


async def test_a_shared_lock_is_promised_by_the_clock_of_the_lock_store_from_before_it_was_asked(
    sharing: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLocks
) -> None:
    began, asked_at = clock.monotonic(), locks.now()
    promise = await renew(sharing, queue, token)
    assert (promise.locked_until, promise.counted_from) == (asked_at + LOCK, began)
    assert promise.remaining(clock.monotonic()) == LOCK - round(ASKING_SECONDS * SECOND)


async def test_sql_grants_a_shared_lock_ahead_and_the_lock_store_keeps_a_margin_to_it(
    sharing: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLocks
) -> None:
    asked_at = locks.now()
    await renew(sharing, queue, token)
    lead = LEAD_FACTOR * LOCK
    assert await locked_until(sharing, queue, token) == clock.now() + lead
    edition = Edition(queue.id, queue.lock_version)
    assert locks.records == [LockRecord(1, LOCK, asked_at + lead - MARGIN, asked_at + LOCK, edition)]


async def test_the_deadline_of_a_shorter_renewal_lies_beyond_every_earlier_promise(
    sharing: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLocks
) -> None:
    await renew(sharing, queue, token, 10 * MINUTE)
    granted = await locked_until(sharing, queue, token)
    assert granted is not None
    await renew(sharing, queue, token)
    assert [record.duration for record in locks.records] == [10 * MINUTE, granted - clock.now()]


async def test_where_the_lock_store_prolongs_the_lock_sql_is_not_written(
    sharing: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLocks
) -> None:
    before = await locked_until(sharing, queue, token)
    locks.prolongs_until = locks.now() + LOCK
    began = clock.monotonic()
    promise = await renew(sharing, queue, token)
    assert (promise.locked_until, promise.duration, promise.counted_from) == (locks.prolongs_until, LOCK, began)
    assert (await locked_until(sharing, queue, token), locks.records) == (before, [])
    tally = sharing.tally
    assert isinstance(tally, Counted)
    assert tally["renewals_without_sql"] == 1


async def test_while_the_lock_store_is_away_sql_grants_nothing_ahead(
    sharing: Broker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLocks
) -> None:
    locks.is_reachable = False
    promise = await renew(sharing, queue, token)
    assert promise.locked_until == clock.now() + LOCK == await locked_until(sharing, queue, token)
    assert promise.counted_from == clock.monotonic(), "SQL was asked after the lock store"
    assert locks.records == []


# ---- what is refused -------------------------------------------------------------------------------------------------


async def test_a_lock_that_has_ended_is_lost_since_its_end(
    broker: Broker, queue: Queue, token: LockToken, clock: VirtualClock
) -> None:
    end = await locked_until(broker, queue, token)
    await clock.advance(LOCK / SECOND + 10)
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
    assert (await renew(broker, queue, token)).duration == LOCK


class Held:
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
    store = Held(broker.store, clock)
    with pytest.raises(MessageBusy):
        await through(clock, renew(replace(broker, store=cast("Store", store)), queue, token))
    pauses = [later - earlier for earlier, later in zip(store.tries, store.tries[1:], strict=False)]
    assert pauses == pytest.approx([0] + [FIRST_PAUSE_SECONDS * 2**look for look in range(MOST_LOOKS - 2)])
    assert sum(pauses) == pytest.approx(1.275)
