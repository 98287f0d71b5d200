"""The store of offered messages, whose senders wait for the settlement."""

from enum import Enum, auto
from typing import Protocol

from app.broker.ports.message_store import WorkUnitStore
from app.domain.offer import OfferState
from app.domain.settlement import Settlement


class OfferEndCause(Enum):
    """Why an offered message ends: a receiver or an administrator settles it, or its lock has ended."""

    SETTLED = auto()
    LOCK_ENDED = auto()


class EndOfferStore(Protocol):
    """Ends offered messages by settlements and by ended locks."""

    async def settle_offer(self, settlement: Settlement, cause: OfferEndCause) -> bool:
        """End an offered message, under the fence of `remove`, or of `release` if its lock has ended.

        Return whether the fence held. A completion archives the message as `remove` does, and keeps the reply for the
        sender. Every other outcome deletes the message. The same transaction stores a tombstone and the outcome for
        the sender.
        """
        ...


class OfferStore(WorkUnitStore, Protocol):
    """What synchronous sends use. `execute` offers the message of a draft that has an `offer_retention`."""

    async def read_offer(self, sequence_number: int) -> OfferState:
        """Return the state of an offered message. A message without any trace counts as withdrawn."""
        ...

    async def withdraw_offer(self, sequence_number: int) -> OfferState:
        """Remove an offered message that has not ended, locked or not. Return its outcome, which is final."""
        ...
