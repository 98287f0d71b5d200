"""The verbs keep their promises over every store together with every lock store."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.broker.abandon import Abandonment, abandon
from app.broker.broker import Broker
from app.broker.complete import complete
from app.broker.dead_letter import dead_letter
from app.broker.defer import defer
from app.broker.filters import Everything
from app.broker.ports import Attempt, LockRecord, Store
from app.broker.purge import Choice, purge
from app.broker.queues import change_queue, fresh, put_queue
from app.broker.receive import Wish, receive, receive_once
from app.broker.renew import renew
from app.broker.send import send
from app.broker.settling import Ask, settle, settle_one
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import AlreadySettled, LockLost, LossCause, StoreUnavailable
from app.domain.sending import Letter
from app.domain.settlement import LIMIT_REACHED, Held, LockToken, Outcome, Settled, token_of
from app.locks.connect import connect
from app.maintenance.expiry import expire_locks
from tests.clock import VirtualClock, through
from tests.contract.subject import Subject
from tests.locks.records import PATIENCE_SECONDS, Records, locks_in_redis, own_keys
from tests.rooms import assemble

LOCK_SECONDS = 30
RECEIVERS = 16


@dataclass
class House:
    """A broker over a store and a lock store, and time for both."""

    broker: Broker
    clock: VirtualClock
    subject: Subject
    records: Records | None

    async def pass_time(self, seconds: float, *tokens: LockToken) -> None:
        await self.subject.pass_time(seconds)
        for token in tokens:
            if self.records is not None and await self.records.read(token) is not None:
                await self.records.pass_time(token, by=round(seconds * 1_000_000))

    async def locked(self, queue: Queue) -> LockToken:
        await send(self.broker, queue, [Letter(Envelope(""))])
        return (await self.received(queue))[0]

    async def received(self, queue: Queue, most: int = 1) -> list[LockToken]:
        messages = await receive(self.broker, queue, Wish(most=most))
        return [LockToken(message.sequence_number, message.lock_token or b"") for message in messages]

    async def state(self, queue: Queue, token: LockToken) -> MessageState | None:
        message = await self.broker.store.read(queue.id, token.sequence_number)
        return message and message.state


@pytest.fixture(params=["alone", "redis"])
async def house(request: pytest.FixtureRequest, subject: Subject) -> AsyncIterator[House]:
    clock = VirtualClock()
    broker = assemble(subject.store, clock)
    if request.param == "alone":
        yield House(broker, clock, subject, None)
    else:
        url, keys = request.getfixturevalue("redis_url"), own_keys()
        async with connect(url, patience_seconds=PATIENCE_SECONDS) as redis, locks_in_redis(url, keys) as locks:
            yield House(replace(broker, locks=locks), clock, subject, Records(redis, keys))
    await broker.catalogue.close()


@pytest.mark.behaviour("S0.5", "S0.6", "S0.7", "S3.20", "S2.35")
async def test_a_completion_takes_effect_once_and_its_repeat_hears_so(house: House, queue: Queue) -> None:
    token = await house.locked(queue)
    first = await settle_one(house.broker, queue, complete(queue, token))
    again = await settle_one(house.broker, queue, complete(queue, token))
    assert (first.outcome, first.replayed, again.replayed) == (Outcome.COMPLETED, False, True)
    with pytest.raises(AlreadySettled):
        await settle_one(house.broker, queue, dead_letter(queue, token, "late", None))
    assert await house.state(queue, token) is None


@pytest.mark.parametrize("renewed", [False, True])
async def test_every_ending_leaves_the_message_where_it_says(house: House, queue: Queue, renewed: bool) -> None:
    endings: list[tuple[str, MessageState | None]] = [
        ("complete", None),
        ("abandon", MessageState.AVAILABLE),
        ("dead_letter", MessageState.DEAD_LETTERED),
        ("defer", MessageState.DEFERRED),
    ]
    await send(house.broker, queue, [Letter(Envelope("")) for _ in endings])
    tokens = await house.received(queue, len(endings))
    if renewed:
        await asyncio.gather(*(renew(house.broker, queue, token) for token in tokens))
    asks: list[Ask] = [
        complete(queue, tokens[0]),
        abandon(house.broker, queue, tokens[1], Abandonment()),
        dead_letter(queue, tokens[2], "bad", None),
        defer(queue, tokens[3]),
    ]
    assert all(isinstance(answer, Settled) for answer in await settle(house.broker, queue, asks))
    assert [await house.state(queue, token) for token in tokens] == [state for _, state in endings]


@pytest.mark.behaviour("S2.25", "S3.13", "S3.16")
async def test_receivers_at_once_never_hold_the_same_message(house: House, queue: Queue) -> None:
    await send(house.broker, queue, [Letter(Envelope("")) for _ in range(3 * RECEIVERS)])
    taken = await asyncio.gather(*(house.received(queue, 3) for _ in range(RECEIVERS)))
    numbers = [token.sequence_number for tokens in taken for token in tokens]
    numbers += [token.sequence_number for token in await house.received(queue, 3 * RECEIVERS)]
    assert sorted(numbers) == sorted(set(numbers))
    assert len(numbers) == 3 * RECEIVERS


@pytest.mark.parametrize("renewed", [False, True])
async def test_of_endings_at_once_one_takes_effect(house: House, queue: Queue, renewed: bool) -> None:
    token = await house.locked(queue)
    if renewed:
        await renew(house.broker, queue, token)
    asks: list[Ask] = [
        complete(queue, token),
        dead_letter(queue, token, "bad", None),
        defer(queue, token),
        abandon(house.broker, queue, token, Abandonment()),
    ]
    settling = asyncio.gather(*(settle(house.broker, queue, [ask]) for ask in asks * 2))
    answers = await through(house.clock, settling)
    effective = [one for (one,) in answers if isinstance(one, Settled) and not one.replayed]
    assert len(effective) == 1


@pytest.mark.behaviour("S3.23", "S3.26", "S3.34")
@pytest.mark.parametrize("renewals", [0, 1, 3])
async def test_a_lock_that_ran_out_is_lost_to_its_holder_and_the_message_free(
    house: House, queue: Queue, renewals: int
) -> None:
    token = await house.locked(queue)
    for _ in range(renewals):
        await house.pass_time(LOCK_SECONDS / 2, token)
        await renew(house.broker, queue, token)
    await house.pass_time(LOCK_SECONDS + 1, token)
    await expire_locks(house.broker)
    assert await house.state(queue, token) is MessageState.AVAILABLE
    (answer,) = await settle(house.broker, queue, [complete(queue, token)])
    assert isinstance(answer, LockLost)
    assert answer.cause is LossCause.EXPIRED
    assert len(await house.received(queue)) == 1


@pytest.mark.behaviour("S3.15")
async def test_a_lock_that_is_renewed_in_time_is_kept(house: House, queue: Queue) -> None:
    token = await house.locked(queue)
    for _ in range(8):
        await house.pass_time(LOCK_SECONDS / 2, token)
        await renew(house.broker, queue, token)
        await expire_locks(house.broker)
    assert await house.received(queue) == []
    await settle_one(house.broker, queue, complete(queue, token))


class Meanwhile:
    """A store in which another renewal happens right after a row was looked at, once."""

    def __init__(self, store: Any, renewal: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._renewal: Callable[[], Awaitable[object]] | None = renewal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def held(self, tokens: Sequence[LockToken]) -> list[Held | None]:
        found = await self._store.held(tokens)
        if self._renewal is not None:
            renewal, self._renewal = self._renewal, None
            await renewal()
        return found


class HeldUp:
    """A lock store whose records are written when they are let go."""

    def __init__(self, locks: Any) -> None:
        self._locks = locks
        self._records: list[tuple[LockToken, LockRecord]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    async def record(self, token: LockToken, record: LockRecord) -> None:
        self._records.append((token, record))

    async def let_go(self) -> None:
        for token, record in self._records:
            await self._locks.record(token, record)


@pytest.mark.behaviour("S3.15")
@pytest.mark.parametrize("held_up", [False, True])
@pytest.mark.parametrize("long", [True, False])
async def test_of_two_renewals_at_once_the_longer_promise_holds(
    house: House, queue: Queue, long: bool, held_up: bool
) -> None:
    token = await house.locked(queue)
    late = HeldUp(house.broker.locks)
    lasting = {True: 10 * LOCK_SECONDS * SECOND, False: LOCK_SECONDS * SECOND}
    first = replace(house.broker, locks=late) if held_up else house.broker
    second = replace(
        house.broker, store=Meanwhile(house.broker.store, lambda: renew(first, queue, token, lasting[long]))
    )
    await renew(second, queue, token, lasting[not long])
    await late.let_go()
    for _ in range(2):
        await house.pass_time(4 * LOCK_SECONDS, token)
        await expire_locks(house.broker)
        assert await house.state(queue, token) is MessageState.LOCKED
    await settle_one(house.broker, queue, complete(queue, token))


@pytest.mark.behaviour("S3.33")
async def test_a_change_of_what_holders_rely_on_takes_their_locks(house: House, queue: Queue) -> None:
    token = await house.locked(queue)
    await renew(house.broker, queue, token)
    await change_queue(house.broker, queue, lambda settings: replace(settings, max_delivery_count=3))
    with pytest.raises(LockLost) as lost:
        await renew(house.broker, queue, token)
    assert lost.value.cause is LossCause.ENTITY_CHANGED
    assert await house.state(queue, token) is MessageState.AVAILABLE


@pytest.mark.behaviour("S3.33")
async def test_locks_are_taken_although_whoever_changed_the_queue_has_died(house: House, queue: Queue) -> None:
    token = await house.locked(queue)
    await renew(house.broker, queue, token)
    dying = replace(house.broker, store=DiesBeforeLooking(house.broker.store))
    settings = replace(queue.settings, lock_duration=2 * LOCK_SECONDS * SECOND)
    with pytest.raises(StoreUnavailable):
        await put_queue(dying, queue.name, settings)
    changed, _ = await put_queue(dying, queue.name, settings)
    await house.pass_time(1, token)
    later = await house.locked(changed)
    await expire_locks(house.broker)
    with pytest.raises(LockLost) as lost:
        await renew(house.broker, queue, token)
    assert lost.value.cause is LossCause.ENTITY_CHANGED
    assert await house.state(queue, later) is MessageState.LOCKED, "it was given by the new settings"


class DiesBeforeLooking:
    """A store of a process that dies before it looks which locks a change takes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def locks_of_queue(self, *_: object) -> list[Held]:
        raise StoreUnavailable


async def test_a_purge_of_what_is_locked_leaves_nothing_to_renew(house: House, queue: Queue) -> None:
    token = await house.locked(queue)
    await renew(house.broker, queue, token)
    assert await purge(house.broker, queue, Choice([MessageState.LOCKED], Everything())) == 1
    with pytest.raises(LockLost) as lost:
        await renew(house.broker, queue, token)
    assert lost.value.cause is LossCause.ADMINISTRATOR


async def test_a_purge_of_what_is_locked_is_no_change_of_the_queue(house: House, queue: Queue) -> None:
    """The ETag of the queue names the same settings before and after it."""
    await house.locked(queue)
    assert await purge(house.broker, queue, Choice([MessageState.LOCKED], Everything())) == 1
    now = await fresh(house.broker, queue.name)
    assert now.edition == queue.edition
    assert now.lock_version > queue.lock_version


class Dies(Exception):
    """The process ends here."""


class Dying:
    """A lock store whose process dies before it can drop a record."""

    def __init__(self, locks: Any) -> None:
        self._locks = locks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    async def drop(self, ended: Sequence[tuple[LockToken, int]]) -> None:
        raise Dies


async def test_a_purge_whose_process_dies_leaves_nothing_to_renew(house: House, queue: Queue) -> None:
    token = await house.locked(queue)
    await renew(house.broker, queue, token)
    dying: Any = Dying(house.broker.locks)
    with pytest.raises(Dies):
        await purge(replace(house.broker, locks=dying), queue, Choice([MessageState.LOCKED], Everything()))
    with pytest.raises(LockLost) as lost:
        await renew(house.broker, await fresh(house.broker, queue.name), token)
    assert lost.value.cause is LossCause.ADMINISTRATOR


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_purge_of_what_is_locked_takes_locks_that_have_ended_and_are_not_swept(
    house: House, queue: Queue, renewed: bool
) -> None:
    token = await house.locked(queue)
    if renewed:
        await renew(house.broker, queue, token)
    # Longer than any lead, so that the message store itself says that the lock has ended.
    await house.pass_time(MINUTE // SECOND + 1, token)
    live = await house.locked(queue)
    assert await purge(house.broker, queue, Choice([MessageState.AVAILABLE], Everything())) == 0
    assert await house.state(queue, token) is MessageState.LOCKED
    assert await purge(house.broker, queue, Choice([MessageState.LOCKED], Everything())) == 2
    assert [await house.state(queue, one) for one in (token, live)] == [None, None]
    await expire_locks(house.broker)
    assert await house.broker.store.browse(queue.id, list(MessageState), 0, 2) == []
    with pytest.raises(LockLost) as lost:
        await settle_one(house.broker, queue, complete(queue, token))
    assert lost.value.cause is LossCause.ADMINISTRATOR


@pytest.mark.behaviour("S2.3", "S2.27")
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
async def test_a_message_that_kills_its_receivers_is_dead_lettered_at_the_limit(
    house: House, subject: Subject, limit: int, keyed: bool
) -> None:
    """Each receiver dies in silence, every second one after it has renewed its lock."""
    queue = await subject.queue(QueueSettings(max_delivery_count=limit))
    await send(house.broker, queue, [Letter(Envelope("killer"))])
    for death in range(limit):
        (message,) = await (_received_once if keyed else receive)(house.broker, queue, Wish())
        assert (message.delivery_count, message.failure_count) == (death + 1, death)
        if death % 2:
            await renew(house.broker, queue, token_of(message))
        await house.pass_time(LOCK_SECONDS, token_of(message))
        await expire_locks(house.broker)
    assert await receive(house.broker, queue, Wish()) == []
    (dead,) = await house.broker.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 2)
    assert (dead.failure_count, dead.dead_letter_reason) == (limit, LIMIT_REACHED)


async def test_a_repeated_receive_promises_what_a_renewed_lock_keeps(house: House, queue: Queue) -> None:
    await send(house.broker, queue, [Letter(Envelope(""))])
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    (message,) = (await receive_once(house.broker, queue, Wish(), attempt)).answer
    await renew(house.broker, queue, token_of(message))
    again = await receive_once(house.broker, queue, Wish(), attempt)
    assert again.replayed
    assert [token_of(one) for one in again.answer] == [token_of(message)]
    assert again.answer[0].lock_remaining(house.clock.monotonic()) == LOCK_SECONDS * SECOND
    await house.pass_time(LOCK_SECONDS, token_of(message))
    assert (await receive_once(house.broker, queue, Wish(), attempt)).answer == []


async def _received_once(broker: Broker, queue: Queue, wish: Wish) -> list[Message]:
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    return (await receive_once(broker, queue, wish, attempt)).answer
