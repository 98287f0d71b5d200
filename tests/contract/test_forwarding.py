"""No change of settings makes queues forward in a cycle, and a forwarded dead letter keeps what it was."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest

from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.broker.ports.sending import QueueGone
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


async def chain(store_fixture: StoreFixture, hops: int) -> list[Queue]:
    """Return new queues, each of which forwards to the next one."""
    queues = [await store_fixture.queue() for _ in range(hops + 1)]
    for queue, target in reversed(list(pairwise(queues))):
        assert await forward(store_fixture, queue, target.name)
    return queues


def way(*queues: Queue) -> str:
    """Return the words for a chain of queues."""
    return "Queue " + " forwards to ".join(queue.name for queue in queues) + "."


@pytest.mark.parametrize("hops_before", range(MAX_FORWARDING_HOPS + 1))
async def test_a_change_that_makes_a_chain_too_long_is_refused(store_fixture: StoreFixture, hops_before: int) -> None:
    """Wherever in the chain the change is: at its beginning, in its middle or at its end."""
    before = await chain(store_fixture, hops_before)
    after = await chain(store_fixture, MAX_FORWARDING_HOPS - hops_before)
    with pytest.raises(ForwardingTooLong, match=way(*before, *after)):
        await forward(store_fixture, before[-1], after[0].name)
    assert await store_fixture.store.queues.by_name(before[-1].name) == before[-1]
    if len(after) > 1:
        assert await forward(store_fixture, before[-1], after[1].name)


async def test_a_queue_that_is_made_again_closes_no_chain_that_is_too_long(store_fixture: StoreFixture) -> None:
    queues = await chain(store_fixture, MAX_FORWARDING_HOPS)
    last, further = queues[-1], await store_fixture.queue()
    assert await store_fixture.store.queues.delete(last)
    with pytest.raises(ForwardingTooLong, match=way(*queues, further)):
        await store_fixture.store.queues.create(last.name, QueueSettings(forward_to=further.name))
    _, created = await store_fixture.store.queues.create(last.name, QueueSettings())
    assert created


async def test_changes_that_meet_do_not_make_a_chain_too_long_together(store_fixture: StoreFixture) -> None:
    for _ in range(5):
        first, second, third = [await chain(store_fixture, 1) for _ in range(3)]
        answers = await asyncio.gather(
            forward(store_fixture, first[-1], second[0].name),
            forward(store_fixture, second[-1], third[0].name),
            return_exceptions=True,
        )
        assert sorted(isinstance(answer, ForwardingTooLong) for answer in answers) == [False, True]


async def test_hops_of_dead_letters_count_before_the_change_too(store_fixture: StoreFixture) -> None:
    queues = await chain(store_fixture, MAX_FORWARDING_HOPS - 1)
    first, last = [await store_fixture.queue() for _ in range(2)]
    assert await store_fixture.store.queues.change(first, QueueSettings(forward_dead_letters_to=queues[0].name))
    with pytest.raises(ForwardingTooLong, match=f"Queue {first.name} forwards dead letters to {queues[0].name} "):
        await forward(store_fixture, queues[-1], last.name)


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
    back = f"Queue {c.name} forwards dead letters to {a.name} forwards to {b.name} forwards dead letters to {c.name}"
    with pytest.raises(ForwardingCycle, match=back):
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
