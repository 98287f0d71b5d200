"""The verbs keep their promises on every store with every lock store."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from redis.asyncio import Redis

from app.broker.administration.browse import browse, read_message, show_message
from app.broker.administration.purge import purge
from app.broker.administration.queues import change_queue, put_queue, reload_queue
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.ports.attempts import Attempt
from app.broker.ports.lock_store import LockRecord
from app.broker.ports.store import Store
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon, complete, dead_letter, defer
from app.broker.settling.renew import renew
from app.broker.settling.revoke_locks import revoke_locks
from app.broker.settling.settle import SettlementRequest, settle, settle_one
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Envelope, MessageState
from app.domain.queue import HeldLocks, Queue, QueueSettings, QueueStatus
from app.domain.refusals import AlreadySettled, LockLost, LossCause, StoreUnavailable
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_DELIVERY_COUNT_REASON, LockedMessage, LockToken, Outcome, Settled, token_of
from app.maintenance.expiry import expire_locks
from tests.brokers import OpenBroker, build_broker
from tests.contract.store_fixture import StoreFixture
from tests.locks.lock_records import LockRecords, open_redis_locks, unique_keys
from tests.virtual_clock import VirtualClock, run_advancing

LOCK_SECONDS = 30
RECEIVERS = 16


@dataclass
class BrokerFixture:
    """A broker over a store and a lock store, with control of the time of both."""

    broker: OpenBroker
    clock: VirtualClock
    store_fixture: StoreFixture
    records: LockRecords | None

    async def advance_time(self, seconds: float, *tokens: LockToken) -> None:
        await self.store_fixture.advance_time(seconds)
        for token in tokens:
            if self.records is not None and await self.records.read(token) is not None:
                await self.records.pass_time(token, by=round(seconds * 1_000_000))

    async def receive_one(self, queue: Queue) -> LockToken:
        await send(self.broker.sending, queue.name, [NewMessage(Envelope(""))])
        return (await self.receive(queue))[0]

    async def receive(self, queue: Queue, most: int = 1) -> list[LockToken]:
        messages = (await receive(self.broker.receiving, queue, ReceiveRequest(max_messages=most))).result
        return [LockToken(message.sequence_number, message.lock_token or b"") for message in messages]

    async def state(self, queue: Queue, token: LockToken) -> MessageState | None:
        message = await self.broker.store.read(queue.id, token.sequence_number)
        return message and message.state


@pytest.fixture(params=["memory locks", "redis locks"])
async def broker_fixture(request: pytest.FixtureRequest, store_fixture: StoreFixture) -> AsyncIterator[BrokerFixture]:
    clock = VirtualClock()
    broker = build_broker(store_fixture.store, clock)
    if request.param == "memory locks":
        yield BrokerFixture(broker, clock, store_fixture, None)
    else:
        url, keys = request.getfixturevalue("redis_url"), unique_keys()
        async with Redis.from_url(url) as redis, open_redis_locks(url, keys) as locks:
            yield BrokerFixture(replace(broker, lock_store=locks), clock, store_fixture, LockRecords(redis, keys))
    await broker.queue_cache.close()


@pytest.mark.behaviour("S0.5", "S0.6", "S0.7", "S3.20", "S2.35")
async def test_a_completion_takes_effect_once_and_its_repeat_reports_that(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    token = await broker_fixture.receive_one(queue)
    first = await settle_one(broker_fixture.broker.settling, queue, complete(queue, token))
    again = await settle_one(broker_fixture.broker.settling, queue, complete(queue, token))
    assert (first.outcome, first.replayed, again.replayed) == (Outcome.COMPLETED, False, True)
    with pytest.raises(AlreadySettled):
        await settle_one(broker_fixture.broker.settling, queue, dead_letter(queue, token, "late", None))
    assert await broker_fixture.state(queue, token) is None


@pytest.mark.parametrize("renewed", [False, True])
async def test_every_settlement_leaves_the_message_in_its_state(
    broker_fixture: BrokerFixture, queue: Queue, renewed: bool
) -> None:
    expected: list[tuple[str, MessageState | None]] = [
        ("complete", None),
        ("abandon", MessageState.AVAILABLE),
        ("dead_letter", MessageState.DEAD_LETTERED),
        ("defer", MessageState.DEFERRED),
    ]
    await send(broker_fixture.broker.sending, queue.name, [NewMessage(Envelope("")) for _ in expected])
    tokens = await broker_fixture.receive(queue, len(expected))
    if renewed:
        await asyncio.gather(*(renew(broker_fixture.broker.settling, queue, token) for token in tokens))
    settlements: list[SettlementRequest] = [
        complete(queue, tokens[0]),
        abandon(queue, tokens[1], Abandonment()),
        dead_letter(queue, tokens[2], "bad", None),
        defer(queue, tokens[3]),
    ]
    assert all(
        isinstance(answer, Settled) for answer in await settle(broker_fixture.broker.settling, queue, settlements)
    )
    assert [await broker_fixture.state(queue, token) for token in tokens] == [state for _, state in expected]


@pytest.mark.behaviour("S2.25", "S3.13", "S3.16")
async def test_concurrent_receives_never_lock_the_same_message(broker_fixture: BrokerFixture, queue: Queue) -> None:
    await send(broker_fixture.broker.sending, queue.name, [NewMessage(Envelope("")) for _ in range(3 * RECEIVERS)])
    taken = await asyncio.gather(*(broker_fixture.receive(queue, 3) for _ in range(RECEIVERS)))
    numbers = [token.sequence_number for tokens in taken for token in tokens]
    numbers += [token.sequence_number for token in await broker_fixture.receive(queue, 3 * RECEIVERS)]
    assert sorted(numbers) == sorted(set(numbers))
    assert len(numbers) == 3 * RECEIVERS


@pytest.mark.parametrize("renewed", [False, True])
async def test_of_concurrent_settlements_one_takes_effect(
    broker_fixture: BrokerFixture, queue: Queue, renewed: bool
) -> None:
    token = await broker_fixture.receive_one(queue)
    if renewed:
        await renew(broker_fixture.broker.settling, queue, token)
    settlements: list[SettlementRequest] = [
        complete(queue, token),
        dead_letter(queue, token, "bad", None),
        defer(queue, token),
        abandon(queue, token, Abandonment()),
    ]
    settling = asyncio.gather(
        *(settle(broker_fixture.broker.settling, queue, [settlement]) for settlement in settlements * 2)
    )
    answers = await run_advancing(broker_fixture.clock, settling)
    effective = [one for (one,) in answers if isinstance(one, Settled) and not one.replayed]
    assert len(effective) == 1


@pytest.mark.behaviour("S3.23", "S3.26", "S3.34")
@pytest.mark.parametrize("renewals", [0, 1, 3])
async def test_an_expired_lock_is_lost_and_its_message_is_available(
    broker_fixture: BrokerFixture, queue: Queue, renewals: int
) -> None:
    token = await broker_fixture.receive_one(queue)
    for _ in range(renewals):
        await broker_fixture.advance_time(LOCK_SECONDS / 2, token)
        await renew(broker_fixture.broker.settling, queue, token)
    await broker_fixture.advance_time(LOCK_SECONDS + 1, token)
    await expire_locks(broker_fixture.broker.settling)
    assert await broker_fixture.state(queue, token) is MessageState.AVAILABLE
    (answer,) = await settle(broker_fixture.broker.settling, queue, [complete(queue, token)])
    assert isinstance(answer, LockLost)
    assert answer.cause is LossCause.EXPIRED
    assert len(await broker_fixture.receive(queue)) == 1


@pytest.mark.behaviour("S3.15")
async def test_a_lock_that_is_renewed_in_time_is_kept(broker_fixture: BrokerFixture, queue: Queue) -> None:
    token = await broker_fixture.receive_one(queue)
    for _ in range(8):
        await broker_fixture.advance_time(LOCK_SECONDS / 2, token)
        await renew(broker_fixture.broker.settling, queue, token)
        await expire_locks(broker_fixture.broker.settling)
    assert await broker_fixture.receive(queue) == []
    await settle_one(broker_fixture.broker.settling, queue, complete(queue, token))


class RenewsAfterRead:
    """A store in which another renewal happens once, right after a row was read."""

    def __init__(self, store: Any, renewal: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._renewal: Callable[[], Awaitable[object]] | None = renewal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def locked_messages(self, tokens: Sequence[LockToken]) -> list[LockedMessage | None]:
        found = await self._store.locked_messages(tokens)
        if self._renewal is not None:
            renewal, self._renewal = self._renewal, None
            await renewal()
        return found


class DelayedLocks:
    """A lock store that writes its records only when the test flushes them."""

    def __init__(self, locks: Any) -> None:
        self._locks = locks
        self._records: list[tuple[LockToken, LockRecord]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    async def write_record(self, token: LockToken, record: LockRecord) -> None:
        self._records.append((token, record))

    async def flush(self) -> None:
        for token, record in self._records:
            await self._locks.write_record(token, record)


@pytest.mark.behaviour("S3.15")
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("long", [True, False])
async def test_of_two_concurrent_renewals_the_longer_promise_holds(
    broker_fixture: BrokerFixture, queue: Queue, long: bool, delayed: bool
) -> None:
    token = await broker_fixture.receive_one(queue)
    delayed_locks = DelayedLocks(broker_fixture.broker.lock_store)
    lasting = {True: 10 * LOCK_SECONDS * SECOND, False: LOCK_SECONDS * SECOND}
    first = replace(broker_fixture.broker, lock_store=delayed_locks) if delayed else broker_fixture.broker
    second = replace(
        broker_fixture.broker,
        store=RenewsAfterRead(broker_fixture.broker.store, lambda: renew(first.settling, queue, token, lasting[long])),
    )
    await renew(second.settling, queue, token, lasting[not long])
    await delayed_locks.flush()
    for _ in range(2):
        await broker_fixture.advance_time(4 * LOCK_SECONDS, token)
        await expire_locks(broker_fixture.broker.settling)
        assert await broker_fixture.state(queue, token) is MessageState.LOCKED
    await settle_one(broker_fixture.broker.settling, queue, complete(queue, token))


async def test_a_browsed_message_shows_the_end_of_its_lock_as_it_was_promised(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    browsing, renewing = broker_fixture.broker.administration, broker_fixture.broker.settling
    tokens = [await broker_fixture.receive_one(queue) for _ in range(2)]
    for _ in range(2):
        renewed = await renew(renewing, queue, tokens[0])
        shown = await show_message(browsing, queue, tokens[0].sequence_number)
        page, _ = await browse(browsing, queue, [MessageState.LOCKED], MatchAll(), 0, 10)
        ends = [(message.locked_until or 0) - message.read_at for message in (shown, page[0])]
        assert 0 < max(ends) <= renewed.duration
        await broker_fixture.advance_time(1, *tokens)
    alone = [await read(browsing, queue, tokens[1].sequence_number) for read in (read_message, show_message)]
    assert alone[0].locked_until == alone[1].locked_until, "it was never renewed"


@pytest.mark.behaviour("S3.33")
async def test_a_change_of_settings_that_locks_depend_on_revokes_them(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    token = await broker_fixture.receive_one(queue)
    await renew(broker_fixture.broker.settling, queue, token)
    await change_queue(
        broker_fixture.broker.administration, queue, lambda settings: replace(settings, max_delivery_count=3)
    )
    with pytest.raises(LockLost) as lost:
        await renew(broker_fixture.broker.settling, queue, token)
    assert lost.value.cause is LossCause.ENTITY_CHANGED
    assert await broker_fixture.state(queue, token) is MessageState.AVAILABLE


@pytest.mark.parametrize("is_renewed", [True, False])
@pytest.mark.parametrize(
    "change",
    [{"lock_duration": MINUTE}, {"lock_duration": SECOND}, {"max_delivery_count": 1}, {"status": QueueStatus.DISABLED}],
    ids=str,
)
async def test_a_change_that_keeps_locks_leaves_them_to_their_holders(
    broker_fixture: BrokerFixture, queue: Queue, change: dict[str, Any], is_renewed: bool
) -> None:
    settling = broker_fixture.broker.settling
    token = await broker_fixture.receive_one(queue)
    if is_renewed:
        await renew(settling, queue, token)
    before = await broker_fixture.broker.store.read(queue.id, token.sequence_number)
    changed = await change_queue(
        broker_fixture.broker.administration, queue, lambda old: replace(old, **change), locks=HeldLocks.KEEP
    )
    assert changed.lock_version > queue.lock_version, "an older record extends nothing"
    assert await revoke_locks(settling) == 0
    held = await broker_fixture.broker.store.read(queue.id, token.sequence_number)
    assert (before and before.locked_until) == (held and held.locked_until)
    assert (await renew(settling, changed, token)).duration == changed.settings.lock_duration
    await settle_one(settling, changed, complete(changed, token))


async def test_after_a_change_that_keeps_locks_a_renewal_writes_sql_once(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    """The record of the old version extends nothing. That of the new one does, also for a server with the old settings."""
    broker = broker_fixture.broker
    token = await broker_fixture.receive_one(queue)
    await renew(broker.settling, queue, token)
    changed = await change_queue(
        broker.administration, queue, lambda old: replace(old, lock_duration=MINUTE), locks=HeldLocks.KEEP
    )
    generations: list[int] = []
    for known in (changed, changed, queue, changed):
        await renew(broker.settling, known, token)
        held = await broker.store.read(queue.id, token.sequence_number)
        assert held is not None
        generations.append(held.lock_generation)
    assert generations == ([2, 2, 3, 4] if broker_fixture.records else [2, 3, 4, 5])
    await settle_one(broker.settling, changed, complete(changed, token))


async def test_a_kept_lock_ends_as_it_was_promised_and_counts_by_the_new_limit(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    token = await broker_fixture.receive_one(queue)
    await change_queue(
        broker_fixture.broker.administration,
        queue,
        lambda old: replace(old, lock_duration=HOUR, max_delivery_count=1),
        locks=HeldLocks.KEEP,
    )
    broker_fixture.broker.queue_cache.clear()
    await broker_fixture.advance_time(LOCK_SECONDS + 1, token)
    await expire_locks(broker_fixture.broker.settling)
    assert await broker_fixture.state(queue, token) is MessageState.DEAD_LETTERED


async def test_a_change_that_keeps_locks_leaves_an_earlier_revocation(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    token = await broker_fixture.receive_one(queue)
    store = broker_fixture.broker.store
    revoking = await store.queues.change(queue, replace(queue.settings, lock_duration=HOUR))
    assert revoking is not None
    settings = replace(revoking.settings, lock_duration=MINUTE)
    assert await store.queues.change(revoking, settings, HeldLocks.KEEP) is not None
    assert await revoke_locks(broker_fixture.broker.settling) == 1
    assert await broker_fixture.state(queue, token) is MessageState.AVAILABLE


@pytest.mark.behaviour("S3.33")
async def test_locks_are_revoked_even_if_the_process_that_changed_the_queue_crashed(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    token = await broker_fixture.receive_one(queue)
    await renew(broker_fixture.broker.settling, queue, token)
    crashing = replace(broker_fixture.broker, store=CrashesBeforeRead(broker_fixture.broker.store))
    settings = replace(queue.settings, lock_duration=2 * LOCK_SECONDS * SECOND)
    with pytest.raises(StoreUnavailable):
        await put_queue(crashing.administration, queue.name, settings)
    changed, _ = await put_queue(crashing.administration, queue.name, settings)
    await broker_fixture.advance_time(1, token)
    later = await broker_fixture.receive_one(changed)
    await expire_locks(broker_fixture.broker.settling)
    with pytest.raises(LockLost) as lost:
        await renew(broker_fixture.broker.settling, queue, token)
    assert lost.value.cause is LossCause.ENTITY_CHANGED
    assert await broker_fixture.state(queue, later) is MessageState.LOCKED, "it was given by the new settings"


class CrashesBeforeRead:
    """A store of a process that crashes before it reads which locks a change revokes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def locks_of_queue(self, *_: object) -> list[LockedMessage]:
        raise StoreUnavailable


async def test_a_purge_of_locked_messages_leaves_nothing_to_renew(broker_fixture: BrokerFixture, queue: Queue) -> None:
    token = await broker_fixture.receive_one(queue)
    await renew(broker_fixture.broker.settling, queue, token)
    assert (
        await purge(broker_fixture.broker.administration, queue, MessageSelection([MessageState.LOCKED], MatchAll()))
        == 1
    )
    with pytest.raises(LockLost) as lost:
        await renew(broker_fixture.broker.settling, queue, token)
    assert lost.value.cause is LossCause.ADMINISTRATOR


async def test_a_purge_of_locked_messages_keeps_the_queue_version(broker_fixture: BrokerFixture, queue: Queue) -> None:
    """The ETag of the queue names the same settings before and after it."""
    await broker_fixture.receive_one(queue)
    assert (
        await purge(broker_fixture.broker.administration, queue, MessageSelection([MessageState.LOCKED], MatchAll()))
        == 1
    )
    now = await reload_queue(broker_fixture.broker.administration, queue.name)
    assert now.etag == queue.etag
    assert now.lock_version > queue.lock_version


class ProcessCrash(Exception):
    """The process ends here."""


class CrashingLocks:
    """A lock store whose process crashes before it can delete a record."""

    def __init__(self, locks: Any) -> None:
        self._locks = locks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    async def delete_records(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        raise ProcessCrash


async def test_a_purge_whose_process_crashes_leaves_nothing_to_renew(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    token = await broker_fixture.receive_one(queue)
    await renew(broker_fixture.broker.settling, queue, token)
    crashing: Any = CrashingLocks(broker_fixture.broker.lock_store)
    with pytest.raises(ProcessCrash):
        await purge(
            replace(broker_fixture.broker, lock_store=crashing).administration,
            queue,
            MessageSelection([MessageState.LOCKED], MatchAll()),
        )
    with pytest.raises(LockLost) as lost:
        await renew(
            broker_fixture.broker.settling, await reload_queue(broker_fixture.broker.administration, queue.name), token
        )
    assert lost.value.cause is LossCause.ADMINISTRATOR


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_purge_of_locked_messages_includes_expired_unswept_locks(
    broker_fixture: BrokerFixture, queue: Queue, renewed: bool
) -> None:
    token = await broker_fixture.receive_one(queue)
    if renewed:
        await renew(broker_fixture.broker.settling, queue, token)
    # Longer than any lead, so that the message store itself decides that the lock has ended.
    await broker_fixture.advance_time(MINUTE // SECOND + 1, token)
    live = await broker_fixture.receive_one(queue)
    assert (
        await purge(broker_fixture.broker.administration, queue, MessageSelection([MessageState.AVAILABLE], MatchAll()))
        == 0
    )
    assert await broker_fixture.state(queue, token) is MessageState.LOCKED
    assert (
        await purge(broker_fixture.broker.administration, queue, MessageSelection([MessageState.LOCKED], MatchAll()))
        == 2
    )
    assert [await broker_fixture.state(queue, lock_token) for lock_token in (token, live)] == [None, None]
    await expire_locks(broker_fixture.broker.settling)
    assert await broker_fixture.broker.store.browse(queue.id, list(MessageState), 0, 2) == []
    with pytest.raises(LockLost) as lost:
        await settle_one(broker_fixture.broker.settling, queue, complete(queue, token))
    assert lost.value.cause is LossCause.ADMINISTRATOR


@pytest.mark.behaviour("S2.3", "S2.27")
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
async def test_a_message_that_crashes_its_receivers_is_dead_lettered_at_the_limit(
    broker_fixture: BrokerFixture, store_fixture: StoreFixture, limit: int, keyed: bool
) -> None:
    """Each receiver crashes silently, every second one after it has renewed its lock."""
    queue = await store_fixture.queue(QueueSettings(max_delivery_count=limit))
    await send(broker_fixture.broker.sending, queue.name, [NewMessage(Envelope("killer"))])
    for death in range(limit):
        attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR) if keyed else None
        (message,) = (await receive(broker_fixture.broker.receiving, queue, ReceiveRequest(), attempt)).result
        assert (message.delivery_count, message.failure_count) == (death + 1, death)
        if death % 2:
            await renew(broker_fixture.broker.settling, queue, token_of(message))
        await broker_fixture.advance_time(LOCK_SECONDS, token_of(message))
        await expire_locks(broker_fixture.broker.settling)
    assert (await receive(broker_fixture.broker.receiving, queue, ReceiveRequest())).result == []
    (dead,) = await broker_fixture.broker.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 2)
    assert (dead.failure_count, dead.dead_letter_reason) == (limit, MAX_DELIVERY_COUNT_REASON)


async def test_a_repeated_receive_reports_the_time_of_a_renewed_lock(
    broker_fixture: BrokerFixture, queue: Queue
) -> None:
    await send(broker_fixture.broker.sending, queue.name, [NewMessage(Envelope(""))])
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    (message,) = (await receive(broker_fixture.broker.receiving, queue, ReceiveRequest(), attempt)).result
    await renew(broker_fixture.broker.settling, queue, token_of(message))
    again = await receive(broker_fixture.broker.receiving, queue, ReceiveRequest(), attempt)
    assert again.replayed
    assert [token_of(received) for received in again.result] == [token_of(message)]
    assert again.result[0].lock_remaining(broker_fixture.clock.monotonic()) == LOCK_SECONDS * SECOND
    await broker_fixture.advance_time(LOCK_SECONDS, token_of(message))
    assert (await receive(broker_fixture.broker.receiving, queue, ReceiveRequest(), attempt)).result == []
