"""The background loops leave the messages of a queue to newer servers if it uses a setting that only they know."""

from app.broker.administration.expire import expire_messages
from app.broker.settling.release_expired import release_expired
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.settlement import NO_EXPIRED_GENERATION
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import expire_overdue
from app.maintenance.schedule import promote_scheduled
from tests.brokers import need_newer_server
from tests.maintenance.harness import BrokerHarness

LOCKED, SCHEDULED = MessageState.LOCKED, MessageState.SCHEDULED


async def run_loops(harness: BrokerHarness) -> None:
    """Run each loop that changes messages once."""
    await expire_locks(harness.broker.settling)
    await promote_scheduled(harness.broker.administration)
    await expire_overdue(harness.broker.administration)


async def test_messages_of_a_newer_queue_stay_as_they_are(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    locked = await harness.send_and_lock(queue)
    (overdue,) = await harness.send(queue, ttl=SECOND)
    (due,) = await harness.send(queue, delay=SECOND)
    numbers = (locked.sequence_number, overdue, due)
    before = [await harness.state(queue, number) for number in numbers]
    await need_newer_server(harness.broker)
    await harness.clock.advance(60)
    await run_loops(harness)
    assert [await harness.state(queue, number) for number in numbers] == before


async def test_the_schedule_does_not_hurry_for_a_message_of_a_newer_queue(harness: BrokerHarness) -> None:
    await harness.send(await harness.queue(), delay=SECOND)
    await need_newer_server(harness.broker)
    await harness.clock.advance(60)
    assert await promote_scheduled(harness.broker.administration) == 1.0


async def test_a_queue_that_becomes_newer_during_a_pass_keeps_its_messages(harness: BrokerHarness) -> None:
    newer, queue = await harness.queue("newer"), await harness.queue()
    locks = [await harness.send_and_lock(each) for each in (newer, queue)]
    overdue = [number for each in (newer, queue) for number in await harness.send(each, ttl=SECOND)]
    await harness.clock.advance(60)
    rows = await harness.broker.store.expired_locks(10)
    expired = await harness.broker.store.expired_messages(10)
    assert ({row.token for row in rows}, {row.sequence_number for row in expired}) == (set(locks), set(overdue))
    await need_newer_server(harness.broker, "newer")
    released = await release_expired(harness.broker.settling, [(row, NO_EXPIRED_GENERATION) for row in rows])
    assert [row.queue_id for row, is_released in zip(rows, released, strict=True) if is_released] == [queue.id]
    assert await expire_messages(harness.broker.administration, expired) == 1
    assert await harness.state(newer, locks[0].sequence_number) is LOCKED
    assert await harness.state(newer, overdue[0]) is MessageState.AVAILABLE
