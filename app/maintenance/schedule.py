"""Makes scheduled and delayed messages available when they are due."""

from app.broker.announce import Arrival, announce
from app.broker.broker import Broker
from app.domain.instant import to_seconds
from app.domain.message import MessageState

BATCH_SIZE = 1000
"""Messages made available per statement."""

LONGEST_REST_SECONDS = 1.0
"""Another replica may have scheduled something sooner without our hearing of it."""

SHORTEST_REST_SECONDS = 0.005
"""What falls due one after the other is awoken together, and jitter does not cut the last stretch to pieces."""


async def awaken_scheduled(broker: Broker) -> float | None:
    """Make due messages available and wake their receivers; rests until the next one is due."""
    awoken = await broker.store.awaken(BATCH_SIZE)
    announce(
        broker,
        (
            Arrival(queue_id, number, MessageState.AVAILABLE)
            for queue_id, numbers in awoken.by_queue.items()
            for number in numbers
        ),
    )
    total = sum(map(len, awoken.by_queue.values()))
    broker.tally.count("messages_awoken", total)
    if total >= BATCH_SIZE:
        return 0.0
    if awoken.rest is None:
        return LONGEST_REST_SECONDS
    return min(max(to_seconds(awoken.rest), SHORTEST_REST_SECONDS), LONGEST_REST_SECONDS)
