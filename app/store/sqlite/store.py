"""The message store on SQLite, for one process: in a file or, in tests, in memory."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from app.broker.ports import Attempt, AttemptResult, Extended, Extension, QueueGone
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.settlement import TOMBSTONE_RETENTION, LockToken, Move, Removal, undelivered_release
from app.domain.weight import count_that_fit, weight_of
from app.runtime.clock import Clock
from app.store.records import rows
from app.store.records.archive import ArchiveRecords
from app.store.records.attempts import stored_answer
from app.store.records.database import BatchObserver
from app.store.records.json_columns import read_receipts, read_tokens, write_receipts, write_tokens
from app.store.records.keys import KeyRecords
from app.store.records.messages import MessageRecords
from app.store.records.queues import QueueRecords
from app.store.records.rows import Row
from app.store.records.settlement_params import move_params, tombstone_params
from app.store.sqlite.database import SqliteDatabase, Step, Transaction

Entry = TypeVar("Entry")
Result = TypeVar("Result")

CLAIM_WEIGHT = 4 << 10
"""The weight of each requested message in a commit. A claim of a thousand has a commit of its own."""

NEXT_STATEMENTS = {MessageState.AVAILABLE: "next_available", MessageState.DEAD_LETTERED: "next_dead_lettered"}


class SqliteStore(MessageRecords):
    """`Store` over one SQLite database."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self.database = database
        self.archive = ArchiveRecords(database)
        self.queues = QueueRecords(database)
        self.keys = KeyRecords(database)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `MessageStore`."""
        return await self.database.write(Step(partial(_send, drafts), weight=_weight(drafts)))

    async def send_once(self, drafts: Sequence[Draft], attempt: Attempt) -> AttemptResult[list[Receipt]]:
        """See `MessageStore`. The one writer cannot meet a running attempt, so this refuses with `KeyReused` alone."""

        def do(transaction: Transaction) -> AttemptResult[list[Receipt]]:
            if (answer := _stored_answer(transaction, attempt)) is not None:
                return AttemptResult(read_receipts(answer), replayed=True)
            receipts = _send(drafts, transaction)
            _save_answer(transaction, attempt, write_receipts(receipts))
            return AttemptResult(receipts, replayed=False)

        return await self.database.write(Step(do, weight=_weight(drafts)))

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> list[Message]:
        """See `MessageStore`."""
        return await self.database.write(
            Step(partial(_claim, claim), self._release_orphaned_step, CLAIM_WEIGHT * claim.max_messages)
        )

    async def claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `MessageStore`."""
        step = Step(
            partial(_claim_by_number, claim, list(numbers)),
            self._release_orphaned_step,
            CLAIM_WEIGHT * claim.max_messages,
        )
        return await self.database.write(step)

    def _release_orphaned_step(self, messages: Sequence[Message]) -> Step[list[bool]] | None:
        """Release messages that were claimed for a cancelled caller."""
        if not messages:
            return None
        moves = [undelivered_release(message) for message in messages]
        return Step(_for_each(_move, moves), on_committed=partial(self.on_moved, moves))

    async def claim_once(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """See `MessageStore`. A repeat of the attempt gets the messages of a caller that was cancelled."""

        def do(transaction: Transaction) -> AttemptResult[list[Message]]:
            if (answer := _stored_answer(transaction, attempt)) is not None:
                return AttemptResult(_still_locked(transaction, read_tokens(answer)), replayed=True)
            messages = _claim(claim, transaction)
            if messages:
                _save_answer(transaction, attempt, write_tokens(messages))
            return AttemptResult(messages, replayed=False)

        return await self.database.write(Step(do, weight=CLAIM_WEIGHT * claim.max_messages))

    # ---- release of locks --------------------------------------------------------------------------------------------

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(_remove, removals)))

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """See `MaintenanceStore`."""

        def do(transaction: Transaction) -> list[bool]:
            removed = [_remove(transaction, removal) for removal in removals]
            if any(removed):
                transaction.execute("count_lock_purge", id=queue_id)
            return removed

        return await self.database.write(Step(do))

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(_move, moves)))

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(_extend, extensions)))

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(_release, moves)))

    async def delete_expired(self, limit: int) -> int:
        """See `MaintenanceStore`. Also folds the counts of accepted messages."""
        forgotten = await super().delete_expired(limit)
        await self.database.write(Step(_fold_accepted))
        return forgotten

    async def acquire_exclusive(self) -> list[str]:
        """See `Store`. The file's lock was taken when the file was opened. Durability depends on no server setting."""
        return []

    async def acquire_shared(self) -> list[str]:
        """See `Store`. Only one process serves a file, with or without Redis."""
        return []

    async def close(self) -> None:
        """See `Store`."""
        await self.database.close()


CreateTables = Callable[[sqlite3.Connection], None]


async def open_sqlite(
    path: Path | None, clock: Clock, observe: BatchObserver, create_tables: CreateTables
) -> SqliteStore:
    """Open the file at the path, or create a database in memory with its tables.

    Refuses with `FileInUse` if another process serves the file, and with `StoreUnavailable` if it cannot be used.
    """
    database = SqliteDatabase(path, clock, observe)
    try:
        await database.call_on_writer(_no_op if path else partial(_copy_tables, create_tables))
    except BaseException:
        await database.close()
        raise
    return SqliteStore(database)


def _copy_tables(create_tables: CreateTables, connection: sqlite3.Connection) -> None:
    _empty_database(create_tables).backup(connection)
    # The copy has the id of its template.
    connection.execute("UPDATE broker SET id = lower(hex(fresh_secret()))")


@cache
def _empty_database(create_tables: CreateTables) -> sqlite3.Connection:
    """A database with the current tables and no rows, made once: a copy takes a fiftieth of the time."""
    template = sqlite3.connect(":memory:", check_same_thread=False)
    create_tables(template)
    return template


def _no_op(_connection: sqlite3.Connection) -> None:
    """Do nothing with the connection. Opening it enables the write-ahead log, which reads the schema of the file."""


# ---- work of the writer ----------------------------------------------------------------------------------------------


def _for_each(
    action: Callable[[Transaction, Entry], Result], entries: Sequence[Entry]
) -> Callable[[Transaction], list[Result]]:
    """Run all entries in one transaction. Of two entries with one token, the second sees the effect of the first."""
    return lambda transaction: [action(transaction, entry) for entry in entries]


def _weight(drafts: Sequence[Draft]) -> int:
    return sum(map(weight_of, drafts))


def _send(drafts: Sequence[Draft], transaction: Transaction) -> list[Receipt]:
    """Store the drafts and count those that are no duplicates."""
    for queue_id in {draft.queue_id for draft in drafts}:
        if not transaction.rows("queue_by_id", id=queue_id):
            raise QueueGone
    receipts = [_store(transaction, draft) for draft in drafts]
    stored = Counter(draft.queue_id for draft, receipt in zip(drafts, receipts, strict=True) if not receipt.duplicate)
    for queue_id, accepted in stored.items():
        transaction.execute("count_accepted", queue_id=queue_id, accepted=accepted)
    return receipts


def _store(transaction: Transaction, draft: Draft) -> Receipt:
    if draft.duplicate_window and (receipt := _first_receipt(transaction, draft)):
        return receipt
    values = dict(zip(rows.DRAFT_COLUMNS, rows.draft_row(draft), strict=True))
    ((number, enqueued_at, state),) = transaction.rows("send", **values)
    if draft.duplicate_window:
        transaction.execute(
            "save_receipt",
            queue_id=draft.queue_id,
            message_id=draft.envelope.message_id,
            sequence_number=number,
            state=state,
            enqueued_at=enqueued_at,
            window=draft.duplicate_window,
        )
    return Receipt(number, draft.envelope.message_id, enqueued_at, rows.STATES[state])


def _first_receipt(transaction: Transaction, draft: Draft) -> Receipt | None:
    """Return the first receipt for this message id if it was sent within the window."""
    message_id = draft.envelope.message_id
    for number, enqueued_at, state in transaction.rows("first_receipt", queue_id=draft.queue_id, message_id=message_id):
        return Receipt(number, message_id, enqueued_at, rows.STATES[state], duplicate=True)
    return None


def _claim(claim: Claim, transaction: Transaction) -> list[Message]:
    found = transaction.rows(NEXT_STATEMENTS[claim.source], queue_id=claim.queue_id, most=claim.max_messages)
    return _lock(transaction, claim, found)


def _claim_by_number(claim: Claim, numbers: list[int], transaction: Transaction) -> list[Message]:
    found = transaction.rows("by_number", numbers=numbers, queue_id=claim.queue_id, state=claim.source.value)
    by_number = {row[0]: row for row in found}
    wanted = [by_number[number] for number in dict.fromkeys(numbers) if number in by_number]
    return _lock(transaction, claim, wanted[: claim.max_messages])


def _lock(transaction: Transaction, claim: Claim, found: Sequence[Row]) -> list[Message]:
    """Lock these messages for the receiver, in this order, up to its budget."""
    if not found:
        return []
    weights = [weight for _, weight in found]
    count = count_that_fit(weights, claim.max_bytes)
    transaction.result_weight += sum(weights[:count])
    numbers = [number for number, _ in found[:count]]
    locked = transaction.rows("lock", numbers=numbers, lock_duration=claim.lock_duration, receiver_id=claim.receiver_id)
    received = (rows.message(row, transaction.started_at) for row in locked)
    by_number = {message.sequence_number: message for message in received}
    return [by_number[number] for number in numbers]


def _still_locked(transaction: Transaction, tokens: Sequence[LockToken]) -> list[Message]:
    """Return the messages that these tokens still lock, in the order of the tokens."""
    found = transaction.rows("still_locked", numbers=[token.sequence_number for token in tokens])
    return rows.messages_locked_by(tokens, found, transaction.started_at)


def _remove(transaction: Transaction, removal: Removal) -> bool:
    if not _fence_holds(
        transaction, "fence_holds", removal, above=removal.fence.generation_above, up_to=removal.fence.max_generation
    ):
        return False
    numbers = [removal.token.sequence_number]
    if removal.retention:
        transaction.execute(
            "archive_messages",
            numbers=numbers,
            queue=removal.queue,
            outcome=removal.outcome.value,
            retention=removal.retention,
        )
    else:
        transaction.execute("count_unarchived", numbers=numbers, queue=removal.queue)
    if removal.retention < TOMBSTONE_RETENTION:
        transaction.execute("add_tombstones", **tombstone_params(removal))
    transaction.execute("delete_messages", numbers=numbers)
    return True


def _move(transaction: Transaction, move: Move) -> bool:
    return _fence_holds(
        transaction, "fence_holds", move, above=move.fence.generation_above, up_to=move.fence.max_generation
    ) and _end_lock(transaction, move)


def _release(transaction: Transaction, move: Move) -> bool:
    return _fence_holds(transaction, "lock_ended", move, above=move.fence.generation_above) and _end_lock(
        transaction, move
    )


def _fence_holds(transaction: Transaction, fence: str, settlement: Move | Removal, **generations: int) -> bool:
    token = settlement.token
    return bool(
        transaction.rows(
            fence,
            sequence_number=token.sequence_number,
            lock_token=token.secret,
            queue_id=settlement.queue_id,
            **generations,
        )
    )


def _end_lock(transaction: Transaction, move: Move) -> bool:
    """End the lock by this move. This transaction has checked its fence."""
    transaction.execute("add_tombstones", **tombstone_params(move))
    transaction.execute("end_lock", **move_params(move))
    return True


def _extend(transaction: Transaction, extension: Extension) -> Extended | None:
    number = extension.token.sequence_number
    before = transaction.rows("locked_until", sequence_number=number)
    found = transaction.rows(
        "extend",
        sequence_number=number,
        lock_token=extension.token.secret,
        queue_id=extension.queue_id,
        by=extension.duration,
        evidence=extension.expired_generation,
    )
    return Extended(*found[0], *before[0], read_started_at=transaction.started_at) if found else None


def _fold_accepted(transaction: Transaction) -> None:
    transaction.execute("fold_accepted")
    transaction.execute("drop_folded")


def _stored_answer(transaction: Transaction, attempt: Attempt) -> str | None:
    return stored_answer(transaction.rows("earlier_attempt", attempt_key=attempt.key), attempt)


def _save_answer(transaction: Transaction, attempt: Attempt, answer: str) -> None:
    transaction.execute(
        "save_attempt",
        attempt_key=attempt.key,
        fingerprint=attempt.fingerprint,
        answer=answer,
        keep=attempt.retention,
    )
