"""Claims of messages, and their recovery by the receiver that holds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.broker.ports.attempts import Attempt, AttemptResult
from app.domain.delivery import Claim, DeliveryPosition, Recovery
from app.domain.message import Message, MessageMetadata, MessageState
from app.domain.settlement import LockToken


@dataclass(frozen=True, slots=True)
class Recovered:
    """Messages under new tokens, and the old tokens of those whose lock had been renewed."""

    messages: list[Message]
    renewed: list[LockToken]


class ReceivingStore(Protocol):
    """The store methods of receives."""

    async def claim(self, claim: Claim) -> list[Message]:
        """Lock the next messages in order of `delivery_position`, count the delivery, and return them in order.

        Skips rows that other statements hold. Sets the token, `locked_until` = now + duration, generation 0,
        `home_state` = the previous state, and the first and last delivery times. If the caller was cancelled meanwhile,
        the store releases its messages (outcome released).
        """
        ...

    async def claim_or_replay(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """Claim and store the result under the attempt, in one transaction.

        A repeat returns the same messages with the same tokens if their locks are still live, and counts no delivery;
        `locked_until` is the current one. Refuses as `send_or_replay` does.
        """
        ...

    async def claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """Claim messages with these sequence numbers, in this order.

        Skips messages that other statements hold or that are not in `claim.source`, and takes the next ones instead.
        """
        ...

    async def available_in_group(self, queue_id: int, group_id: str, limit: int) -> list[int]:
        """Return the numbers of the messages of this group that a claim could take, in order of delivery."""
        ...

    async def check_attempt(self, attempt: Attempt) -> None:
        """Refuse with `KeyReused` as `claim_or_replay` would, before the caller does other work. Changes nothing."""
        ...

    async def candidates(
        self, queue_id: int, source: MessageState, after: DeliveryPosition, limit: int
    ) -> list[MessageMetadata]:
        """Return messages that a claim could take after a position, in its order, unchanged; no body is read."""
        ...

    async def read_metadata(self, queue_id: int, numbers: Sequence[int]) -> list[MessageMetadata]:
        """Return those of these messages that are in the queue, in any state, ascending, unchanged; no body is read."""
        ...

    async def recover(self, recovery: Recovery) -> Recovered:
        """Lock the messages that a receiver holds again, each under a new token, in order of `delivery_position`.

        In one transaction the deliveries under the old tokens end (outcome recovered, uncounted) and new ones begin:
        generation 0, `locked_until` as `lock_end` says. If a lock had been renewed, the queue's `lock_purges` grows.
        Skips locks that have ended, and rows that other statements hold.
        """
        ...
