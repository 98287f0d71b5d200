"""The cold half of every store: what background passes and administrators ask of messages, in named statements."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import TypeVar

from app.broker.ports import Attempt, Awoken, Edit, QueueGone, Redrive, Unlocked, Withdrawal
from app.domain.archive import USUAL_BOUND, Candidate, fitting
from app.domain.delivery import Place
from app.domain.instant import DAY, Duration, Instant
from app.domain.message import Message, MessageState, Outline, Receipt
from app.domain.queue import Queue
from app.domain.refusals import KeyReused
from app.domain.settlement import Held, LockToken, Move, Outcome, Tombstone
from app.store import rows
from app.store.database import Database, Session
from app.store.documents import read_receipts, write_properties
from app.store.queue_records import last_known
from app.store.rows import Row

Result = TypeVar("Result")

DELETED_KEEP: Duration = DAY
"""How long what is known of a deleted queue is kept at least: longer than any statement that still stores into it."""

NO_STATE = 0
"""Stands where a statement has room for more states than are asked for."""


class MessageRecords:
    """`Upkeep`, and the looks at deliveries and attempts; a store adds the verbs that run for every message."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.on_moved: Callable[[Sequence[Move], Sequence[bool]], None] = _unheard

    async def now(self) -> Instant:
        """See `Store`."""
        ((now,),) = await self._database.fetch("now")
        return now

    async def identity(self) -> str:
        """See `Store`."""
        ((identity,),) = await self._database.fetch("identity")
        return identity

    async def revision(self) -> str | None:
        """See `Store`."""
        if not await self._database.fetch("was_migrated"):
            return None
        marks = await self._database.fetch("revision")
        return marks[0][0] if marks else None

    # ---- looking -----------------------------------------------------------------------------------------------------

    async def read(self, queue_id: int, sequence_number: int) -> Message | None:
        """See `Upkeep`."""
        return await _read(self._database, queue_id, sequence_number)

    async def browse(self, queue_id: int, states: Sequence[MessageState], after: int, most: int) -> list[Message]:
        """See `Upkeep`."""
        return [rows.message(row) for row in await self._in_states("browse", queue_id, states, after, most)]

    async def outlines(self, queue_id: int, states: Sequence[MessageState], after: int, most: int) -> list[Outline]:
        """See `Upkeep`."""
        return [rows.outline(row) for row in await self._in_states("outlines", queue_id, states, after, most)]

    async def newest_number(self) -> int:
        """See `Upkeep`."""
        ((number,),) = await self._database.fetch("newest_number")
        return number or 0

    async def candidates(self, queue_id: int, source: MessageState, after: Place, most: int) -> list[Outline]:
        """See `Messages`. Dead-lettered messages stand by number alone."""
        lowered, available_at, number = after
        if source is MessageState.DEAD_LETTERED:
            return await self.outlines(queue_id, [source], number, most)
        found = await self._database.fetch(
            "candidates",
            queue_id=queue_id,
            priority=-lowered,
            available_at=available_at,
            sequence_number=number,
            most=most,
        )
        return [rows.outline(row) for row in found]

    async def outlines_of(self, queue_id: int, numbers: Sequence[int]) -> list[Outline]:
        """See `Messages`."""
        if not numbers:
            return []
        found = await self._database.fetch("outlines_of", queue_id=queue_id, numbers=list(numbers))
        return [rows.outline(row) for row in found]

    async def read_these(self, queue_id: int, numbers: Sequence[int]) -> list[Message]:
        """See `Upkeep`."""
        if not numbers:
            return []
        found = await self._database.fetch("read_these", queue_id=queue_id, numbers=list(numbers))
        return [rows.message(row) for row in found]

    async def _in_states(
        self, name: str, queue_id: int, states: Sequence[MessageState], after: int, most: int
    ) -> Sequence[Row]:
        wanted = [state.value for state in states]
        first, second, third, fourth, fifth = wanted + [NO_STATE] * (len(MessageState) - len(wanted))
        return await self._database.fetch(
            name,
            queue_id=queue_id,
            first=first,
            second=second,
            third=third,
            fourth=fourth,
            fifth=fifth,
            after=after,
            most=most,
        )

    async def held(self, tokens: Sequence[LockToken]) -> list[Held | None]:
        """See `Messages`."""
        found = await self._of_numbers("held", tokens)
        by_token = {held.token: held for held in map(rows.held, found)}
        return [by_token.get(token) for token in tokens]

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """See `Messages`."""
        found = await self._of_numbers("tombstones", tokens)
        by_token = {stone.token: stone for stone in map(rows.tombstone, found)}
        return [by_token.get(token) for token in tokens]

    async def delivered_since(self, stone: Tombstone) -> bool:
        """See `Messages`."""
        number, settled_at = stone.token.sequence_number, stone.settled_at
        return bool(await self._database.fetch("delivered_since", sequence_number=number, settled_at=settled_at))

    async def check(self, attempt: Attempt) -> None:
        """See `Messages`."""
        await self._answer_of(attempt)

    async def sent_before(self, attempt: Attempt) -> list[Receipt] | None:
        """See `Messages`."""
        answer = await self._answer_of(attempt)
        return None if answer is None else read_receipts(answer)

    async def _answer_of(self, attempt: Attempt) -> str | None:
        for fingerprint, answer in await self._database.fetch("answered_attempt", key=attempt.key):
            if fingerprint != attempt.fingerprint:
                raise KeyReused
            return answer
        return None

    async def ended_locks(self, most: int) -> list[Held]:
        """See `Upkeep`."""
        return [rows.held(row) for row in await self._database.fetch("ended_locks", most=most)]

    async def locks_of_queue(self, queue_id: int, given_until: Instant, most: int) -> list[Held]:
        """See `Upkeep`."""
        found = await self._database.fetch("locks_of_queue", queue_id=queue_id, given_until=given_until, most=most)
        return [rows.held(row) for row in found]

    async def overdue(self, most: int) -> list[Unlocked]:
        """See `Upkeep`."""
        found = await self._database.fetch("overdue", most=most)
        return [Unlocked(number, queue_id, rows.STATES[state]) for number, queue_id, state in found]

    async def _of_numbers(self, name: str, tokens: Sequence[LockToken]) -> Sequence[Row]:
        numbers = sorted({token.sequence_number for token in tokens})
        return await self._database.fetch(name, numbers=numbers) if numbers else ()

    # ---- acting ------------------------------------------------------------------------------------------------------

    async def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `Upkeep`."""
        return await self._withdraw_held("hold", withdrawals)

    async def expire(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `Upkeep`."""
        return await self._withdraw_held("hold_overdue", withdrawals)

    async def _withdraw_held(self, hold: str, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        async def work(session: Session) -> list[bool]:
            taken = await _take(session, hold, [withdrawal.row for withdrawal in withdrawals])
            await _withdraw(session, list(compress(withdrawals, taken)))
            return taken

        return await self._database.transaction(work)

    async def bury(self, rows: Sequence[Unlocked], reason: str) -> list[bool]:
        """See `Upkeep`."""

        async def work(session: Session) -> list[bool]:
            taken = await _take(session, "hold_overdue", rows)
            if numbers := [row.sequence_number for row in compress(rows, taken)]:
                await session.change("bury", numbers=numbers, reason=reason)
            return taken

        return await self._database.transaction(work)

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """See `Upkeep`."""
        seen = [replace(redrive.row, state=MessageState.DEAD_LETTERED) for redrive in redrives]

        async def work(session: Session) -> list[bool]:
            present = await _present(
                session, {queue for one in redrives for queue in (one.row.queue_id, one.to_queue_id)}
            )
            if not all(redrive.to_queue_id in present for redrive in redrives):
                raise QueueGone
            held = await _take(session, "hold", seen)
            taken = [is_held and one.row.queue_id in present for one, is_held in zip(redrives, held, strict=True)]
            groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
            for redrive in compress(redrives, taken):
                groups[redrive.row.queue_id, redrive.to_queue_id].append(redrive.row.sequence_number)
            for (from_queue_id, to_queue_id), numbers in groups.items():
                for queue_id, sign in ((from_queue_id, -1), (to_queue_id, 1)) if from_queue_id != to_queue_id else ():
                    name = present[queue_id]
                    await session.change("count_moved", numbers=numbers, queue_id=queue_id, queue=name, sign=sign)
                await session.change("redrive", numbers=numbers, to_queue_id=to_queue_id)
            return taken

        return await self._database.transaction(work)

    async def edit(self, edit: Edit) -> Message | None:
        """See `Upkeep`."""

        async def work(session: Session) -> Message | None:
            now = await _hold_seen(session, edit.seen)
            if now is None:
                return None
            await _edit(session, edit, now)
            return await _read(session, edit.seen.queue_id, edit.seen.sequence_number)

        return await self._database.transaction(work)

    async def cancel(self, seen: Message, queue: Queue) -> bool:
        """See `Upkeep`."""
        row = Unlocked(seen.sequence_number, queue.id, seen.state)
        withdrawal = Withdrawal(row, queue.name, Outcome.CANCELLED, queue.settings.archive_retention)

        async def work(session: Session) -> bool:
            if await _hold_seen(session, seen) is None:
                return False
            await _withdraw(session, [withdrawal])
            return True

        return await self._database.transaction(work)

    async def awaken(self, most: int) -> Awoken:
        """See `Upkeep`."""

        async def work(session: Session) -> Awoken:
            due = await session.fetch("due", most=most)
            if due:
                await session.change("awaken", numbers=[number for number, _ in due])
            rest = await session.fetch("until_next_due")
            by_queue: defaultdict[int, list[int]] = defaultdict(list)
            for number, queue_id in due:
                by_queue[queue_id].append(number)
            return Awoken(by_queue, max(0, rest[0][0]) if rest else None)

        return await self._database.transaction(work)

    async def forget(self, most: int) -> int:
        """See `Upkeep`; at most so many rows of each kind."""
        gone = 0
        for name in ("forget_settlements", "forget_attempts", "forget_recent_ids"):
            gone += await self._database.change(name, most=most)
        for (queue_id,) in await self._database.fetch("orphaned_queues"):
            gone += await self._purge_orphans(queue_id, most)
        await self._database.change("forget_deleted_queues", keep=DELETED_KEEP)
        return gone

    async def _purge_orphans(self, queue_id: int, most: int) -> int:
        """Archive messages of a queue that is gone, locked ones too; how many. None while the queue is there."""

        async def work(session: Session) -> int:
            if await session.fetch("queue_by_id", id=queue_id):
                return 0
            found = await session.fetch("orphans", queue_id=queue_id, most=most)
            chosen = fitting([Candidate(number, 0, body_bytes) for number, body_bytes in found], USUAL_BOUND.body_bytes)
            if chosen:
                left = await last_known(session, queue_id)
                numbers = [one.sequence_number for one in chosen]
                await _let_go(session, numbers, left.name, Outcome.PURGED, left.archive_retention)
            return len(chosen)

        return await self._database.transaction(work)


def _unheard(_moves: Sequence[Move], _effective: Sequence[bool]) -> None:
    """No listener is set."""


async def _read(session: Session, queue_id: int, sequence_number: int) -> Message | None:
    found = await session.fetch("read", queue_id=queue_id, sequence_number=sequence_number)
    return rows.message(found[0]) if found else None


async def _present(session: Session, queue_ids: Iterable[int]) -> Mapping[int, str]:
    """The names of those of these queues that are there."""
    found = [row for queue_id in queue_ids for row in await session.fetch("queue_by_id", id=queue_id)]
    return {queue.id: queue.name for queue in map(rows.queue, found)}


async def _take(session: Session, hold: str, seen: Sequence[Unlocked]) -> list[bool]:
    """Hold the rows that the fences of this statement let through; whether each was. Of two alike the second was not."""
    groups: defaultdict[tuple[int, MessageState], list[int]] = defaultdict(list)
    for row in seen:
        groups[row.queue_id, row.state].append(row.sequence_number)
    held: set[Unlocked] = set()
    for (queue_id, state), numbers in groups.items():
        found = await session.fetch(hold, numbers=numbers, queue_id=queue_id, state=state.value)
        held.update(Unlocked(number, queue_id, state) for (number,) in found)
    taken: list[bool] = []
    for row in seen:
        taken.append(row in held)
        held.discard(row)
    return taken


async def _hold_seen(session: Session, seen: Message) -> Instant | None:
    """The clock, if the message is unlocked and in the edition that was seen; then this transaction holds it."""
    held = await session.fetch(
        "hold_seen",
        sequence_number=seen.sequence_number,
        queue_id=seen.queue_id,
        state=seen.state.value,
        priority=seen.priority,
        available_at=seen.available_at,
        delivery_count=seen.delivery_count,
        failure_count=seen.failure_count,
        lock_generation=seen.lock_generation,
        properties=seen.envelope.properties.decode(),
    )
    return held[0][0] if held else None


async def _withdraw(session: Session, withdrawals: Sequence[Withdrawal]) -> None:
    """Archive and delete rows that this transaction holds."""
    groups: defaultdict[tuple[str, Outcome, Duration], list[int]] = defaultdict(list)
    for withdrawal in withdrawals:
        groups[withdrawal.queue, withdrawal.outcome, withdrawal.retention].append(withdrawal.row.sequence_number)
    for (queue, outcome, retention), numbers in groups.items():
        await _let_go(session, numbers, queue, outcome, retention)


async def _let_go(session: Session, numbers: Sequence[int], queue: str, outcome: Outcome, retention: Duration) -> None:
    """Archive rows that this transaction holds, or count them where nothing is archived, and delete them."""
    if retention:
        await session.change("into_archive", numbers=numbers, queue=queue, outcome=outcome.value, retention=retention)
    else:
        await session.change("count_unarchived", numbers=numbers, queue=queue)
    await session.change("delete_messages", numbers=numbers)


async def _edit(session: Session, edit: Edit, now: Instant) -> None:
    """Change a row that this transaction holds; a due time makes it scheduled or, when it has come, available."""
    number = edit.seen.sequence_number
    due = edit.available_at if edit.delay is None else now + edit.delay
    if due is not None:
        state = MessageState.SCHEDULED if due > now else MessageState.AVAILABLE
        await session.change("reschedule", sequence_number=number, state=state.value, available_at=max(due, now))
    if edit.priority is not None:
        await session.change("prioritise", sequence_number=number, priority=edit.priority)
    if edit.properties is not None:
        await session.change("rewrite", sequence_number=number, properties=write_properties(edit.properties))
