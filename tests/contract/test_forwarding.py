"""No change of settings makes queues forward in a cycle, and a forwarded dead letter keeps what it was."""

import asyncio
import json
from dataclasses import replace

import pytest

from app.broker.ports import QueueGone, Redrive, UnlockedRow
from app.domain.message import Envelope, MessageState
from app.domain.queue import MAX_FORWARDING_HOPS, Queue, QueueSettings
from app.domain.refusals import ForwardingCycle, ForwardingTooLong, InvalidRequest
from tests.brokers import dead_letter_all
from tests.contract.store_fixture import ServerFixture, StoreFixture, abandonment, draft


async def forward(store_fixture: StoreFixture, queue: Queue, to: str) -> Queue | None:
    """Let the queue forward to the queue of this name."""
    return await store_fixture.store.queues.change(queue, replace(queue.settings, forward_to=to))


async def test_a_queue_forwards_to_a_queue_that_exists(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    first, second = await store_fixture.queue(), await store_fixture.queue()
    changed = await forward(store_fixture, first, second.name)
    assert changed is not None
    assert await store.queues.by_name(first.name) == changed
    assert changed.settings.forward_to == second.name
    with pytest.raises(InvalidRequest, match="absent"):
        await forward(store_fixture, second, "absent")
    with pytest.raises(InvalidRequest, match="absent"):
        await store.queues.create("new", QueueSettings(forward_to="absent"))
    assert await store.queues.by_name(second.name) == second
    assert await store.queues.by_name("new") is None


async def test_a_way_back_to_the_queue_is_refused(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    a, b = await store_fixture.queue(), await store_fixture.queue()
    with pytest.raises(ForwardingCycle):
        await forward(store_fixture, a, a.name)
    with pytest.raises(ForwardingCycle):
        await store.queues.create("self", QueueSettings(forward_to="self"))
    changed = await forward(store_fixture, b, a.name)
    with pytest.raises(ForwardingCycle, match=f"{a.name} forwards to {b.name} forwards to {a.name}"):
        await forward(store_fixture, a, b.name)
    assert await store.queues.delete(a)
    with pytest.raises(ForwardingCycle):
        await store.queues.create(a.name, QueueSettings(forward_to=b.name))
    assert await store.queues.by_name(b.name) == changed


async def test_a_chain_has_a_limited_number_of_hops(store_fixture: StoreFixture) -> None:
    queues = [await store_fixture.queue() for _ in range(MAX_FORWARDING_HOPS + 2)]
    for queue, target in zip(queues[-2:0:-1], queues[:1:-1], strict=True):
        assert await forward(store_fixture, queue, target.name)
    with pytest.raises(ForwardingTooLong, match=queues[-2].name):
        await forward(store_fixture, queues[0], queues[1].name)


async def test_a_way_back_over_dead_letters_is_refused(store_fixture: StoreFixture) -> None:
    a, b, c = [await store_fixture.queue() for _ in range(3)]

    async def forward_dead_letters(queue: Queue, to: str) -> Queue | None:
        return await store_fixture.store.queues.change(queue, replace(queue.settings, forward_dead_letters_to=to))

    with pytest.raises(InvalidRequest, match="absent"):
        await forward_dead_letters(a, "absent")
    with pytest.raises(ForwardingCycle, match=f"Queue {a.name} forwards dead letters to {a.name}"):
        await forward_dead_letters(a, a.name)
    assert await forward(store_fixture, a, b.name)
    assert await forward_dead_letters(b, c.name)
    way = f"Queue {c.name} forwards dead letters to {a.name} forwards to {b.name} forwards dead letters to {c.name}"
    with pytest.raises(ForwardingCycle, match=way):
        await forward_dead_letters(c, a.name)
    with pytest.raises(ForwardingCycle):
        await forward(store_fixture, c, b.name)


async def test_concurrent_changes_do_not_make_a_cycle_together(store_fixture: StoreFixture) -> None:
    for _ in range(10):
        a, b, c = [await store_fixture.queue() for _ in range(3)]
        answers = await asyncio.gather(
            forward(store_fixture, a, b.name),
            forward(store_fixture, b, c.name),
            forward(store_fixture, c, a.name),
            return_exceptions=True,
        )
        assert sorted(isinstance(answer, ForwardingCycle) for answer in answers) == [False, False, True]


async def dead_letter_one(store_fixture: StoreFixture, queue: Queue) -> None:
    """Leave a dead letter in a queue."""
    await store_fixture.send(queue, b"body")
    assert await dead_letter_all(store_fixture.store, queue) == 1


async def test_queues_with_dead_letters_to_forward_are_listed(store_fixture: StoreFixture) -> None:
    """The background loop reads no queue that has nothing to forward, however many there are."""
    store, target = store_fixture.store, await store_fixture.queue()
    others = [await store_fixture.queue(settings) for settings in (QueueSettings(), QueueSettings(history=True))]
    forwarding = await store_fixture.queue(QueueSettings(forward_dead_letters_to=target.name))
    await store_fixture.send(forwarding, b"available")
    await dead_letter_one(store_fixture, others[0])
    assert [queue for queue in await store.queues.that_forward_dead_letters() if queue.id >= target.id] == []
    await store_fixture.claim(forwarding)
    await dead_letter_one(store_fixture, forwarding)
    assert [queue for queue in await store.queues.that_forward_dead_letters() if queue.id >= target.id] == [forwarding]
    assert await forward(store_fixture, others[0], target.name)
    assert await store.queues.change(forwarding, QueueSettings())
    assert [queue for queue in await store.queues.that_forward_dead_letters() if queue.id >= target.id] == []


@pytest.mark.parametrize("properties", [b"", b'{"region":"eu","dead_letter_queue":"an earlier one"}'])
async def test_a_forwarded_dead_letter_keeps_its_reason_and_names_its_queue(
    store_fixture: StoreFixture, properties: bytes
) -> None:
    source, target = await store_fixture.queue(), await store_fixture.queue()
    envelope = Envelope("id", properties=properties)
    (receipt,) = await store_fixture.store.send([draft(source, b"body", envelope=envelope)])
    (held,) = await store_fixture.claim(source)
    dead_lettering = abandonment(held, state=MessageState.DEAD_LETTERED, dead_letter_reason="no-stock")
    assert await store_fixture.store.move([dead_lettering]) == [True]
    row = UnlockedRow(receipt.sequence_number, source.id, MessageState.DEAD_LETTERED)
    redrive = Redrive(row, target.id, forwarded_from=source)
    assert await store_fixture.store.redrive([redrive, redrive]) == [True, False]
    (moved,) = await store_fixture.claim(target)
    assert (moved.sequence_number, moved.body, moved.dead_letter_reason) == (held.sequence_number, b"body", "no-stock")
    assert moved.dead_lettered_at is not None
    kept = {name: value for name, value in json.loads(properties or b"{}").items() if name == "region"}
    assert json.loads(moved.envelope.properties) == {**kept, "dead_letter_queue": source.name}


async def dead_letter_to_forward(store_fixture: StoreFixture) -> Redrive:
    """Dead-letter a message. Return its redrive into another queue, by a process that has just read the queue."""
    source, target = await store_fixture.queue(), await store_fixture.queue()
    (number,) = await store_fixture.send(source, b"body")
    assert await dead_letter_all(store_fixture.store, source) == 1
    row = UnlockedRow(number, source.id, MessageState.DEAD_LETTERED)
    return Redrive(row, target.id, forwarded_from=source)


@pytest.mark.fence("version")
async def test_a_queue_that_was_changed_meanwhile_forwards_nothing(store_fixture: StoreFixture) -> None:
    redrive = await dead_letter_to_forward(store_fixture)
    assert redrive.forwarded_from is not None
    changed = await store_fixture.store.queues.change(redrive.forwarded_from, QueueSettings(max_messages=7))
    with pytest.raises(QueueGone):
        await store_fixture.store.redrive([redrive])
    assert await store_fixture.store.redrive([replace(redrive, forwarded_from=changed)]) == [True]


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
async def test_a_queue_that_is_being_changed_forwards_nothing(store_fixture: ServerFixture) -> None:
    redrive = await dead_letter_to_forward(store_fixture)
    change = f"UPDATE queue SET version = version + 1 WHERE id = {redrive.row.queue_id}"
    async with store_fixture.open_transaction(change):
        with pytest.raises(QueueGone):
            await store_fixture.store.redrive([redrive])
    assert await store_fixture.store.redrive([redrive]) == [True]
