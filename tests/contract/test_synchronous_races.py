"""The sender's answer and the message agree for ever, however the steps of sender and receiver interleave."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from app.broker.ports.attempts import Attempt
from app.broker.ports.store import Store
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send_synchronously import send_synchronously
from app.broker.settling.outcomes import Abandonment, abandon, complete
from app.broker.settling.settle import settle_one
from app.domain.instant import DAY, SECOND
from app.domain.message import Envelope
from app.domain.queue import Queue
from app.domain.refusals import LockLost, LossCause, NoAnswer, NoReceiver, NotAccepted, Refusal
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from app.domain.synchronous_send import ANSWER_RETENTION, wait_key_of_sender
from tests.bounds import bounded
from tests.brokers import ChangedStore, OpenBroker, build_broker
from tests.contract.store_fixture import StoreFixture
from tests.locks.lock_records import unique_keys
from tests.locks.test_notifier import NotifierProcess
from tests.virtual_clock import VirtualClock

WAIT = 600.0
ATTEMPT = Attempt(b"k" * 32, b"f" * 32, DAY)
Step = Callable[..., Awaitable[Any]]


class Race:
    """A sender and a receiver of one queue. A test says what happens just before a step of the store."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self.store, self.queue = store, queue
        self.broker = build_broker(store, VirtualClock())
        self.tokens: list[LockToken] = []

    def before(self, step: str, act: Callable[[], Awaitable[Any]]) -> OpenBroker:
        """Return a broker whose store acts once before this step."""
        original: Step = getattr(self.store, step)
        acts = [act]

        async def acting(*args: Any) -> Any:
            if acts:
                await acts.pop()()
            return await original(*args)

        changed: Any = ChangedStore(self.store, **{step: acting})
        return replace(self.broker, store=changed)

    async def send(self, broker: OpenBroker | None = None, attempt: Attempt | None = None) -> Any:
        """Send, and wait for the settlement. Return the outcome or the refusal."""
        ports = (broker or self.broker).sending
        try:
            return (await send_synchronously(ports, self.queue.name, NewMessage(Envelope("")), WAIT, attempt)).result
        except Refusal as refusal:
            return refusal

    async def send_impatiently(self, broker: OpenBroker | None = None, attempt: Attempt | None = None) -> Any:
        """Send, and withdraw the message at the first look that finds no outcome, as a stopping server does."""
        self.broker.wait_queue.close()
        return await self.send(broker, attempt)

    async def claim(self) -> None:
        """Claim the message."""
        messages = (await receive(self.broker.receiving, self.queue, ReceiveRequest())).result
        self.tokens += map(token_of, messages)

    async def complete(self) -> None:
        """Claim the message, unless it is claimed, and complete it."""
        if not self.tokens:
            await self.claim()
        await settle_one(self.broker.settling, self.queue, complete(self.queue, self.tokens[0], b'"yes"'))

    async def abandon(self) -> None:
        """Claim the message and give it back."""
        await self.claim()
        await settle_one(self.broker.settling, self.queue, abandon(self.queue, self.tokens[0], Abandonment()))

    async def assert_lost(self) -> None:
        """Assert that the receiver can not complete the message any more, and that nothing is left of it."""
        with pytest.raises(LockLost) as lost:
            await self.complete()
        assert lost.value.cause is LossCause.WITHDRAWN
        await self.assert_nothing_is_stored()

    async def assert_nothing_is_stored(self) -> None:
        assert await self.store.queues.total(self.queue.id) == 0
        assert (await receive(self.broker.receiving, self.queue, ReceiveRequest())).result == []


@pytest.fixture
def race(store_fixture: StoreFixture, queue: Queue) -> Race:
    return Race(store_fixture.store, queue)


async def test_a_completion_just_before_the_withdrawal_is_heard(race: Race) -> None:
    answer = await race.send_impatiently(race.before("withdraw_offer", race.complete))
    assert (answer.outcome, answer.reply) == ("completed", b'"yes"')


async def test_a_refusal_just_before_the_withdrawal_is_heard(race: Race) -> None:
    assert isinstance(await race.send_impatiently(race.before("withdraw_offer", race.abandon)), NotAccepted)
    await race.assert_nothing_is_stored()


async def test_a_claim_just_before_the_withdrawal_loses_the_message(race: Race) -> None:
    assert isinstance(await race.send_impatiently(race.before("withdraw_offer", race.claim)), NoAnswer)
    await race.assert_lost()


async def test_a_claim_just_after_the_withdrawal_finds_nothing(race: Race) -> None:
    assert isinstance(await race.send_impatiently(), NoReceiver)
    await race.assert_nothing_is_stored()


async def test_a_sender_paused_until_its_outcome_is_deleted_hears_of_the_completion(
    race: Race, store_fixture: StoreFixture
) -> None:
    async def complete_and_forget() -> None:
        await race.complete()
        await store_fixture.advance_time(WAIT + ANSWER_RETENTION / SECOND + 1)
        await store_fixture.store.delete_expired(100)

    answer = await race.send(race.before("read_offer", complete_and_forget))
    assert answer.outcome == "completed"


async def test_a_withdrawal_just_before_the_completion_wins(race: Race) -> None:
    """The receiver has read the row when the sender withdraws it."""
    sender = asyncio.ensure_future(race.send())
    for _ in bounded("the message is offered"):
        await race.claim()
        if race.tokens:
            break
        await asyncio.sleep(0.01)

    async def withdraw() -> None:
        await race.store.withdraw_offer(race.tokens[0].sequence_number)

    receiver = race.before("settle_offer", withdraw)
    with pytest.raises(LockLost):
        await settle_one(receiver.settling, race.queue, complete(race.queue, race.tokens[0]))
    race.broker.wait_queue.wake(wait_key_of_sender(race.tokens[0].sequence_number))
    assert isinstance(await sender, NoAnswer)
    await race.assert_lost()


async def test_a_repeat_after_the_death_of_the_sender_hears_the_completion(race: Race) -> None:
    await dying_sender(race)
    await race.complete()
    answer = await race.send_impatiently(attempt=ATTEMPT)
    assert (answer.outcome, answer.reply) == ("completed", b'"yes"')
    assert await race.send_impatiently(attempt=ATTEMPT) == answer
    await race.assert_nothing_is_stored()


async def test_a_repeat_after_the_death_of_the_sender_stores_no_second_message(race: Race) -> None:
    await dying_sender(race)
    assert isinstance(await race.send_impatiently(attempt=ATTEMPT), NoReceiver)
    await race.assert_nothing_is_stored()


async def dying_sender(race: Race) -> None:
    """Send, and die once the message is stored."""

    async def die(*_: Any) -> Any:
        raise ConnectionAbortedError

    changed: Any = ChangedStore(race.store, read_offer=die)
    with pytest.raises(ConnectionAbortedError):
        await race.send(replace(race.broker, store=changed), ATTEMPT)


async def test_a_sender_in_another_process_is_woken_by_the_settlement(
    stores: list[Store], queue: Queue, redis_url: str
) -> None:
    """No time passes for the sender, so nothing but the notification can wake it."""
    keys = unique_keys()
    async with (
        aclosing(NotifierProcess(redis_url, keys, "sender")) as here,
        aclosing(NotifierProcess(redis_url, keys, "receiver")) as there,
        Redis.from_url(redis_url) as redis,
    ):
        await subscribers(redis, keys.broadcast_channel(), 2)
        sender, receiver = Race(stores[0], queue), Race(stores[1], queue)
        sender.broker = replace(sender.broker, notifier=here.notifier, wait_queue=here.wait_queue)
        receiver.broker = replace(receiver.broker, notifier=there.notifier, wait_queue=there.wait_queue)
        sending = asyncio.ensure_future(sender.send())
        for _ in bounded("the message is offered"):
            await receiver.claim()
            if receiver.tokens:
                break
            await asyncio.sleep(0.01)
        channel = keys.channel_of(wait_key_of_sender(receiver.tokens[0].sequence_number))
        await subscribers(redis, channel, 1)
        await receiver.complete()
        assert (await asyncio.wait_for(sending, 20)).reply == b'"yes"'


async def subscribers(redis: Redis, channel: str, count: int) -> None:
    """Wait until this many processes subscribe to the channel."""
    for _ in bounded("processes subscribe"):
        if dict(await redis.pubsub_numsub(channel))[channel.encode()] == count:
            return
        await asyncio.sleep(0.01)
