"""A message whose sender waits is claimed like any other, and leaves nothing behind unless it is completed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import UnlockedRow, Withdrawal
from app.broker.ports.settling import SynchronousSendEnd
from app.broker.ports.transactions import SettlementsFailed
from app.domain.delivery import Recovery
from app.domain.instant import DAY, HOUR, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import SHARED_BODIES_LEVEL, SYNCHRONOUS_LEVEL, Queue, QueueSettings
from app.domain.settlement import ANY_LOCK, NEVER_RENEWED, Outcome, fence_above
from app.domain.synchronous_send import SynchronousSendState
from app.domain.work_unit import WorkUnit
from tests.contract.store_fixture import (
    LOCK_DURATION,
    ServerFixture,
    StoreFixture,
    abandonment,
    claim,
    completion,
    draft,
    expiry,
    numbers,
    token,
    with_wrong_token,
)
from tests.contract.test_accepted_counts import assert_nothing_is_missing, counts

WAIT = 20 * SECOND
ENDED = LOCK_DURATION // SECOND
OPEN = SynchronousSendState(None, was_delivered=False, reply=None)
REPLY = b'{"total": 17}'


@dataclass(frozen=True)
class Offers:
    """A store with a queue, and a sender that waits."""

    fixture: StoreFixture
    queue: Queue

    async def offer(self, queue: Queue | None = None, attempt: Attempt | None = None, **fields: Any) -> int:
        """Store a message whose sender waits. Return its sequence number."""
        wanted = draft(queue or self.queue, ttl=WAIT, **{"offer_retention": 2 * WAIT} | fields)
        done = await self.fixture.store.execute(WorkUnit(drafts=[wanted]), attempt)
        return done.result.receipts[0].sequence_number

    async def claimed(self, **fields: Any) -> Message:
        """Offer a message and claim it."""
        number = await self.offer(**fields)
        (message,) = await self.fixture.claim(self.queue, 1)
        assert message.sequence_number == number
        return message

    async def settle(self, settlement: Any, end: SynchronousSendEnd = SynchronousSendEnd.SETTLED) -> bool:
        return await self.fixture.store.settle_offer(settlement, end)

    async def outcome(self, number: int) -> Outcome | None:
        return (await self.fixture.store.read_offer(number)).outcome

    async def assert_nothing_is_stored(self, number: int) -> None:
        """Assert that the message is in no queue and not in the archive."""
        assert await self.fixture.store.read(self.queue.id, number) is None
        assert await self.fixture.archived(number, "outcome") == []
        assert await self.fixture.execute(f"SELECT 1 FROM restorable WHERE sequence_number = {number}") == []
        await assert_nothing_is_missing(self.fixture, self.queue)


@pytest.fixture
def offers(store_fixture: StoreFixture, queue: Queue) -> Offers:
    return Offers(store_fixture, queue)


def complete(queue: Queue, message: Message, **fields: Any) -> Any:
    """The receiver completes the message with a reply."""
    return completion(queue, message, is_offered=True, reply=REPLY, **fields)


def abandon(message: Message, **fields: Any) -> Any:
    return abandonment(message, is_offered=True, **fields)


def lock_expiry(message: Message, **fields: Any) -> Any:
    return expiry(message, is_offered=True, **fields)


# ---- offers and claims -----------------------------------------------------------------------------------------------


async def test_an_offer_is_available_and_open(offers: Offers) -> None:
    number = await offers.offer()
    found = await offers.fixture.store.read(offers.queue.id, number)
    assert found is not None
    assert (found.state, found.is_offered) == (MessageState.AVAILABLE, True)
    assert found.expires_at == found.enqueued_at + WAIT
    assert await offers.fixture.store.read_offer(number) == OPEN


async def test_a_claim_keeps_the_mark_of_an_offer(offers: Offers) -> None:
    message = await offers.claimed()
    assert message.is_offered
    (locked,) = await offers.fixture.store.locked_messages([token(message)])
    assert locked is not None
    assert locked.is_offered
    await offers.fixture.send(offers.queue, b"ordinary")
    (ordinary,) = await offers.fixture.claim(offers.queue)
    assert not ordinary.is_offered


async def test_an_explanation_reads_the_mark_of_an_offer(offers: Offers) -> None:
    offered = await offers.fixture.store.read_facts(offers.queue.id, await offers.offer())
    assert offered is not None
    assert offered.is_offered
    (ordinary,) = await offers.fixture.send(offers.queue, b"ordinary")
    facts = await offers.fixture.store.read_facts(offers.queue.id, ordinary)
    assert facts is not None
    assert not facts.is_offered


async def test_a_claim_by_number_keeps_the_mark_of_an_offer(offers: Offers) -> None:
    number = await offers.offer()
    (message,) = await offers.fixture.store.claim_by_number(claim(offers.queue), [number])
    assert message.is_offered
    assert await offers.settle(abandon(message))
    await offers.assert_nothing_is_stored(number)


async def test_a_recovery_keeps_the_mark_of_an_offer(offers: Offers) -> None:
    number = await offers.offer()
    await offers.fixture.claim(offers.queue, receiver_id="worker")
    recovery = Recovery(offers.queue.id, "worker", 10, LOCK_DURATION)
    (again,) = (await offers.fixture.store.recover(recovery)).messages
    assert again.is_offered
    assert await offers.settle(complete(offers.queue, again))
    assert await offers.outcome(number) is Outcome.COMPLETED


async def test_no_receiver_gets_an_offer_whose_sender_waits_no_longer(offers: Offers) -> None:
    await offers.offer()
    await offers.fixture.advance_time(WAIT // SECOND + 1)
    assert await offers.fixture.claim(offers.queue) == []


async def test_the_first_offer_raises_the_level_of_its_queue(offers: Offers) -> None:
    await offers.offer()
    found = await offers.fixture.store.queues.by_id(offers.queue.id)
    assert found is not None
    assert found.feature_level == SYNCHRONOUS_LEVEL
    assert found.version == offers.queue.version


async def test_an_offer_keeps_a_higher_level_of_its_queue(offers: Offers) -> None:
    await offers.fixture.execute(f"UPDATE queue SET feature_level = {SHARED_BODIES_LEVEL} WHERE id = {offers.queue.id}")
    await offers.offer()
    assert (await current(offers)).feature_level == SHARED_BODIES_LEVEL


async def test_a_change_of_settings_keeps_the_level_of_offers(offers: Offers) -> None:
    await offers.offer()
    for settings in (QueueSettings(history=True), QueueSettings()):
        changed = await offers.fixture.store.queues.change(await current(offers), settings)
        assert changed is not None
        assert changed.feature_level == SYNCHRONOUS_LEVEL


async def test_a_repeated_attempt_finds_its_first_offer(offers: Offers) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, DAY)
    assert await offers.offer(attempt=attempt) == await offers.offer(attempt=attempt)
    assert len(await offers.fixture.claim(offers.queue)) == 1


# ---- ordinary settlements --------------------------------------------------------------------------------------------


@pytest.mark.fence("offer")
async def test_an_ordinary_completion_skips_an_offer(store_fixture: StoreFixture, queue: Queue) -> None:
    offers = Offers(store_fixture, queue)
    message = await offers.claimed()
    assert await offers.fixture.store.remove([completion(offers.queue, message)]) == [False]
    assert await offers.settle(complete(offers.queue, message))


@pytest.mark.fence("offer")
async def test_an_ordinary_abandonment_skips_an_offer(store_fixture: StoreFixture, queue: Queue) -> None:
    offers = Offers(store_fixture, queue)
    message = await offers.claimed()
    assert await offers.fixture.store.move([abandonment(message)]) == [False]
    assert await offers.settle(abandon(message))
    await offers.assert_nothing_is_stored(message.sequence_number)


@pytest.mark.fence("offer")
async def test_a_unit_passes_an_offer_over(store_fixture: StoreFixture, queue: Queue) -> None:
    offers = Offers(store_fixture, queue)
    message = await offers.claimed()
    unit = WorkUnit([completion(offers.queue, message)], [draft(queue)])
    with pytest.raises(SettlementsFailed):
        await offers.fixture.store.execute(unit, Attempt(b"k" * 32, b"f" * 32, DAY))
    assert await offers.settle(complete(offers.queue, message))


@pytest.mark.fence("offer")
async def test_an_ordinary_message_is_settled_as_no_offer(store_fixture: StoreFixture, queue: Queue) -> None:
    offers = Offers(store_fixture, queue)
    message = await offers.fixture.locked(offers.queue)
    assert not await offers.settle(complete(offers.queue, message))
    assert await offers.fixture.state(message) is MessageState.LOCKED


# ---- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", [0, SECOND, DAY])
async def test_a_completed_offer_is_archived_and_its_reply_kept(offers: Offers, retention: int) -> None:
    message = await offers.claimed()
    assert await offers.settle(complete(offers.queue, message, retention=retention))
    state = await offers.fixture.store.read_offer(message.sequence_number)
    assert state == SynchronousSendState(Outcome.COMPLETED, was_delivered=True, reply=REPLY)
    archived = await offers.fixture.archived(message.sequence_number, "outcome")
    assert archived == ([("completed",)] if retention else [])
    (tombstone,) = await offers.fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert tombstone.outcome is Outcome.COMPLETED
    assert await counts(offers.fixture, offers.queue) == (1, 0, 0 if retention else 1)
    await assert_nothing_is_missing(offers.fixture, offers.queue)


async def test_an_offer_that_is_received_and_deleted_counts_as_accepted(offers: Offers) -> None:
    message = await offers.claimed()
    assert await offers.settle(complete(offers.queue, message, outcome=Outcome.RECEIVED))
    assert await offers.outcome(message.sequence_number) is Outcome.RECEIVED


ENDS = [Outcome.ABANDONED, Outcome.DEAD_LETTERED, Outcome.DEFERRED, Outcome.RELEASED]


@pytest.mark.parametrize("outcome", ENDS)
async def test_any_other_settlement_removes_an_offer(offers: Offers, outcome: Outcome) -> None:
    message = await offers.claimed()
    assert await offers.settle(abandon(message, outcome=outcome, state=MessageState.DEAD_LETTERED, delay=DAY))
    await assert_removed(offers, message, outcome)


@pytest.mark.parametrize("outcome", [Outcome.ENTITY_CHANGED, Outcome.PURGED])
async def test_an_administrator_ends_an_offer_even_late(offers: Offers, outcome: Outcome) -> None:
    message = await offers.claimed()
    await offers.fixture.advance_time(ENDED)
    assert await offers.settle(abandon(message, outcome=outcome, fence=ANY_LOCK))
    await assert_removed(offers, message, outcome)


async def test_a_removal_that_is_no_completion_archives_nothing(offers: Offers) -> None:
    message = await offers.claimed()
    assert await offers.settle(complete(offers.queue, message, outcome=Outcome.PURGED))
    await offers.assert_nothing_is_stored(message.sequence_number)


async def test_an_offer_is_removed_when_its_lock_has_ended(offers: Offers) -> None:
    message = await offers.claimed()
    assert not await offers.settle(lock_expiry(message, fence=fence_above(-1)), SynchronousSendEnd.LOCK_ENDED)
    await offers.fixture.advance_time(ENDED)
    assert not await offers.settle(complete(offers.queue, message))
    assert await offers.settle(lock_expiry(message, fence=fence_above(-1)), SynchronousSendEnd.LOCK_ENDED)
    await assert_removed(offers, message, Outcome.LOCK_EXPIRED)


async def test_an_expired_generation_ends_an_offer(offers: Offers) -> None:
    message = await offers.claimed()
    assert await offers.settle(lock_expiry(message, fence=fence_above(0)), SynchronousSendEnd.LOCK_ENDED)
    await assert_removed(offers, message, Outcome.LOCK_EXPIRED)


END_VERBS: dict[str, Callable[[Offers, Message], Awaitable[object]]] = {
    "completed": lambda offers, message: offers.settle(complete(offers.queue, message)),
    "abandoned": lambda offers, message: offers.settle(abandon(message)),
    "withdrawn": lambda offers, message: offers.fixture.store.withdraw_offer(message.sequence_number),
}
"""How a receiver or the sender ends an offer, by its outcome."""


@pytest.mark.parametrize("outcome", END_VERBS)
async def test_an_offer_and_its_end_concern_no_other_message(offers: Offers, outcome: str) -> None:
    available = await offers.offer(await offers.fixture.queue())
    ordinary, other = await offers.fixture.locked(offers.queue), await offers.claimed()
    message = await offers.claimed()
    assert await END_VERBS[outcome](offers, message)
    state = await offers.fixture.store.read_offer(message.sequence_number)
    assert (state.outcome, state.was_delivered) == (Outcome(outcome), True)
    for number in (available, other.sequence_number):
        assert await offers.fixture.store.read_offer(number) == OPEN
    assert await offers.fixture.store.tombstones([token(ordinary), token(other)]) == [None, None]
    assert await offers.fixture.store.remove([completion(offers.queue, ordinary)]) == [True]
    assert await offers.settle(abandon(other))
    assert (await offers.fixture.store.withdraw_offer(available)).outcome is Outcome.WITHDRAWN


async def assert_removed(offers: Offers, message: Message, outcome: Outcome) -> None:
    state = await offers.fixture.store.read_offer(message.sequence_number)
    assert state == SynchronousSendState(outcome, was_delivered=True, reply=None)
    await offers.assert_nothing_is_stored(message.sequence_number)
    (tombstone,) = await offers.fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert (tombstone.outcome, tombstone.state) == (outcome, None)


async def test_an_available_offer_is_purged_without_a_trace(offers: Offers) -> None:
    number = await offers.offer()
    row = UnlockedRow(number, offers.queue.id, MessageState.AVAILABLE)
    withdrawal = Withdrawal(row, offers.queue.name, Outcome.PURGED, DAY)
    assert await offers.fixture.store.withdraw([withdrawal]) == [True]
    assert await offers.outcome(number) is Outcome.PURGED
    await offers.assert_nothing_is_stored(number)


async def test_an_offer_whose_sender_is_gone_expires_without_a_trace(offers: Offers) -> None:
    number = await offers.offer()
    await offers.fixture.advance_time(WAIT // SECOND + 1)
    (row,) = await offers.fixture.store.expired_messages(10)
    assert row.is_offered
    withdrawal = Withdrawal(row, offers.queue.name, Outcome.EXPIRED, DAY)
    assert await offers.fixture.store.expire([withdrawal]) == [True]
    assert await offers.outcome(number) is Outcome.EXPIRED
    await offers.assert_nothing_is_stored(number)


async def test_the_deletion_of_its_queue_removes_an_offer(offers: Offers) -> None:
    locked, available = await offers.claimed(), await offers.offer()
    assert await offers.fixture.store.queues.delete(await current(offers))
    await offers.fixture.store.delete_expired(100)
    for number in (available, locked.sequence_number):
        assert await offers.outcome(number) is Outcome.PURGED
        await offers.assert_nothing_is_stored(number)


async def current(offers: Offers) -> Queue:
    found = await offers.fixture.store.queues.by_id(offers.queue.id)
    assert found is not None
    return found


# ---- fences ----------------------------------------------------------------------------------------------------------


@pytest.mark.fence("queue", "token")
async def test_a_settlement_of_an_offer_names_its_lock(store_fixture: StoreFixture, queue: Queue) -> None:
    offers = Offers(store_fixture, queue)
    message, other = await offers.claimed(), await offers.fixture.queue()
    wrong = [
        complete(offers.queue, with_wrong_token(message)),
        complete(other, message),
        complete(offers.queue, message, fence=fence_above(0)),
        lock_expiry(with_wrong_token(message), fence=ANY_LOCK),
        replace(lock_expiry(message, fence=ANY_LOCK), queue_id=other.id),
    ]
    assert [await offers.settle(settlement) for settlement in wrong] == [False] * len(wrong)
    assert await offers.settle(complete(offers.queue, message))
    assert not await offers.settle(complete(offers.queue, message)), "the token is gone"


async def test_a_renewed_offer_needs_the_fence_of_its_generation(offers: Offers) -> None:
    message = await offers.claimed()
    await offers.fixture.execute(
        f"UPDATE message SET lock_generation = 2 WHERE sequence_number = {message.sequence_number}"
    )
    assert not await offers.settle(complete(offers.queue, message, fence=NEVER_RENEWED))
    assert not await offers.settle(complete(offers.queue, message, fence=fence_above(2)))
    assert await offers.settle(complete(offers.queue, message, fence=fence_above(1)))


# ---- withdrawals -----------------------------------------------------------------------------------------------------


async def test_a_sender_withdraws_an_offer_that_no_receiver_has_taken(offers: Offers) -> None:
    number = await offers.offer()
    withdrawn = SynchronousSendState(Outcome.WITHDRAWN, was_delivered=False, reply=None)
    assert await offers.fixture.store.withdraw_offer(number) == withdrawn
    assert await offers.fixture.store.withdraw_offer(number) == withdrawn
    assert await offers.fixture.claim(offers.queue) == []
    await offers.assert_nothing_is_stored(number)


async def test_a_withdrawal_takes_an_offer_from_its_receiver(offers: Offers) -> None:
    message = await offers.claimed()
    state = await offers.fixture.store.withdraw_offer(message.sequence_number)
    assert state == SynchronousSendState(Outcome.WITHDRAWN, was_delivered=True, reply=None)
    assert not await offers.settle(complete(offers.queue, message))
    await assert_removed(offers, message, Outcome.WITHDRAWN)


@pytest.mark.parametrize("retention", [0, DAY])
async def test_a_completion_by_an_older_server_reaches_the_sender(offers: Offers, retention: int) -> None:
    message = await offers.claimed()
    await offers.fixture.execute(f"UPDATE message SET home_state = 1 WHERE sequence_number = {message.sequence_number}")
    older = completion(offers.queue, message, retention=retention)
    assert await offers.fixture.store.remove([older]) == [True]
    state = await offers.fixture.store.withdraw_offer(message.sequence_number)
    assert state == SynchronousSendState(Outcome.COMPLETED, was_delivered=True, reply=None)


async def test_a_release_by_an_older_server_is_withdrawn(offers: Offers) -> None:
    message = await offers.claimed()
    await offers.fixture.execute(f"UPDATE message SET home_state = 1 WHERE sequence_number = {message.sequence_number}")
    assert await offers.fixture.store.move([abandonment(message)]) == [True]
    state = await offers.fixture.store.withdraw_offer(message.sequence_number)
    assert state == SynchronousSendState(Outcome.WITHDRAWN, was_delivered=True, reply=None)
    assert await offers.fixture.claim(offers.queue) == []


async def test_what_an_older_server_has_ended_and_forgotten_is_withdrawn(offers: Offers) -> None:
    message = await offers.claimed()
    await offers.fixture.execute(f"UPDATE message SET home_state = 1 WHERE sequence_number = {message.sequence_number}")
    assert await offers.fixture.store.remove([completion(offers.queue, message, retention=0)]) == [True]
    await offers.fixture.execute(f"DELETE FROM settlement WHERE sequence_number = {message.sequence_number}")
    state = await offers.fixture.store.withdraw_offer(message.sequence_number)
    assert state == SynchronousSendState(Outcome.WITHDRAWN, was_delivered=True, reply=None)


async def test_a_withdrawal_after_the_completion_finds_the_reply(offers: Offers) -> None:
    message = await offers.claimed()
    assert await offers.settle(complete(offers.queue, message))
    state = await offers.fixture.store.withdraw_offer(message.sequence_number)
    assert state == SynchronousSendState(Outcome.COMPLETED, was_delivered=True, reply=REPLY)


@pytest.mark.parametrize("store_fixture", ["postgresql"], indirect=True)
async def test_a_withdrawal_waits_for_the_completion_that_holds_the_row(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    """A completion that has locked the row and not committed is undone: the withdrawal then takes the row."""
    offers = Offers(store_fixture, queue)
    message = await offers.claimed()
    number = message.sequence_number
    locked = f"SELECT 1 FROM message WHERE sequence_number = {number} FOR UPDATE"
    async with store_fixture.open_transaction(locked):
        assert not await offers.settle(complete(offers.queue, message)), "another transaction holds the row"
        withdrawing = asyncio.ensure_future(offers.fixture.store.withdraw_offer(number))
        await store_fixture.wait_until_blocked()
    assert (await withdrawing).outcome is Outcome.WITHDRAWN
    assert not await offers.settle(complete(offers.queue, message))


async def test_either_a_withdrawal_or_a_completion_takes_effect(offers: Offers) -> None:
    for _ in range(10):
        message = await offers.claimed()
        store = offers.fixture.store
        completed, state = await asyncio.gather(
            offers.settle(complete(offers.queue, message)), store.withdraw_offer(message.sequence_number)
        )
        assert state.outcome is (Outcome.COMPLETED if completed else Outcome.WITHDRAWN)
        assert await store.read_offer(message.sequence_number) == state
        assert bool(await offers.fixture.archived(message.sequence_number, "outcome")) is completed


async def test_a_withdrawal_ends_a_message_that_is_claimed_at_the_same_time(offers: Offers) -> None:
    for _ in range(10):
        number = await offers.offer()
        store = offers.fixture.store
        claimed, state = await asyncio.gather(offers.fixture.claim(offers.queue), store.withdraw_offer(number))
        assert state.outcome is Outcome.WITHDRAWN
        assert state.was_delivered is bool(claimed)
        for message in claimed:
            assert not await offers.settle(complete(offers.queue, message))
        await offers.assert_nothing_is_stored(number)


# ---- retention -------------------------------------------------------------------------------------------------------


async def test_outcomes_are_forgotten_after_their_time(offers: Offers) -> None:
    for retention in (0, DAY):
        ordinary = await offers.fixture.locked(offers.queue)
        await offers.fixture.store.remove([completion(offers.queue, ordinary, retention=retention)])
    number = await offers.offer()
    await offers.fixture.store.withdraw_offer(number)
    await offers.fixture.store.delete_expired(100)
    assert await offers.fixture.execute("SELECT sequence_number FROM offer") == [(number,)]
    await offers.fixture.advance_time(2 * WAIT // SECOND)
    await offers.fixture.store.delete_expired(100)
    assert await offers.fixture.execute("SELECT sequence_number FROM offer") == []
    forgotten = await offers.fixture.store.read_offer(number)
    assert forgotten == SynchronousSendState(Outcome.WITHDRAWN, was_delivered=False, reply=None)


async def test_outcomes_are_forgotten_in_batches_earliest_first(offers: Offers) -> None:
    for retention in (3 * WAIT, WAIT, 2 * WAIT):
        await offers.fixture.store.withdraw_offer(await offers.offer(offer_retention=retention))
    await offers.fixture.advance_time(3 * WAIT // SECOND)
    left = []
    for _ in range(3):
        await offers.fixture.store.delete_expired(1)
        left.append(len(await offers.fixture.execute("SELECT sequence_number FROM offer")))
    assert left == [2, 1, 0]


async def test_a_recovered_offer_ended_as_its_last_delivery_did(offers: Offers) -> None:
    recovered = [await offers.offer() for _ in range(8)]
    await offers.fixture.claim(offers.queue, receiver_id="worker")
    recovery = Recovery(offers.queue.id, "worker", 10, LOCK_DURATION)
    for message in (await offers.fixture.store.recover(recovery)).messages:
        assert await offers.settle(complete(offers.queue, message, retention=0))
    await offers.fixture.advance_time(2 * WAIT // SECOND)
    await offers.fixture.store.delete_expired(100)
    assert {await offers.outcome(number) for number in recovered} == {Outcome.COMPLETED}


@pytest.mark.parametrize("retention", [0, DAY])
async def test_a_sender_that_was_paused_for_long_reads_a_completion_without_its_reply(
    offers: Offers, retention: int
) -> None:
    message = await offers.claimed()
    assert await offers.settle(complete(offers.queue, message, retention=retention))
    await offers.fixture.advance_time(2 * WAIT // SECOND + 1)
    await offers.fixture.store.delete_expired(100)
    completed = SynchronousSendState(Outcome.COMPLETED, was_delivered=True, reply=None)
    assert await offers.fixture.store.read_offer(message.sequence_number) == completed
    assert await offers.fixture.store.withdraw_offer(message.sequence_number) == completed


async def test_an_offer_is_remembered_while_a_receiver_holds_it(offers: Offers) -> None:
    number = await offers.offer()
    (message,) = await offers.fixture.claim(offers.queue, lock_duration=HOUR)
    await offers.fixture.advance_time(2 * WAIT // SECOND + 1)
    await offers.fixture.store.delete_expired(100)
    assert await offers.outcome(number) is None
    assert await offers.settle(abandon(message))
    await offers.assert_nothing_is_stored(number)


async def test_an_offer_waits_behind_messages_of_a_higher_priority(offers: Offers) -> None:
    number = await offers.offer()
    (urgent,) = await offers.fixture.send(offers.queue, b"urgent", priority=9)
    assert numbers(await offers.fixture.claim(offers.queue)) == [urgent, number]


async def test_an_offer_counts_while_it_is_in_its_queue(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(max_messages=1))
    offers = Offers(store_fixture, queue)
    number = await offers.offer()
    assert await store_fixture.store.queues.total(queue.id) == 1
    await store_fixture.store.withdraw_offer(number)
    assert await store_fixture.store.queues.total(queue.id) == 0
