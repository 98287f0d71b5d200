"""The message store on SQLite, for one process: in a file or, in tests, in memory."""

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import compress
from pathlib import Path
from typing import TypeVar

from app.broker.ports import Attempt, AttemptResult, Extended, Extension, SettlementsFailed
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, Receipt
from app.domain.queue import Queue
from app.domain.settlement import Move, Removal, undelivered_release
from app.domain.weight import weight_of
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.runtime.clock import Clock
from app.store.shared.archive import ArchiveRecords
from app.store.shared.attempts import stored_receipts, stored_unit_result
from app.store.shared.database import BatchObserver
from app.store.shared.history import record_restored
from app.store.shared.json_columns import (
    read_tokens,
    write_receipts,
    write_tokens,
    write_unit_result,
)
from app.store.shared.keys import KeyRecords
from app.store.shared.messages import MessageRecords
from app.store.shared.queues import QueueRecords
from app.store.shared.restoring import take_restorable
from app.store.shared.sessions import SessionRecords
from app.store.shared.topics import TopicRecords
from app.store.shared.transactions import TransactionRecords
from app.store.shared.write_check import WriteCheck
from app.store.sqlite import actions, transactions, work_unit
from app.store.sqlite.database import SqliteDatabase, Step, Transaction, run_to_completion
from app.store.sqlite.dialect import DIALECT

Entry = TypeVar("Entry")
Result = TypeVar("Result")

IN_MEMORY_RISK = "The database is in memory: its messages end with the process."

CLAIM_WEIGHT = 4 << 10
"""The weight of each requested message in a commit. A claim of a thousand has a commit of its own."""


class SqliteStore(MessageRecords):
    """`Store` over one SQLite database."""

    engine = DIALECT.name

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self.database = database
        database.on_admitted = self._announce
        self._write_check = WriteCheck(database)
        database.on_refused = self._write_check.on_refused
        self.archive = ArchiveRecords(database)
        self.queues = QueueRecords(database)
        self.keys = KeyRecords(database)
        self.sessions = SessionRecords(database)
        self.topics = TopicRecords(database)
        self.transactions = TransactionRecords(database, transactions.steps(database))

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `MessageStore`."""
        return await self.database.write(Step(partial(actions.send, drafts=drafts), weight=_weight(drafts)))

    async def send_or_replay(self, drafts: Sequence[Draft], attempt: Attempt) -> AttemptResult[list[Receipt]]:
        """See `MessageStore`. The one writer cannot meet a running attempt, so this refuses with `KeyReused` alone."""

        def do(transaction: Transaction) -> AttemptResult[list[Receipt]]:
            if (answer := actions.earlier_answer(transaction, attempt)) is not None:
                return AttemptResult(
                    run_to_completion(partial(stored_receipts, answer=answer), transaction), replayed=True
                )
            receipts = actions.send(transaction, drafts)
            actions.save_answer(transaction, attempt, write_receipts(receipts))
            return AttemptResult(receipts, replayed=False)

        return await self.database.write(Step(do, weight=_weight(drafts)))

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> list[Message]:
        """See `MessageStore`."""
        return await self.database.write(
            Step(
                partial(actions.claim, wanted_claim=claim),
                partial(self._release_orphaned_step, claim),
                CLAIM_WEIGHT * claim.max_messages,
            )
        )

    async def claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `MessageStore`."""
        step = Step(
            partial(actions.claim_by_number, claim=claim, numbers=list(numbers)),
            partial(self._release_orphaned_step, claim),
            CLAIM_WEIGHT * claim.max_messages,
        )
        return await self.database.write(step)

    def _release_orphaned_step(self, claim: Claim, messages: Sequence[Message]) -> Step[list[bool]] | None:
        """Release messages that were claimed for a cancelled caller."""
        if not messages:
            return None
        moves = [undelivered_release(message, keeps_history=claim.keeps_history) for message in messages]
        return Step(_for_each(actions.move, moves), on_committed=partial(self.on_moved, moves))

    async def claim_or_replay(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """See `MessageStore`. A repeat of the attempt gets the messages of a caller that was cancelled."""

        def do(transaction: Transaction) -> AttemptResult[list[Message]]:
            if (answer := actions.earlier_answer(transaction, attempt)) is not None:
                return AttemptResult(actions.still_locked(transaction, read_tokens(answer)), replayed=True)
            messages = actions.claim(transaction, claim)
            if messages:
                actions.save_answer(transaction, attempt, write_tokens(messages))
            return AttemptResult(messages, replayed=False)

        return await self.database.write(Step(do, weight=CLAIM_WEIGHT * claim.max_messages))

    # ---- release of locks --------------------------------------------------------------------------------------------

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(actions.remove, removals)))

    async def execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        """See `MessageStore`."""

        def do(transaction: Transaction) -> AttemptResult[WorkUnitResult] | SettlementsFailed:
            if attempt and (answer := actions.earlier_answer(transaction, attempt)) is not None:
                return AttemptResult(
                    run_to_completion(partial(stored_unit_result, answer=answer), transaction), replayed=True
                )
            if failure := work_unit.failure(transaction, unit):
                return failure
            result = work_unit.execute(transaction, unit).result(unit)
            if attempt:
                actions.save_answer(transaction, attempt, write_unit_result(result))
            return AttemptResult(result, replayed=False)

        weight = _weight(unit.drafts) + sum(len(change.value) for change in unit.states)
        result = await self.database.write(Step(do, weight=weight))
        if isinstance(result, SettlementsFailed):
            raise result
        return result

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """See `MaintenanceStore`."""

        def do(transaction: Transaction) -> list[bool]:
            removed = [actions.remove(transaction, removal) for removal in removals]
            if numbers := [removal.token.sequence_number for removal in compress(removals, removed)]:
                transaction.execute("add_restorable", numbers=numbers)
                transaction.execute("count_lock_purge", id=queue_id)
            return removed

        return await self.database.write(Step(do))

    async def restore(self, queue: Queue, numbers: Sequence[int]) -> list[Receipt]:
        """See `RestoreStore`."""

        async def work(transaction: Transaction) -> list[Receipt]:
            receipts = actions.send(transaction, await take_restorable(transaction, queue, numbers))
            await record_restored(transaction, receipts, transaction.admitted)
            return receipts

        return await self.database.transaction(work)

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(actions.move, moves)))

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(actions.extend, extensions)))

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `MessageStore`."""
        return await self.database.write(Step(_for_each(actions.release, moves)))

    async def delete_expired(self, limit: int) -> int:
        """See `MaintenanceStore`. Also folds the counts of accepted messages."""
        forgotten = await super().delete_expired(limit)
        await self.database.write(Step(actions.fold_accepted))
        return forgotten

    async def check_writable(self) -> None:
        """See `StoreReadiness`."""
        await self._write_check.run()

    async def durability_risks(self) -> list[str]:
        """See `StoreDescription`. Each connection to a file waits until a commit is on disk (`file.SETTINGS`)."""
        return [] if self.database.is_on_disk else [IN_MEMORY_RISK]

    async def is_replicated(self) -> bool:
        """See `StoreDescription`. A file has no standbys."""
        return False

    async def acquire_exclusive(self) -> list[str]:
        """See `Store`. The file's lock was taken when the file was opened."""
        return await self.durability_risks()

    async def acquire_shared(self) -> list[str]:
        """See `Store`. Only one process serves a file, with or without Redis."""
        await self.queues.start_lock_version()
        return await self.durability_risks()

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


def _for_each(
    action: Callable[[Transaction, Entry], Result], entries: Sequence[Entry]
) -> Callable[[Transaction], list[Result]]:
    """Run all entries in one transaction. Of two entries with one token, the second sees the effect of the first."""
    return lambda transaction: [action(transaction, entry) for entry in entries]


def _weight(drafts: Sequence[Draft]) -> int:
    return sum(map(weight_of, drafts))
