"""The store of synchronous sends: of messages whose senders wait for the settlement."""

from enum import Enum, auto
from typing import Protocol

from app.broker.ports.message_store import WorkUnitStore
from app.domain.settlement import Settlement
from app.domain.synchronous_send import SynchronousSendState


class SynchronousSendEnd(Enum):
    """Why a synchronous send ends: a receiver or an administrator settles its message, or the lock has ended."""

    SETTLED = auto()
    LOCK_ENDED = auto()


class EndSynchronousSendStore(Protocol):
    """Ends synchronous sends by settlements and by ended locks."""

    async def settle_offer(self, settlement: Settlement, cause: SynchronousSendEnd) -> bool:
        """End a synchronous send, under the fence of `remove`, or of `release` if its lock has ended.

        Return whether the fence held. A completion archives the message as `remove` does, and keeps the reply for the
        sender. Every other outcome deletes the message. The same transaction stores a tombstone and the outcome for
        the sender.
        """
        ...


class SynchronousSendStore(WorkUnitStore, Protocol):
    """What synchronous sends use. `execute` begins one for a draft that has an `offer_retention`."""

    async def read_offer(self, sequence_number: int) -> SynchronousSendState:
        """Return the state of a synchronous send. A message without any trace counts as withdrawn."""
        ...

    async def withdraw_offer(self, sequence_number: int) -> SynchronousSendState:
        """Remove the message of a synchronous send that has not ended, locked or not. Return its outcome, which is final."""
        ...
