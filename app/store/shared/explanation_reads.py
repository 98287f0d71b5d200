"""The statements of every store that read the facts of an explanation, and change nothing."""

from collections.abc import Mapping, Sequence

from app.domain.delivery import DeliveryPosition
from app.domain.explanation import EndedMessage, MessageFacts
from app.domain.instant import Instant
from app.domain.settlement import LockToken, Outcome
from app.domain.transaction import WaitingSettlement
from app.store.shared import rows
from app.store.shared.database import Database


class ExplanationReads:
    """The methods of `BrowsingStore` that explanations use."""

    _database: Database

    async def read_facts(self, queue_id: int, sequence_number: int) -> MessageFacts | None:
        """See `BrowsingStore`."""
        found = await self._database.fetch("read_facts", queue_id=queue_id, sequence_number=sequence_number)
        return rows.message_facts(found[0]) if found else None

    async def read_end(self, queue_id: int, sequence_number: int) -> EndedMessage | None:
        """See `BrowsingStore`."""
        found = await self._database.fetch("read_end", queue_id=queue_id, sequence_number=sequence_number)
        return rows.ended_message(found[0]) if found else None

    async def locked_facts(self, queue_id: int, limit: int) -> list[MessageFacts]:
        """See `BrowsingStore`."""
        found = await self._database.fetch("locked_facts", queue_id=queue_id, limit=limit)
        return [rows.message_facts(row) for row in found]

    async def waiting_settlements(
        self, tokens: Sequence[LockToken], viewer: str
    ) -> Mapping[LockToken, WaitingSettlement]:
        """See `BrowsingStore`."""
        numbers = [token.sequence_number for token in tokens]
        found = await self._database.fetch("waiting_settlements", numbers=numbers) if numbers else ()
        waiting = {
            LockToken(number, secret): WaitingSettlement(
                Outcome(outcome), expires_at, transaction_id if principal == viewer else None
            )
            for number, secret, outcome, expires_at, transaction_id, principal in found
        }
        return {token: waiting[token] for token in tokens if token in waiting}

    async def count_ahead(self, queue_id: int, position: DeliveryPosition, limit: int) -> int:
        """See `BrowsingStore`."""
        negated_priority, available_at, number = position
        ((count,),) = await self._database.fetch(
            "count_ahead",
            queue_id=queue_id,
            priority=-negated_priority,
            available_at=available_at,
            sequence_number=number,
            limit=limit,
        )
        return count

    async def first_in_flight(self, queue_id: int, group_id: str) -> MessageFacts | None:
        """See `BrowsingStore`."""
        found = await self._database.fetch("first_in_flight", queue_id=queue_id, group_id=group_id)
        return rows.message_facts(found[0]) if found else None

    async def count_blocked_ahead(self, queue_id: int, group_id: str, sequence_number: int, limit: int) -> int:
        """See `BrowsingStore`."""
        ((count,),) = await self._database.fetch(
            "count_blocked_ahead", queue_id=queue_id, group_id=group_id, sequence_number=sequence_number, limit=limit
        )
        return count

    async def next_due_at(self, queue_id: int, limit: int) -> Instant | None:
        """See `BrowsingStore`."""
        ((due_at,),) = await self._database.fetch("next_due_at", queue_id=queue_id, limit=limit)
        return due_at
