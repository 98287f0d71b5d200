"""Sends, including synchronous ones, whose senders wait for the settlement."""

from collections.abc import Sequence
from typing import Protocol

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.transactions import WorkUnitStore
from app.domain.message import Draft, Receipt
from app.domain.synchronous_send import SynchronousSendState


class QueueGone(Exception):
    """The queue of a send or redrive was deleted, or needs a newer server now; nothing was stored.

    A new queue may have its name.
    """


class SendingStore(WorkUnitStore, Protocol):
    """The store methods of sends. `execute` begins a synchronous send for a draft that has an `offer_retention`."""

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store all drafts in one transaction, each with the next sequence number in order.

        They are stored only if all their queues exist. Raises `QueueGone` otherwise.

        If the queue detects duplicates and the message id was sent within the window, the draft is not stored: its
        receipt is that of the first message, with `duplicate` set. Refuses with `Overloaded` if the drafts that wait to
        be stored already have as many bytes as this process may hold.
        """
        ...

    async def send_or_replay(self, drafts: Sequence[Draft], attempt: Attempt) -> AttemptResult[list[Receipt]]:
        """Send and store the result under the attempt, in one transaction. Without drafts, an empty result is stored.

        Refuses with `KeyReused` if the fingerprint differs. Refuses with `RequestInProgress` if the first try holds the
        attempt for longer than a caller should wait.
        """
        ...

    async def find_send_result(self, attempt: Attempt) -> list[Receipt] | None:
        """Return the stored result of `send_or_replay`, or None. Refuses with `KeyReused`. Changes nothing."""
        ...

    async def read_offer(self, sequence_number: int) -> SynchronousSendState:
        """Return the state of a synchronous send. A message without any trace counts as withdrawn."""
        ...

    async def withdraw_offer(self, sequence_number: int) -> SynchronousSendState:
        """Remove the message of a synchronous send that has not ended, locked or not. Return its outcome, which is final."""
        ...
