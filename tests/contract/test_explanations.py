"""What explanations read: the facts of a message, how it ended, and its place in the order of delivery."""

import pytest

from app.domain.delivery import DeliveryPosition, delivery_position
from app.domain.instant import HOUR, MINUTE
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import LockToken, Outcome
from app.domain.transaction import WaitingSettlement
from tests.contract.store_fixture import (
    StoreFixture,
    abandonment,
    claim,
    completion,
    draft,
    numbers,
    token,
)
from tests.contract.test_open_transactions import intend, opened


async def test_the_facts_of_a_message_are_those_of_a_read(store_fixture: StoreFixture, queue: Queue) -> None:
    held = await store_fixture.locked(queue, receiver_id="worker-1")
    facts = await store_fixture.store.read_facts(queue.id, held.sequence_number)
    message = await store_fixture.store.read(queue.id, held.sequence_number)
    assert facts is not None
    assert message is not None
    assert store_fixture.is_close(facts.read_at, message.read_at)
    names = [name for name in facts.__match_args__ if name not in ("read_at", "group_id")]
    assert [getattr(facts, name) for name in names] == [getattr(message, name) for name in names]
    assert (facts.state, facts.receiver_id) == (MessageState.LOCKED, "worker-1")
    assert facts.delivery_position == delivery_position(message)


@pytest.mark.fence("queue")
async def test_a_message_of_another_queue_has_no_facts_and_no_end(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    ended, held = await store_fixture.locked(other), await store_fixture.locked(other)
    await store_fixture.store.remove([completion(other, ended)])
    tombstone = await store_fixture.locked(other)
    await store_fixture.store.remove([completion(other, tombstone, retention=0)])
    assert await store_fixture.store.read_facts(queue.id, held.sequence_number) is None
    assert await store_fixture.store.read_end(queue.id, ended.sequence_number) is None
    assert await store_fixture.store.read_end(queue.id, tombstone.sequence_number) is None


@pytest.mark.parametrize(("retention", "receiver_id"), [(HOUR, "worker-1"), (0, None)])
async def test_the_end_of_a_message_is_read_with_and_without_an_archive(
    store_fixture: StoreFixture, retention: int, receiver_id: str | None
) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=retention))
    message = await store_fixture.locked(queue, receiver_id="worker-1")
    await store_fixture.store.remove([completion(queue, message)])
    end = await store_fixture.store.read_end(queue.id, message.sequence_number)
    assert end is not None
    assert (end.outcome, end.receiver_id) == (Outcome.COMPLETED, receiver_id)
    assert store_fixture.is_close(end.settled_at, await store_fixture.store.now())


async def test_a_delivery_that_ended_is_not_the_end_of_its_message(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message)])
    assert await store_fixture.store.read_end(queue.id, message.sequence_number) is None


async def test_the_facts_of_the_first_locked_messages_are_read(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *[b"body"] * 4)
    await store_fixture.send(await store_fixture.queue(), b"elsewhere")
    held = numbers(await store_fixture.claim(queue, 3))
    found = await store_fixture.store.locked_facts(queue.id, 2)
    assert [facts.sequence_number for facts in found] == held[:2]
    assert len(await store_fixture.store.locked_facts(queue.id, 100)) == 3


async def test_a_settlement_that_waits_for_a_commit_is_read(store_fixture: StoreFixture, queue: Queue) -> None:
    waiting, other = await store_fixture.locked(queue), await store_fixture.locked(queue)
    key = await opened(store_fixture)
    await intend(store_fixture, key, queue, completion(queue, waiting))
    transaction = await store_fixture.store.transactions.find(key)
    tokens = [token(other), token(waiting)]
    seen = await store_fixture.store.waiting_settlements(tokens, key.principal)
    assert seen == {token(waiting): WaitingSettlement(Outcome.COMPLETED, transaction.expires_at, key.id)}
    seen_by_another = await store_fixture.store.waiting_settlements(tokens, "another")
    assert seen_by_another == {token(waiting): WaitingSettlement(Outcome.COMPLETED, transaction.expires_at, None)}
    await store_fixture.store.transactions.commit(key)
    assert await store_fixture.store.waiting_settlements(tokens, key.principal) == {}
    assert await store_fixture.store.waiting_settlements([], key.principal) == {}


async def test_each_settlement_that_waits_names_its_own_transaction(store_fixture: StoreFixture, queue: Queue) -> None:
    waiting: dict[LockToken, str] = {}
    for _ in range(2):
        message, key = await store_fixture.locked(queue), await opened(store_fixture)
        await intend(store_fixture, key, queue, completion(queue, message))
        waiting[token(message)] = key.id
    for asked in ([*waiting], [*waiting][:1], [*waiting][1:]):
        seen = await store_fixture.store.waiting_settlements(asked, key.principal)
        assert {name: settlement.transaction_id for name, settlement in seen.items()} == {
            name: waiting[name] for name in asked
        }


async def test_the_messages_ahead_are_those_that_the_rules_deliver_before(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    for priority in (4, 9, 0, 4):
        await store_fixture.send(queue, b"1", b"2", priority=priority)
    await store_fixture.send(queue, b"later", delay=HOUR, priority=9)
    await store_fixture.send(await store_fixture.queue(), b"elsewhere", priority=9)
    await store_fixture.store.claim_by_number(claim(queue), numbers(await available(store_fixture, queue))[:1])
    ordered = await available(store_fixture, queue)
    assert [await ahead(store_fixture, queue, delivery_position(message)) for message in ordered] == list(range(7))


async def available(store_fixture: StoreFixture, queue: Queue) -> list[Message]:
    found = await store_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100)
    return sorted(found, key=delivery_position)


async def ahead(store_fixture: StoreFixture, queue: Queue, position: DeliveryPosition, limit: int = 100) -> int:
    return await store_fixture.store.count_ahead(queue.id, position, limit)


async def test_messages_ahead_are_counted_up_to_a_limit(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *[b"urgent"] * 3, priority=9)
    await store_fixture.send(queue, *[b"body"] * 3)
    last = (await available(store_fixture, queue))[-1]
    counted = [await ahead(store_fixture, queue, delivery_position(last), limit) for limit in (1, 3, 4, 5, 6)]
    assert counted == [1, 3, 4, 5, 5]


async def test_the_next_due_time_is_the_earliest_of_the_queue(store_fixture: StoreFixture, queue: Queue) -> None:
    assert await store_fixture.store.next_due_at(queue.id, 10) is None
    await store_fixture.send(await store_fixture.queue(), b"elsewhere", delay=MINUTE)
    await store_fixture.send(queue, b"1", delay=3 * HOUR)
    await store_fixture.send(queue, b"2", delay=HOUR)
    now = await store_fixture.store.now()
    assert store_fixture.is_close(await store_fixture.store.next_due_at(queue.id, 10), now + HOUR)


async def test_a_due_time_beyond_the_limit_is_that_of_a_later_message(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(await store_fixture.queue(), b"elsewhere", delay=MINUTE)
    await store_fixture.send(queue, b"1", delay=3 * HOUR)
    await store_fixture.send(queue, b"2", delay=HOUR)
    now = await store_fixture.store.now()
    assert store_fixture.is_close(await store_fixture.store.next_due_at(queue.id, 1), now + 3 * HOUR)
    assert store_fixture.is_close(await store_fixture.store.next_due_at(queue.id, 2), now + HOUR)


async def test_the_message_in_flight_and_those_blocked_before_are_those_of_the_group(
    store_fixture: StoreFixture,
) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=2))
    other = await store_fixture.queue(QueueSettings(group_in_flight=2))
    await grouped(store_fixture, other, "a", 4)
    await grouped(store_fixture, queue, "b", 4)
    assert await store_fixture.store.first_in_flight(queue.id, "a") is None
    sent = await grouped(store_fixture, queue, "a", 5)
    first = await store_fixture.store.first_in_flight(queue.id, "a")
    assert first is not None
    assert (first.sequence_number, first.state, first.group_id) == (sent[0], MessageState.AVAILABLE, "a")
    counted = [await store_fixture.store.count_blocked_ahead(queue.id, "a", number, 100) for number in sent]
    assert counted == [0, 0, 0, 1, 2]
    assert await store_fixture.store.count_blocked_ahead(queue.id, "a", sent[-1], 1) == 1


async def grouped(store_fixture: StoreFixture, queue: Queue, group_id: str, count: int) -> list[int]:
    """Send messages of one group. Return their sequence numbers."""
    drafts = [
        draft(queue, envelope=Envelope(f"{number}", group_id=group_id), is_in_group=True) for number in range(count)
    ]
    return [receipt.sequence_number for receipt in await store_fixture.store.send(drafts)]
