"""A changed lock ends exactly when its holder was told, whether SQL or a record says so."""

from dataclasses import replace
from typing import cast

import pytest

from app.broker.ports.lock_store import LockRecord, LockStore, QueueVersion
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.change_lock import change_lock
from app.broker.settling.outcomes import complete
from app.broker.settling.renew import CLOCK_MARGIN, RECORD_WINDOW, renew
from app.broker.settling.settle import settle_one
from app.domain.instant import HOUR, MINUTE, SECOND, Duration, Instant
from app.domain.message import Envelope
from app.domain.queue import MAX_LOCK_DURATION, MIN_LOCK_DURATION, Queue, QueueSettings, Redelivery
from app.domain.refusals import (
    AlreadySettled,
    InvalidRequest,
    LockLost,
    LockStoreUnavailable,
    LossCause,
    MessageBusy,
    MessageNotFound,
)
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, Outcome, token_of
from tests.broker.settling.shared_lock_store import ASKING_SECONDS, SharedLockStore
from tests.brokers import OpenBroker
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


# ---- in SQL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duration", [SECOND, LOCK_DURATION, HOUR])
@pytest.mark.parametrize("renewals", [0, 2])
async def test_without_a_shared_lock_store_sql_ends_the_lock_exactly_then(
    broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, duration: Duration, renewals: int
) -> None:
    for _ in range(renewals):
        await renew(broker.settling, queue, token, MINUTE)
    await clock.advance(10)
    lock = await change_lock(broker.settling, queue, token, duration)
    assert lock.locked_until == clock.now() + duration == await locked_until(broker, queue, token)
    assert lock.remaining(clock.monotonic()) == duration


async def test_the_default_is_the_lock_duration_of_the_queue(
    broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock
) -> None:
    await renew(broker.settling, queue, token, HOUR)
    assert (await change_lock(broker.settling, queue, token)).locked_until == clock.now() + LOCK_DURATION


async def test_a_lock_that_was_never_renewed_needs_no_lock_store(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    locks.is_reachable = locks.accepts_records = False
    for duration in (SECOND, HOUR, MINUTE):
        lock = await change_lock(sharing_broker.settling, queue, token, duration)
        assert lock.locked_until == clock.now() + duration == await locked_until(sharing_broker, queue, token)
    (row,) = await sharing_broker.store.locked_messages([token])
    assert row is not None
    assert row.lock_generation == 0, "no record exists of it, so each change is one statement"


async def test_the_token_settles_until_the_new_end_and_is_lost_after_it(
    broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock
) -> None:
    lock = await change_lock(broker.settling, queue, token, 5 * SECOND)
    await clock.advance(4.9)
    lock = await change_lock(broker.settling, queue, token, 5 * SECOND)
    await clock.advance(5)
    with pytest.raises(LockLost) as lost:
        await settle_one(broker.settling, queue, complete(queue, token))
    assert (lost.value.cause, lost.value.lost_at) == (LossCause.EXPIRED, lock.locked_until)
    with pytest.raises(LockLost):
        await change_lock(broker.settling, queue, token, 5 * SECOND)


# ---- by a record -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duration", [MIN_LOCK_DURATION, LOCK_DURATION, 10 * MINUTE, MAX_LOCK_DURATION])
async def test_a_renewed_lock_gets_its_end_from_a_record_inside_the_bound_of_sql(
    sharing_broker: OpenBroker,
    queue: Queue,
    token: LockToken,
    clock: VirtualClock,
    locks: SharedLockStore,
    duration: Duration,
) -> None:
    await renew(sharing_broker.settling, queue, token, HOUR)
    before = await locked_until(sharing_broker, queue, token)
    asked_at, started_at = locks.now(), clock.monotonic()
    lock = await change_lock(sharing_broker.settling, queue, token, duration)
    assert lock.locked_until == locks.now() + duration
    assert lock.measured_from == started_at + ASKING_SECONDS
    bound = await locked_until(sharing_broker, queue, token)
    assert bound is not None
    assert before is not None
    assert bound >= max(before, clock.now() + duration)
    limit = asked_at + bound - clock.now() - CLOCK_MARGIN
    version = QueueVersion(queue.id, queue.lock_version)
    assert locks.records[-1] == LockRecord(2, duration, limit, asked_at + RECORD_WINDOW, version)
    assert asked_at + RECORD_WINDOW + duration <= limit, "the record ends inside its bound, however late it is written"


async def test_a_record_that_is_written_late_is_no_answer(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    await renew(sharing_broker.settling, queue, token)
    locks.writing_seconds = 0.5
    with pytest.raises(MessageBusy):
        await run_advancing(clock, change_lock(sharing_broker.settling, queue, token, SECOND))
    assert [record.generation for record in locks.records] == list(range(1, 12)), "each try has a generation of its own"
    locks.writing_seconds = 0.4
    assert (await change_lock(sharing_broker.settling, queue, token, SECOND)).locked_until == locks.now() + SECOND


@pytest.mark.parametrize("answers", [True, False], ids=["record refused", "no answer"])
async def test_without_a_record_an_end_before_the_bound_is_refused(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, locks: SharedLockStore, answers: bool
) -> None:
    await renew(sharing_broker.settling, queue, token, MINUTE)
    locks.is_reachable, locks.accepts_records = answers, False
    with pytest.raises(LockStoreUnavailable):
        await change_lock(sharing_broker.settling, queue, token, SECOND)


async def test_without_the_lock_store_sql_still_grants_an_end_behind_its_bound(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, clock: VirtualClock, locks: SharedLockStore
) -> None:
    await renew(sharing_broker.settling, queue, token, SECOND)
    locks.is_reachable = False
    lock = await change_lock(sharing_broker.settling, queue, token, HOUR)
    assert lock.locked_until == clock.now() + HOUR == await locked_until(sharing_broker, queue, token)


async def test_a_lock_whose_record_has_expired_is_lost(
    sharing_broker: OpenBroker, queue: Queue, token: LockToken, locks: SharedLockStore
) -> None:
    await renew(sharing_broker.settling, queue, token)
    locks.expired_generation = 1
    with pytest.raises(LockLost):
        await change_lock(sharing_broker.settling, queue, token, HOUR)
    (tombstone,) = await sharing_broker.store.tombstones([token])
    assert tombstone is not None
    assert tombstone.outcome is Outcome.LOCK_EXPIRED


# ---- refusals --------------------------------------------------------------------------------------------------------


async def test_a_settled_delivery_is_not_changed(broker: OpenBroker, queue: Queue, token: LockToken) -> None:
    await settle_one(broker.settling, queue, complete(queue, token))
    with pytest.raises(AlreadySettled):
        await change_lock(broker.settling, queue, token, SECOND)


async def test_a_token_of_another_queue_is_not_found(broker: OpenBroker, queue: Queue, token: LockToken) -> None:
    other, _ = await broker.store.queues.create("others", QueueSettings())
    with pytest.raises(MessageNotFound):
        await change_lock(broker.settling, other, token, SECOND)
    assert await locked_until(broker, queue, token) is not None


async def test_a_lock_that_does_not_end_by_time_has_no_end_to_change(broker: OpenBroker) -> None:
    held, _ = await broker.store.queues.create("held", QueueSettings(redelivery=Redelivery.ON_REQUEST))
    await send(broker.sending, held.name, [NewMessage(Envelope(""))])
    (message,) = (await receive(broker.receiving, held, ReceiveRequest(receiver_id="worker-1"))).result
    with pytest.raises(InvalidRequest, match="do not end by time"):
        await change_lock(broker.settling, held, token_of(message), SECOND)
