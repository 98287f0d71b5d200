"""The message store on SQLite, for one process: in a file or, in tests, in memory."""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from app.broker.ports.attempts import Attempt
from app.broker.ports.settling import Admitted, Extended, Extension
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, Receipt
from app.domain.settlement import LockToken, Move, Removal, undelivered_release
from app.domain.weight import weight_of
from app.domain.work_unit import WorkUnit
from app.runtime.clock import Clock
from app.store.shared.attempts import CLAIM_WEIGHT, stored_answer
from app.store.shared.database import BatchObserver
from app.store.shared.engine import UnitEffects, check_effective
from app.store.shared.messages import MessageRecords
from app.store.shared.states import add_versions, lock_states
from app.store.shared.synchronous_sends import add_synchronous_sends
from app.store.shared.write_check import WriteCheck
from app.store.sqlite import actions
from app.store.sqlite.database import SqliteDatabase, Step, Transaction
from app.store.sqlite.dialect import DIALECT

Entry = TypeVar("Entry")
Result = TypeVar("Result")

IN_MEMORY_RISK = "The database is in memory: its messages end with the process."


class SqliteStore(MessageRecords[Transaction]):
    """`Store` over one SQLite database."""

    dialect = DIALECT

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self.database = database
        database.on_admitted = self._announce
        self._write_check = WriteCheck(database)
        database.on_refused = self._write_check.on_refused

    # ---- the engine --------------------------------------------------------------------------------------------------
    #
    # The one writer runs all steps one after the other, and announces the messages that they admit.

    async def run(self, work: Callable[[Transaction], Awaitable[Result]], weight: int = 0) -> Result:
        """See `Engine`. The one writer meets no other transaction."""
        return await self.database.transaction(work, weight)

    async def begin_attempt(self, session: Transaction, attempt: Attempt) -> str | None:
        """See `Engine`. Only reads."""
        return stored_answer(session.rows("earlier_attempt", attempt_key=attempt.key), attempt)

    async def answer_attempt(self, session: Transaction, attempt: Attempt, answer: str) -> None:
        """See `Engine`."""
        session.execute(
            "save_attempt",
            attempt_key=attempt.key,
            fingerprint=attempt.fingerprint,
            answer=answer,
            retention=attempt.retention,
        )

    async def forget_attempt(self, session: Transaction) -> None:
        """See `Engine`. Nothing was written."""

    async def execute_within(self, session: Transaction, unit: WorkUnit) -> UnitEffects:
        """See `Engine`. Raises `SettlementsFailed`, and refuses, before anything is changed."""
        check_effective(unit.settlements, [actions.is_effective(session, one) for one in unit.settlements])
        states = await lock_states(session, unit.states)
        for settlement in unit.settlements:
            if isinstance(settlement, Removal):
                actions.remove(session, settlement)
            else:
                actions.move(session, settlement)
        drafts = unit.drafts if states.recorded is None else ()
        receipts = actions.send(session, drafts)
        await add_synchronous_sends(session, drafts, receipts)
        versions = await add_versions(session, states, unit.states, receipts)
        return UnitEffects(states.recorded or receipts, session.admitted, versions=versions)

    def on_executed(self, unit: WorkUnit, effects: UnitEffects) -> None:
        """See `Engine`. The database has announced them."""

    async def claim_within(self, session: Transaction, claim: Claim) -> list[Message]:
        """See `Engine`. A repeat of an attempt gets the messages of a caller that was cancelled."""
        return actions.claim(session, claim)

    async def still_locked_within(self, session: Transaction, tokens: Sequence[LockToken]) -> list[Message]:
        """See `Engine`."""
        return actions.still_locked(session, tokens)

    async def remove_within(
        self, session: Transaction, removals: Sequence[Removal]
    ) -> tuple[list[bool], list[Admitted]]:
        """See `Engine`."""
        return [actions.remove(session, removal) for removal in removals], []

    async def extend_within(self, session: Transaction, extensions: Sequence[Extension]) -> list[bool]:
        """See `Engine`."""
        return [actions.extend(session, extension) is not None for extension in extensions]

    async def add_members(self, session: Transaction, members: Sequence[Mapping[str, Any]]) -> None:
        """See `Engine`."""
        for member in members:
            session.execute("add_member", **member)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `SendingStore`."""
        return await self.database.write(Step(partial(actions.send, drafts=drafts), weight=_weight(drafts)))

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> list[Message]:
        """See `ReceivingStore`."""
        return await self.database.write(
            Step(
                partial(actions.claim, wanted_claim=claim),
                partial(self._release_orphaned_step, claim),
                CLAIM_WEIGHT * claim.max_messages,
            )
        )

    async def claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `ReceivingStore`."""
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

    # ---- release of locks --------------------------------------------------------------------------------------------

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `SettlingStore`."""
        return await self.database.write(Step(_for_each(actions.remove, removals)))

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `SettlingStore`."""
        return await self.database.write(Step(_for_each(actions.move, moves)))

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `SettlingStore`."""
        return await self.database.write(Step(_for_each(actions.extend, extensions)))

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `SettlingStore`."""
        return await self.database.write(Step(_for_each(actions.release, moves)))

    async def delete_expired(self, limit: int) -> int:
        """See `MaintainingStore`. Also folds the counts of accepted messages."""
        forgotten = await super().delete_expired(limit)
        await self.database.write(Step(actions.fold_accepted))
        return forgotten

    async def check_writable(self) -> None:
        """See `StoreDatabase`."""
        await self._write_check.run()

    async def durability_risks(self) -> list[str]:
        """See `StoreDatabase`. Each connection to a file waits until a commit is on disk (`file.SETTINGS`)."""
        return [] if self.database.is_on_disk else [IN_MEMORY_RISK]

    async def is_replicated(self) -> bool:
        """See `StoreDatabase`. A file has no standbys."""
        return False

    async def acquire_exclusive(self) -> list[str]:
        """See `Store`. The file's lock was taken when the file was opened."""
        return await self.durability_risks()

    async def acquire_shared(self) -> list[str]:
        """See `Store`. Only one process serves a file, with or without Redis."""
        await self.queues.start_lock_version()
        return await self.durability_risks()

    async def close(self) -> None:
        """See `LockStore`."""
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
