"""What is scheduled becomes available when it is due, and the pass knows when to look again."""

import pytest

from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.maintenance.schedule import BATCH_SIZE, LONGEST_REST_SECONDS, SHORTEST_REST_SECONDS, awaken_scheduled
from tests.maintenance.house import House


async def test_what_is_due_becomes_available_and_wakes_who_waits_for_it(house: House) -> None:
    queue, other = await house.queue(), await house.queue("bills")
    (number,) = await house.send(queue, delay=10 * SECOND)
    (later,) = await house.send(queue, delay=11 * SECOND)
    with house.broker.waiting.waiter(queue.id) as waiter, house.broker.waiting.waiter(other.id) as stranger:
        await house.clock.advance(9.9)
        await awaken_scheduled(house.broker)
        assert not await waiter.rung(0)
        await house.clock.advance(0.1)
        await awaken_scheduled(house.broker)
        assert await waiter.rung(0)
        assert not await stranger.rung(0)
    assert await house.state(queue, number) is MessageState.AVAILABLE
    assert await house.state(queue, later) is MessageState.SCHEDULED
    assert house.tally["messages_awoken"] == 1


@pytest.mark.parametrize(
    ("delay_seconds", "rest"),
    [(0.3, 0.3), (3600, LONGEST_REST_SECONDS), (0.000_001, SHORTEST_REST_SECONDS)],
)
async def test_it_rests_until_the_next_message_is_due(house: House, delay_seconds: float, rest: float) -> None:
    queue = await house.queue()
    await house.send(queue, delay=round(delay_seconds * SECOND))
    assert await awaken_scheduled(house.broker) == pytest.approx(rest)


async def test_with_nothing_scheduled_it_looks_now_and_then(house: House) -> None:
    assert await awaken_scheduled(house.broker) == LONGEST_REST_SECONDS


async def test_it_does_not_rest_while_more_is_due_than_one_pass_awakens(house: House) -> None:
    queue = await house.queue()
    await house.send(queue, count=BATCH_SIZE + 1, delay=SECOND)
    await house.clock.advance(1)
    assert await awaken_scheduled(house.broker) == 0.0
    assert await awaken_scheduled(house.broker) == LONGEST_REST_SECONDS
    assert house.tally["messages_awoken"] == BATCH_SIZE + 1
