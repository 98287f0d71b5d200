"""The order of delivery in SQL is the order of the rules."""

from bisect import insort
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.broker.ports.store import Store
from app.domain.delivery import START_POSITION, DeliveryPosition, delivery_position, is_deliverable
from app.domain.instant import MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from tests.bounds import bounded
from tests.contract.store_fixture import StoreFixture, abandonment, bodies, claim, draft, numbers


@dataclass(frozen=True)
class MessageHistory:
    """The events of one message before its order is tested."""

    priority: int
    age: int  # seconds since it became available; negative if it is not yet
    ttl: int | None
    final_state: str


HISTORIES = st.builds(
    MessageHistory,
    priority=st.integers(0, 9) | st.sampled_from([4, 4, 4]),
    age=st.integers(-2, 3),
    ttl=st.none() | st.integers(1, 5),
    final_state=st.sampled_from(["sent", "sent", "abandoned", "deferred", "dead_lettered", "locked"]),
)
SETTLEMENTS = {
    "abandoned": (Outcome.ABANDONED, MessageState.AVAILABLE),
    "deferred": (Outcome.DEFERRED, MessageState.DEFERRED),
    "dead_lettered": (Outcome.DEAD_LETTERED, MessageState.DEAD_LETTERED),
}


@pytest.mark.behaviour("S1.85", "S1.88", "S2.14", "S2.35", "S3.17")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    histories=st.lists(HISTORIES, min_size=1, max_size=25), batches=st.lists(st.integers(1, 9), min_size=1, max_size=4)
)
async def test_messages_are_claimed_in_the_order_of_the_rules(
    store_fixture: StoreFixture, histories: list[MessageHistory], batches: list[int]
) -> None:
    queue = await store_fixture.queue()
    await apply_histories(store_fixture, queue, histories)
    await store_fixture.store.promote(1000)
    everything = await store_fixture.store.browse(queue.id, list(MessageState), 0, 1000)
    now = await store_fixture.store.now()
    expected = [m for m in sorted(everything, key=delivery_position) if is_deliverable(m, now)]
    assert await candidates(store_fixture, queue, batches[0]) == numbers(expected)
    claimed = [await store_fixture.claim(queue, most) for most in (*batches, 1000)]
    assert numbers([message for batch in claimed for message in batch]) == numbers(expected)


@pytest.mark.behaviour("S1.85", "S1.88")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 1), st.none() | st.integers(0, 9)), min_size=1, max_size=40))
async def test_a_single_claim_gets_the_first_message_that_any_replica_stored(
    store_fixture: StoreFixture, stores: list[Store], steps: list[tuple[int, int | None]]
) -> None:
    queue = await store_fixture.queue()
    waiting: list[DeliveryPosition] = []
    for replica, priority in steps:
        if priority is not None:
            (receipt,) = await stores[replica].send([draft(queue, priority=priority)])
            insort(waiting, (-priority, receipt.enqueued_at, receipt.sequence_number))
        else:
            claimed = await stores[replica].claim(claim(queue, 1))
            assert list(map(delivery_position, claimed)) == waiting[:1]
            del waiting[:1]


async def candidates(store_fixture: StoreFixture, queue: Queue, batch: int) -> list[int]:
    """Return the numbers of claimable messages, read in batches."""
    found: list[int] = []
    after = START_POSITION
    for _ in bounded("no candidate is left"):
        page = await store_fixture.store.candidates(queue.id, MessageState.AVAILABLE, after, batch)
        assert len(page) <= batch
        if not page:
            break
        found += [message.sequence_number for message in page]
        after = delivery_position(page[-1])
    return found


async def apply_histories(store_fixture: StoreFixture, queue: Queue, histories: list[MessageHistory]) -> None:
    """Send these messages, apply their events, then set their ages."""
    for history in histories:
        ttl = None if history.ttl is None else MINUTE
        (number,) = await store_fixture.send(queue, b"body", priority=history.priority, ttl=ttl)
        if history.final_state != "sent":
            taken = await store_fixture.store.claim_by_number(claim(queue, 1), [number])
            if history.final_state in SETTLEMENTS:
                outcome, state = SETTLEMENTS[history.final_state]
                await store_fixture.store.move([abandonment(m, outcome=outcome, state=state) for m in taken])
    # Relative to one moment, so that ages are exact and many messages share one.
    base = await store_fixture.store.now()
    found = await store_fixture.store.browse(queue.id, list(MessageState), 0, 1000)
    for message, history in zip(found, histories, strict=True):
        due = base - history.age * SECOND * 10
        expires = "NULL" if history.ttl is None else due + history.ttl * SECOND * 10
        await store_fixture.execute(
            f"UPDATE message SET available_at = {due}, expires_at = {expires}"
            f" WHERE sequence_number = {message.sequence_number}"
        )


@pytest.mark.behaviour("S3.17")
async def test_an_abandoned_message_returns_to_the_front(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"a", b"b", b"c")
    (first,) = await store_fixture.claim(queue, 1)
    await store_fixture.store.move([abandonment(first)])
    assert bodies(await store_fixture.claim(queue)) == [b"a", b"b", b"c"]


async def test_a_delayed_message_is_ordered_by_its_due_time(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.store.send([draft(queue, b"early"), draft(queue, b"due second", delay=20 * SECOND)])
    await store_fixture.store.send([draft(queue, b"due first", delay=10 * SECOND)])
    await store_fixture.advance_time(30)
    await store_fixture.send(queue, b"late")
    await store_fixture.store.promote(100)
    assert bodies(await store_fixture.claim(queue)) == [b"early", b"due first", b"due second", b"late"]


async def test_a_higher_priority_is_delivered_first(store_fixture: StoreFixture, queue: Queue) -> None:
    for index, priority in enumerate([4, 0, 9, 4, 9]):
        await store_fixture.send(queue, b"%d" % index, priority=priority)
    assert bodies(await store_fixture.claim(queue)) == [b"2", b"4", b"0", b"3", b"1"]
