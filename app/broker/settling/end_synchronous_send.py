"""End a synchronous send: settle its message, and wake the sender that waits.

Crash windows: before the commit nothing has changed. After it the outcome is stored. A waiting sender also polls, so a
lost wake-up delays its answer by up to a second.
"""

from collections.abc import Sequence

from app.broker.ports.settling import SynchronousSendEnd
from app.broker.settling.ports import SettlingPorts
from app.domain.settlement import Settlement
from app.domain.synchronous_send import wait_key_of_sender


async def end_synchronous_send(
    ports: SettlingPorts, settlement: Settlement, cause: SynchronousSendEnd = SynchronousSendEnd.SETTLED
) -> bool:
    """End the message of this settlement. Return whether this call ended it."""
    is_ended = await ports.store.settle_offer(settlement, cause)
    if is_ended:
        ports.notifier.notify(wait_key_of_sender(settlement.token.sequence_number))
    return is_ended


async def end_synchronous_sends(
    ports: SettlingPorts,
    settlements: Sequence[Settlement],
    cause: SynchronousSendEnd = SynchronousSendEnd.SETTLED,
) -> list[bool]:
    """End each of these messages in its own transaction. Return whether this call ended each, in order."""
    return [await end_synchronous_send(ports, settlement, cause) for settlement in settlements]
