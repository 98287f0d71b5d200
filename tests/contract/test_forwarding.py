"""No change of settings makes queues forward in a cycle, however many come at the same time."""

import asyncio
from dataclasses import replace

import pytest

from app.domain.queue import MAX_FORWARDING_HOPS, Queue, QueueSettings
from app.domain.refusals import ForwardingCycle, ForwardingTooLong, InvalidRequest
from tests.contract.store_fixture import StoreFixture


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
