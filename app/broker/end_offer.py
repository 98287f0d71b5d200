"""End an offered message, and wake the sender that waits for its settlement.

Crash windows: before the commit nothing has changed. After it the outcome is stored. A waiting sender also polls, so a
lost wake-up delays its answer by up to a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.broker.ports import EndOfferStore, Notifier, OfferEndCause
from app.domain.offer import wait_key_of_sender
from app.domain.settlement import Settlement


@dataclass(frozen=True, slots=True)
class EndOfferPorts:
    """What the end of an offered message uses."""

    messages: EndOfferStore
    notifier: Notifier


async def end_offer(ports: EndOfferPorts, settlement: Settlement, cause: OfferEndCause = OfferEndCause.SETTLED) -> bool:
    """End the message of this settlement. Return whether this call ended it."""
    is_ended = await ports.messages.settle_offer(settlement, cause)
    if is_ended:
        ports.notifier.notify(wait_key_of_sender(settlement.token.sequence_number))
    return is_ended


async def end_offers(
    ports: EndOfferPorts, settlements: Sequence[Settlement], cause: OfferEndCause = OfferEndCause.SETTLED
) -> list[bool]:
    """End each of these messages in its own transaction. Return whether this call ended each, in order."""
    return [await end_offer(ports, settlement, cause) for settlement in settlements]
