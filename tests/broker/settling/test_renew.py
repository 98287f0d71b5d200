"""A renewal promises only what both stores keep, measured by the clock that grants it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.ports.lock_store import LockRecord, LockStore, QueueVersion
from app.broker.ports.settling import Extension
from app.broker.ports.store import Store
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import complete
from app.broker.settling.renew import CLOCK_MARGIN, RECORD_WINDOW, renew
from app.broker.settling.settle import _FIRST_PAUSE_SECONDS, MAX_TRIES, settle_one
from app.domain.instant import MINUTE, SECOND, Duration, Instant
from app.domain.message import Envelope
from app.domain.queue import LEAD_TIME_FACTOR, Queue, QueueSettings
from app.domain.refusals import AlreadySettled, LockLost, LossCause, MessageBusy, MessageNotFound
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from tests.broker.settling.shared_lock_store import ASKING_SECONDS, SharedLockStore
from tests.brokers import CountingTally, OpenBroker
from tests.virtual_clock import VirtualClock, run_advancing

LOCK_DURATION = 30 * SECOND


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(lock_duration=LOCK_DURATION))
    return queue


@pytest.fixture
async def token(broker: OpenBroker, queue: Queue) -> LockToken:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    return token_of(message)


@pytest.fixture
def locks(clock: VirtualClock) -> SharedLockStore:
    return SharedLockStore(clock)


@pytest.fixture
def sharing_broker(broker: OpenBroker, locks: SharedLockStore) -> OpenBroker:
    """The broker with a lock store that others share."""
    return replace(broker, lock_store=cast("LockStore", locks))


async def locked_until(broker: OpenBroker, queue: Queue, token: LockToken) -> Instant | None:
    """Return the end of the lock in SQL."""
    message = await broker.store.read(queue.id, token.sequence_number)
    assert message is not None
    return message.locked_until


# ---- granted renewals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "promised"), [(None, LOCK_DURATION), (MINUTE, MINUTE)], ids=["of the queue", "requested"]
)
async def test_a_renewed_lock_lasts_for_the_duration_of_the_queue_or_the_request(
    broker: OpenBroker,
    queue: Queue,
    token: LockToken,
    clock: VirtualClock,
    requested: Duration | None,
    promised: Duration,
) -> None:
    await clock.advance(20)
    lock = await renew(broker.settling, queue, token, requested)
    assert lock.locked_until == clock.now() + promised == await locked_until(broker, queue, token)
    await clock.advance(5)
    assert lock.remaining(clock.monotonic()) == promised - 5 * SECOND


async def test_a_shared_renewal_is_measured_from_before_the_lock_store_call(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    started_at, asked_at = clock.monotonic(), locks.now()
    lock = await renew(sharing_broker.settling, queue, token)
    assert (lock.locked_until, lock.measured_from) == (asked_at + LOCK_DURATION, started_at)
    assert lock.remaining(clock.monotonic()) == LOCK_DURATION - round(ASKING_SECONDS * SECOND)


async def test_sql_grants_a_lead_time_and_the_lock_store_keeps_a_margin_to_it(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    asked_at = locks.now()
    await renew(sharing_broker.settling, queue, token)
    lead = LEAD_TIME_FACTOR * LOCK_DURATION
    assert await locked_until(sharing_broker, queue, token) == clock.now() + lead
    queue_version = QueueVersion(queue.id, queue.lock_version)
    assert locks.records == [
        LockRecord(1, LOCK_DURATION, asked_at + lead - CLOCK_MARGIN, asked_at + RECORD_WINDOW, queue_version)
    ]


async def test_the_record_of_a_shorter_renewal_outlasts_every_earlier_promise(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    await renew(sharing_broker.settling, queue, token, 10 * MINUTE)
    granted = await locked_until(sharing_broker, queue, token)
    assert granted is not None
    await renew(sharing_broker.settling, queue, token)
    assert [record.duration for record in locks.records] == [10 * MINUTE, granted - clock.now()]


async def test_a_renewal_by_the_lock_store_does_not_write_sql(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    before = await locked_until(sharing_broker, queue, token)
    locks.prolongs_until = locks.now() + LOCK_DURATION
    started_at = clock.monotonic()
    lock = await renew(sharing_broker.settling, queue, token)
    assert (lock.locked_until, lock.duration, lock.measured_from) == (
        locks.prolongs_until,
        LOCK_DURATION,
        started_at,
    )
    assert (await locked_until(sharing_broker, queue, token), locks.records) == (before, [])
    counters = sharing_broker.counters
    assert isinstance(counters, CountingTally)
    assert counters["renewals_without_sql"] == 1


async def test_without_the_lock_store_sql_grants_no_lead_time(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    locks.is_reachable = False
    lock = await renew(sharing_broker.settling, queue, token)
    assert lock.locked_until == clock.now() + LOCK_DURATION == await locked_until(sharing_broker, queue, token)
    assert lock.measured_from == clock.monotonic(), "SQL was requested after the lock store"
    assert locks.records == []


# ---- refused renewals ------------------------------------------------------------------------------------------------


async def test_renewing_an_expired_lock_reports_when_it_ended(
    broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock
) -> None:
    end = await locked_until(broker, queue, token)
    await clock.advance(LOCK_DURATION / SECOND + 10)
    with pytest.raises(LockLost) as lost:
        await renew(broker.settling, queue, token)
    assert (lost.value.cause, lost.value.lost_at) == (LossCause.EXPIRED, end)


async def test_a_settled_delivery_is_not_renewed(broker: OpenBroker, queue: Queue, token: LockToken) -> None:
    await settle_one(broker.settling, queue, complete(queue, token))
    with pytest.raises(AlreadySettled):
        await renew(broker.settling, queue, token)


async def test_a_token_of_another_queue_is_not_found(broker: OpenBroker, queue: Queue, token: LockToken) -> None:
    other, _ = await broker.store.queues.create("others", QueueSettings())
    with pytest.raises(MessageNotFound):
        await renew(broker.settling, other, token)
    assert (await renew(broker.settling, queue, token)).duration == LOCK_DURATION


class BusyStore:
    """A store in which another request holds the row of every renewal; it records the time of each try."""

    def __init__(self, store: Any, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.tries: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def extend(self, extensions: Sequence[Extension]) -> list[None]:
        self.tries.append(self._clock.monotonic())
        return [None for _ in extensions]


async def test_a_renewal_tries_a_held_row_for_about_a_second(
    broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock
) -> None:
    store = BusyStore(broker.store, clock)
    with pytest.raises(MessageBusy):
        await run_advancing(clock, renew(replace(broker, store=cast("Store", store)).settling, queue, token))
    pauses = [later - earlier for earlier, later in zip(store.tries, store.tries[1:], strict=False)]
    assert pauses == pytest.approx([0] + [_FIRST_PAUSE_SECONDS * 2**number for number in range(MAX_TRIES - 2)])
    assert sum(pauses) == pytest.approx(1.275)
