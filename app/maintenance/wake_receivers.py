"""Lets waiting receivers look by themselves: a wake-up may have been lost on its way between processes."""

from app.broker.broker import Broker


async def wake_receivers(broker: Broker) -> float | None:
    """Wake the receiver that waits longest on each queue; if it may have left something the next one looks.

    So a thousand receivers on an empty queue cost one look a second, not a thousand; those who wait through a filter
    see for nobody else and look one after the other.
    """
    for queue_id in broker.wait_queue.wait_keys():
        broker.wait_queue.wake(queue_id)
    return None
