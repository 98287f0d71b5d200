"""Give back: free what was claimed for a receiver who has gone before it heard of it."""

from collections.abc import Sequence

from app.broker.broker import Broker
from app.broker.settle import settle
from app.domain.message import Message
from app.domain.queue import Queue
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import undelivered_release


async def release_undelivered(broker: Broker, queue: Queue, messages: Sequence[Message]) -> None:
    """Free these messages, uncounted and in their old place; receivers that wait for such messages hear of it.

    A message that another request holds is tried again, as in every settlement. What the store cannot free comes back
    when its lock runs out, as it does where the process dies before.
    """
    try:
        await settle(broker, queue, [undelivered_release(message) for message in messages])
    except StoreUnavailable:
        return
