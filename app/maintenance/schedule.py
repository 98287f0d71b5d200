"""Makes scheduled and delayed messages available when they are due."""

from app.broker.broker import Broker
from app.domain.instant import to_seconds

BITE = 1000
"""Messages made available per statement."""

LONGEST_REST_SECONDS = 1.0
"""Another replica may have scheduled something sooner without our hearing of it."""

SHORTEST_REST_SECONDS = 0.005
"""What falls due one after the other is awoken together, and jitter does not cut the last stretch to pieces."""


async def awaken_scheduled(broker: Broker) -> float | None:
    """Make due messages available and wake their receivers; rests until the next one is due."""
    awoken = await broker.store.awaken(BITE)
    for queue_id, count in awoken.by_queue.items():
        broker.bells.ring(queue_id, count)
    total = sum(awoken.by_queue.values())
    broker.tally.count("messages_awoken", total)
    if total >= BITE:
        return 0.0
    if awoken.rest is None:
        return LONGEST_REST_SECONDS
    return min(max(to_seconds(awoken.rest), SHORTEST_REST_SECONDS), LONGEST_REST_SECONDS)
