"""Makes waiting receivers poll periodically, because a wake-up between processes may be lost."""

from app.broker.broker import Broker


async def wake_receivers(broker: Broker) -> float | None:
    """Wake the longest-waiting receiver of each queue; if it leaves messages, it wakes the next one.

    So a thousand receivers on an empty queue cost one poll a second, not a thousand. Receivers with filters poll only
    for themselves, so they all poll, one after the other.
    """
    for queue_id in broker.wait_queue.wait_keys():
        broker.wait_queue.wake(queue_id)
    return None
