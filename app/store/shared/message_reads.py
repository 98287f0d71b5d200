"""The statements of every store that read messages, locks, tombstones and attempts, and change nothing."""

from collections.abc import Mapping, Sequence

from app.broker.ports.attempts import Attempt
from app.domain.delivery import DeliveryPosition
from app.domain.instant import Instant
from app.domain.message import Message, MessageMetadata, MessageState, Receipt
from app.domain.settlement import LockedMessage, LockToken, Tombstone
from app.domain.work_unit import WorkUnitResult
from app.store.shared import message_rows, rows
from app.store.shared.attempts import stored_answer, stored_receipts, stored_unit_result
from app.store.shared.database import Database, SqlSession
from app.store.shared.rows import Row

NO_STATE = 0
"""Fills a state parameter that a statement has and the caller does not need."""


class MessageReads:
    """The reads of the store: of messages, locks, tombstones and attempts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> Instant:
        """See `StoreDatabase`."""
        ((now,),) = await self._database.fetch("now")
        return now

    def seen(self) -> Mapping[str, int]:
        """See `StoreDatabase`. An engine without timelines has nothing to share."""
        return {}

    def learn(self, seen: Mapping[str, int]) -> None:
        """See `StoreDatabase`."""

    async def database_id(self) -> str:
        """See `StoreDatabase`."""
        ((identity,),) = await self._database.fetch("database_id")
        return identity

    async def highest_number(self) -> int:
        """See `StoreDatabase`."""
        ((number,),) = await self._database.fetch("highest_number")
        return int(number)

    async def schema_revision(self) -> str | None:
        """See `StoreDatabase`."""
        if not await self._database.fetch("was_migrated"):
            return None
        revisions = await self._database.fetch("schema_revision")
        return revisions[0][0] if revisions else None

    # ---- reads -------------------------------------------------------------------------------------------------------

    async def read(self, queue_id: int, sequence_number: int) -> Message | None:
        """See `BrowsingStore`."""
        return await read_message(self._database, queue_id, sequence_number)

    async def browse(self, queue_id: int, states: Sequence[MessageState], after: int, limit: int) -> list[Message]:
        """See `BrowsingStore`."""
        return [
            message_rows.message(row) for row in await self._fetch_in_states("browse", queue_id, states, after, limit)
        ]

    async def browse_metadata(
        self, queue_id: int, states: Sequence[MessageState], after: int, limit: int
    ) -> list[MessageMetadata]:
        """See `BrowsingStore`."""
        return [
            message_rows.metadata(row)
            for row in await self._fetch_in_states("browse_metadata", queue_id, states, after, limit)
        ]

    async def newest_metadata(self, queue_id: int, limit: int) -> list[MessageMetadata]:
        """See `BrowsingStore`. Each state is read in its own index range."""
        found_rows = [
            row
            for state in MessageState
            for row in await self._database.fetch("newest_in_state", queue_id=queue_id, state=state.value, limit=limit)
        ]
        newest = sorted([number for (number,) in found_rows], reverse=True)[:limit]
        return [*reversed(await self.read_metadata(queue_id, newest))]

    async def restorable(
        self, queue: str, since: Instant, until: Instant, after: int, limit: int
    ) -> list[MessageMetadata]:
        """See `BrowsingStore`."""
        found_rows = await self._database.fetch(
            "restorable", queue=queue, since=since, until=until, after=after, limit=limit
        )
        return await self.read_restorable([number for (number,) in found_rows])

    async def read_restorable(self, numbers: Sequence[int]) -> list[MessageMetadata]:
        """See `BrowsingStore`."""
        if not numbers:
            return []
        found_rows = await self._database.fetch("archived_metadata", numbers=list(numbers))
        return [message_rows.metadata(row) for row in found_rows]

    async def last_sequence_number(self) -> int:
        """See `BrowsingStore`."""
        ((number,),) = await self._database.fetch("last_sequence_number")
        return number or 0

    async def available_in_group(self, queue_id: int, group_id: str, limit: int) -> list[int]:
        """See `ReceivingStore`."""
        found_rows = await self._database.fetch("available_in_group", queue_id=queue_id, group_id=group_id, limit=limit)
        return [number for (number,) in found_rows]

    async def candidates(
        self, queue_id: int, source: MessageState, after: DeliveryPosition, limit: int
    ) -> list[MessageMetadata]:
        """See `ReceivingStore`. Dead-lettered messages are ordered by number alone."""
        negated_priority, available_at, number = after
        if source is MessageState.DEAD_LETTERED:
            return await self.browse_metadata(queue_id, [source], number, limit)
        found_rows = await self._database.fetch(
            "candidates",
            queue_id=queue_id,
            priority=-negated_priority,
            available_at=available_at,
            sequence_number=number,
            limit=limit,
        )
        return [message_rows.metadata(row) for row in found_rows]

    async def read_metadata(self, queue_id: int, numbers: Sequence[int]) -> list[MessageMetadata]:
        """See `ReceivingStore`."""
        if not numbers:
            return []
        found_rows = await self._database.fetch("read_metadata", queue_id=queue_id, numbers=list(numbers))
        return [message_rows.metadata(row) for row in found_rows]

    async def read_many(self, queue_id: int, numbers: Sequence[int]) -> list[Message]:
        """See `BrowsingStore`."""
        if not numbers:
            return []
        found_rows = await self._database.fetch("read_many", queue_id=queue_id, numbers=list(numbers))
        return [message_rows.message(row) for row in found_rows]

    async def _fetch_in_states(
        self, name: str, queue_id: int, states: Sequence[MessageState], after: int, limit: int
    ) -> Sequence[Row]:
        numbers = [state.value for state in states]
        first, second, third, fourth, fifth, sixth = numbers + [NO_STATE] * (len(MessageState) - len(numbers))
        return await self._database.fetch(
            name,
            queue_id=queue_id,
            first_state=first,
            second_state=second,
            third_state=third,
            fourth_state=fourth,
            fifth_state=fifth,
            sixth_state=sixth,
            after=after,
            limit=limit,
        )

    async def locked_messages(self, tokens: Sequence[LockToken]) -> list[LockedMessage | None]:
        """See `SettlingStore`."""
        found_rows = await self._fetch_by_tokens("locked_messages", tokens)
        by_token = {locked.token: locked for locked in map(rows.locked_message, found_rows)}
        return [by_token.get(token) for token in tokens]

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """See `SettlingStore`."""
        found_rows = await self._fetch_by_tokens("tombstones", tokens)
        by_token = {tombstone.token: tombstone for tombstone in map(rows.tombstone, found_rows)}
        return [by_token.get(token) for token in tokens]

    async def delivered_since(self, tombstone: Tombstone) -> bool:
        """See `SettlingStore`."""
        number, settled_at = tombstone.token.sequence_number, tombstone.settled_at
        return bool(await self._database.fetch("delivered_since", sequence_number=number, settled_at=settled_at))

    async def check_attempt(self, attempt: Attempt) -> None:
        """See `ReceivingStore`."""
        await self._stored_answer(attempt)

    async def find_send_result(self, attempt: Attempt) -> list[Receipt] | None:
        """See `SendingStore`."""
        answer = await self._stored_answer(attempt)
        return None if answer is None else await stored_receipts(self._database, answer)

    async def locked_message_id(self, queue_id: int, token: LockToken) -> str | None:
        """See `SettlingStore`."""
        found_rows = await self._database.fetch(
            "locked_message_id", queue_id=queue_id, sequence_number=token.sequence_number, lock_token=token.secret
        )
        return found_rows[0][0] if found_rows else None

    async def find_execution_result(self, attempt: Attempt) -> WorkUnitResult | None:
        """See `WorkUnitStore`."""
        answer = await self._stored_answer(attempt)
        return None if answer is None else await stored_unit_result(self._database, answer)

    async def _stored_answer(self, attempt: Attempt) -> str | None:
        return stored_answer(await self._database.fetch("answered_attempt", attempt_key=attempt.key), attempt)

    async def locks_of_queue(self, queue_id: int, granted_until: Instant, limit: int) -> list[LockedMessage]:
        """See `SettlingStore`."""
        found_rows = await self._database.fetch(
            "locks_of_queue", queue_id=queue_id, granted_until=granted_until, limit=limit
        )
        return [rows.locked_message(row) for row in found_rows]

    async def _fetch_by_tokens(self, name: str, tokens: Sequence[LockToken]) -> Sequence[Row]:
        numbers = sorted({token.sequence_number for token in tokens})
        return await self._database.fetch(name, numbers=numbers) if numbers else ()


async def read_message(session: SqlSession, queue_id: int, sequence_number: int) -> Message | None:
    """Return a message of a queue, or None."""
    found_rows = await session.fetch("read", queue_id=queue_id, sequence_number=sequence_number)
    return message_rows.message(found_rows[0]) if found_rows else None
