"""The message store on SQLite: for one process, in a file or, for tests, in memory."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from app.broker.ports import Attempt, Extended, Extension, Once, QueueGone
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.refusals import KeyReused
from app.domain.settlement import TOMBSTONE_KEEP, LockToken, Move, Removal, given_back
from app.domain.weight import fitting, weight_of
from app.runtime.clock import Clock
from app.store import rows
from app.store.archive_records import ArchiveRecords
from app.store.database import Observe
from app.store.documents import read_receipts, read_tokens, write_receipts, write_tokens
from app.store.endings import move_values, tombstone_values
from app.store.key_records import KeyRecords
from app.store.message_records import MessageRecords
from app.store.queue_records import QueueRecords
from app.store.rows import Row
from app.store.sqlite_database import SqliteDatabase, Step, Transaction

Entry = TypeVar("Entry")
Answer = TypeVar("Answer")

CLAIMED = 4 << 10
"""What a message that is asked for weighs in a commit: a claim of a thousand has one of its own."""

NEXT_OF = {MessageState.AVAILABLE: "next_available", MessageState.DEAD_LETTERED: "next_dead_lettered"}


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
        """See `Messages`."""
        return await self.database.write(Step(partial(_send, drafts), weight=_weight(drafts)))

    async def send_once(self, drafts: Sequence[Draft], attempt: Attempt) -> Once[list[Receipt]]:
        """See `Messages`. Nobody else can hold the attempt, so this refuses with `KeyReused` alone."""

        def do(transaction: Transaction) -> Once[list[Receipt]]:
            if (answer := _earlier(transaction, attempt)) is not None:
                return Once(read_receipts(answer), replayed=True)
            receipts = _send(drafts, transaction)
            _keep(transaction, attempt, write_receipts(receipts))
            return Once(receipts, replayed=False)

        return await self.database.write(Step(do, weight=_weight(drafts)))

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> list[Message]:
        """See `Messages`."""
        return await self.database.write(Step(partial(_claim, claim), self._give_back, CLAIMED * claim.most))

    async def claim_these(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `Messages`."""
        step = Step(partial(_claim_these, claim, list(numbers)), self._give_back, CLAIMED * claim.most)
        return await self.database.write(step)

    def _give_back(self, messages: Sequence[Message]) -> Step[list[bool]] | None:
        """Free what was claimed for a caller that has gone."""
        if not messages:
            return None
        moves = [given_back(message) for message in messages]
        return Step(_each(_move, moves), heard=partial(self.on_moved, moves))

    async def claim_once(self, claim: Claim, attempt: Attempt) -> Once[list[Message]]:
        """See `Messages`. What a caller who has gone was given, a repeat of the attempt still gets."""

        def do(transaction: Transaction) -> Once[list[Message]]:
            if (answer := _earlier(transaction, attempt)) is not None:
                return Once(_still_locked(transaction, read_tokens(answer)), replayed=True)
            messages = _claim(claim, transaction)
            if messages:
                _keep(transaction, attempt, write_tokens(messages))
            return Once(messages, replayed=False)

        return await self.database.write(Step(do, weight=CLAIMED * claim.most))

    # ---- ending locks ------------------------------------------------------------------------------------------------

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `Messages`."""
        return await self.database.write(Step(_each(_remove, removals)))

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """See `Upkeep`."""

        def do(transaction: Transaction) -> list[bool]:
            removed = [_remove(transaction, removal) for removal in removals]
            if any(removed):
                transaction.count("count_lock_purge", id=queue_id)
            return removed

        return await self.database.write(Step(do))

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        return await self.database.write(Step(_each(_move, moves)))

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `Messages`."""
        return await self.database.write(Step(_each(_extend, extensions)))

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        return await self.database.write(Step(_each(_release, moves)))

    async def forget(self, most: int) -> int:
        """See `Upkeep`. Adds up the counts of accepted messages as well."""
        forgotten = await super().forget(most)
        await self.database.write(Step(_fold_accepted))
        return forgotten

    async def claim_alone(self) -> list[str]:
        """See `Store`. The file's lock was taken when it was opened, and durability is not up to anybody else."""
        return []

    async def claim_shared(self) -> list[str]:
        """See `Store`. A file has one process, whatever the lock store."""
        return []

    async def close(self) -> None:
        """See `Store`."""
        await self.database.close()


async def open_sqlite(path: Path | None, clock: Clock, observe: Observe) -> SqliteStore:
    """Open the file at the path, or a database in memory, which gets its tables here.

    Refuses with `FileInUse` where another process has the file, and with `StoreUnavailable` where it cannot be used.
    """
    database = SqliteDatabase(path, clock, observe)
    try:
        await database.call_on_writer(_only_open if path else _make_tables)
    except BaseException:
        await database.close()
        raise
    return SqliteStore(database)


def _make_tables(connection: sqlite3.Connection) -> None:
    _empty_database().backup(connection)
    # The copy has the identity of its model.
    connection.execute("UPDATE broker SET id = lower(hex(fresh_secret()))")


@cache
def _empty_database() -> sqlite3.Connection:
    """A database with today's tables and without a row, made once: a copy of it takes a fiftieth of the time."""
    # Only here: Alembic takes longer to be imported than most commands take to be done.
    migrate = import_module("app.store.migrate")
    model = sqlite3.connect(":memory:", check_same_thread=False)
    migrate.migrate_sqlite(model)
    return model


def _only_open(_connection: sqlite3.Connection) -> None:
    """Do nothing with the connection. To open it asks for a write-ahead log, which reads the schema in the file."""


# ---- what the writer does --------------------------------------------------------------------------------------------


def _each(
    act: Callable[[Transaction, Entry], Answer], entries: Sequence[Entry]
) -> Callable[[Transaction], list[Answer]]:
    """Do one after the other in one transaction; of two with the same token the second finds the first one's work."""
    return lambda transaction: [act(transaction, entry) for entry in entries]


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
        transaction.count("count_accepted", queue_id=queue_id, accepted=accepted)
    return receipts


def _store(transaction: Transaction, draft: Draft) -> Receipt:
    if draft.duplicate_window and (receipt := _first_receipt(transaction, draft)):
        return receipt
    values = dict(zip(rows.DRAFT_COLUMNS, rows.draft_row(draft), strict=True))
    ((number, enqueued_at, state),) = transaction.rows("send", **values)
    if draft.duplicate_window:
        transaction.count(
            "note_recent",
            queue_id=draft.queue_id,
            message_id=draft.envelope.message_id,
            sequence_number=number,
            state=state,
            enqueued_at=enqueued_at,
            window=draft.duplicate_window,
        )
    return Receipt(number, draft.envelope.message_id, enqueued_at, rows.STATES[state])


def _first_receipt(transaction: Transaction, draft: Draft) -> Receipt | None:
    """What the first sender of this message id was told, if that was within the window."""
    message_id = draft.envelope.message_id
    for number, enqueued_at, state in transaction.rows("recent", queue_id=draft.queue_id, message_id=message_id):
        return Receipt(number, message_id, enqueued_at, rows.STATES[state], duplicate=True)
    return None


def _claim(claim: Claim, transaction: Transaction) -> list[Message]:
    found = transaction.rows(NEXT_OF[claim.source], queue_id=claim.queue_id, most=claim.most)
    return _lock(transaction, claim, found)


def _claim_these(claim: Claim, numbers: list[int], transaction: Transaction) -> list[Message]:
    found = transaction.rows("those_in", numbers=numbers, queue_id=claim.queue_id, state=claim.source.value)
    by_number = {row[0]: row for row in found}
    wanted = [by_number[number] for number in dict.fromkeys(numbers) if number in by_number]
    return _lock(transaction, claim, wanted[: claim.most])


def _lock(transaction: Transaction, claim: Claim, found: Sequence[Row]) -> list[Message]:
    """Give the receiver those of these messages that its budget has room for, in this order."""
    if not found:
        return []
    weights = [weight for _, weight in found]
    count = fitting(weights, claim.budget)
    transaction.answered += sum(weights[:count])
    numbers = [number for number, _ in found[:count]]
    locked = transaction.rows("lock", numbers=numbers, lock_duration=claim.lock_duration, receiver_id=claim.receiver_id)
    received = (rows.message(row, transaction.began) for row in locked)
    by_number = {message.sequence_number: message for message in received}
    return [by_number[number] for number in numbers]


def _still_locked(transaction: Transaction, tokens: Sequence[LockToken]) -> list[Message]:
    """The messages that are still locked by these tokens, in their order."""
    found = transaction.rows("still_locked", numbers=[token.sequence_number for token in tokens])
    return rows.held_by(tokens, found, transaction.began)


def _remove(transaction: Transaction, removal: Removal) -> bool:
    if not _holds(transaction, "in_force", removal, above=removal.fence.above, up_to=removal.fence.up_to):
        return False
    numbers = [removal.token.sequence_number]
    if removal.retention:
        transaction.count(
            "into_archive",
            numbers=numbers,
            queue=removal.queue,
            outcome=removal.outcome.value,
            retention=removal.retention,
        )
    else:
        transaction.count("count_unarchived", numbers=numbers, queue=removal.queue)
    if removal.retention < TOMBSTONE_KEEP:
        transaction.count("entomb", **tombstone_values(removal))
    transaction.count("delete_messages", numbers=numbers)
    return True


def _move(transaction: Transaction, move: Move) -> bool:
    return _holds(transaction, "in_force", move, above=move.fence.above, up_to=move.fence.up_to) and _end(
        transaction, move
    )


def _release(transaction: Transaction, move: Move) -> bool:
    return _holds(transaction, "out_of_force", move, above=move.fence.above) and _end(transaction, move)


def _holds(transaction: Transaction, fence: str, ending: Move | Removal, **generations: int) -> bool:
    token = ending.token
    return bool(
        transaction.rows(
            fence,
            sequence_number=token.sequence_number,
            lock_token=token.secret,
            queue_id=ending.queue_id,
            **generations,
        )
    )


def _end(transaction: Transaction, move: Move) -> bool:
    """End the lock as the move says; its fence has been looked at in this transaction."""
    transaction.count("entomb", **tombstone_values(move))
    transaction.count("end_lock", **move_values(move))
    return True


def _extend(transaction: Transaction, extension: Extension) -> Extended | None:
    number = extension.token.sequence_number
    before = transaction.rows("end_of_lock", sequence_number=number)
    found = transaction.rows(
        "extend",
        sequence_number=number,
        lock_token=extension.token.secret,
        queue_id=extension.queue_id,
        by=extension.by,
        evidence=extension.evidence,
    )
    return Extended(*found[0], *before[0], read_after=transaction.began) if found else None


def _fold_accepted(transaction: Transaction) -> None:
    transaction.count("fold_accepted")
    transaction.count("drop_folded")


def _earlier(transaction: Transaction, attempt: Attempt) -> str | None:
    """What the first try of the attempt was answered; None where this is the first."""
    for fingerprint, answer in transaction.rows("earlier_attempt", attempt_key=attempt.key):
        if fingerprint != attempt.fingerprint:
            raise KeyReused
        return answer
    return None


def _keep(transaction: Transaction, attempt: Attempt, answer: str) -> None:
    transaction.count(
        "keep_attempt",
        attempt_key=attempt.key,
        fingerprint=attempt.fingerprint,
        answer=answer,
        keep=attempt.keep,
    )
