"""Release messages that were claimed for a receiver that disconnected before its response."""

from collections.abc import Sequence

from app.broker.settling.settle import SettlePorts, SettleResult, settle
from app.domain.message import Message
from app.domain.queue import Queue
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import undelivered_release


async def release_undelivered(ports: SettlePorts, queue: Queue, messages: Sequence[Message]) -> list[SettleResult]:
    """Release these messages to their old positions, without counting their deliveries, and wake waiting receivers.

    A message that another request holds is tried again, as in every settlement. A message that the store cannot release, or
    whose process dies, comes back when its lock expires. Returns a result for each, or an empty list if the store is
    unavailable.
    """
    try:
        return await settle(ports, queue, [undelivered_release(message) for message in messages])
    except StoreUnavailable:
        return []
