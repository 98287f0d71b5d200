"""Makes waiting receivers poll periodically, because a wake-up between processes may be lost."""

from app.runtime.wait_queue import WaitQueue


async def wake_receivers(wait_queue: WaitQueue[int]) -> float | None:
    """Wake the longest-waiting receiver of each queue; if it leaves messages, it wakes the next one.

    So a thousand receivers on an empty queue cost one poll a second, not a thousand. Receivers with filters poll only
    for themselves, so they all poll, one after the other.
    """
    for queue_id in wait_queue.wait_keys():
        wait_queue.wake(queue_id)
    return None
