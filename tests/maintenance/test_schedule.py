"""Scheduled messages become available when they are due, and each pass returns when to run again."""

import pytest

from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.maintenance.schedule import BATCH_SIZE, MAX_DELAY_SECONDS, MIN_DELAY_SECONDS, promote_scheduled
from tests.maintenance.harness import BrokerHarness


async def test_a_due_message_becomes_available_and_wakes_its_receiver(harness: BrokerHarness) -> None:
    queue, other = await harness.queue(), await harness.queue("bills")
    (number,) = await harness.send(queue, delay=10 * SECOND)
    (later,) = await harness.send(queue, delay=11 * SECOND)
    with (
        harness.broker.wait_queue.waiter(queue.id) as waiter,
        harness.broker.wait_queue.waiter(other.id) as other_waiter,
    ):
        await harness.clock.advance(9.9)
        await promote_scheduled(harness.broker.administration)
        assert not await waiter.woken(0)
        await harness.clock.advance(0.1)
        await promote_scheduled(harness.broker.administration)
        assert await waiter.woken(0)
        assert not await other_waiter.woken(0)
    assert await harness.state(queue, number) is MessageState.AVAILABLE
    assert await harness.state(queue, later) is MessageState.SCHEDULED
    assert harness.counters["messages_awoken"] == 1


@pytest.mark.parametrize(
    ("delay_seconds", "rest"),
    [(0.3, 0.3), (3600, MAX_DELAY_SECONDS), (0.000_001, MIN_DELAY_SECONDS)],
)
async def test_the_schedule_rests_until_the_next_message_is_due(
    harness: BrokerHarness, delay_seconds: float, rest: float
) -> None:
    queue = await harness.queue()
    await harness.send(queue, delay=round(delay_seconds * SECOND))
    assert await promote_scheduled(harness.broker.administration) == pytest.approx(rest)


async def test_the_schedule_without_messages_rests_for_the_longest_time(harness: BrokerHarness) -> None:
    assert await promote_scheduled(harness.broker.administration) == MAX_DELAY_SECONDS


async def test_the_schedule_does_not_rest_after_a_full_batch(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await harness.send(queue, count=BATCH_SIZE + 1, delay=SECOND)
    await harness.clock.advance(1)
    assert await promote_scheduled(harness.broker.administration) == 0.0
    assert await promote_scheduled(harness.broker.administration) == MAX_DELAY_SECONDS
    assert harness.counters["messages_awoken"] == BATCH_SIZE + 1
