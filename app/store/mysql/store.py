"""The store on MariaDB or MySQL: the verbs that run for every message, with many callers per transaction."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from app.broker.ports import Admitted, Attempt, AttemptResult, Extended, Extension
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, Receipt
from app.domain.queue import Queue
from app.domain.settlement import Move, Removal
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.runtime.clock import Clock
from app.store.mysql import accepted_counts as counts
from app.store.mysql import attempts, receiving, sending, settling, transactions, work_unit
from app.store.mysql.connect import Connector
from app.store.mysql.dialect import DIALECT
from app.store.mysql.scan_limits import ScanLimits
from app.store.mysql.session import MysqlSession
from app.store.pooled.advisory_lock import AdvisoryLock
from app.store.pooled.batching import ServerStore
from app.store.pooled.pool import Pool
from app.store.pooled.state_mutex import StateMutex
from app.store.shared.attempts import stored_receipts, stored_unit_result
from app.store.shared.database import BatchObserver, unavailable_when_closed
from app.store.shared.history import any_keeps_history, record_restored
from app.store.shared.json_columns import (
    read_tokens,
    write_receipts,
    write_tokens,
    write_unit_result,
)
from app.store.shared.restoring import take_restorable
from app.store.shared.transaction_steps import TransactionSteps
from app.store.shared.transactions import TransactionRecords
from app.store.shared.unit_effects import UnitEffects
from app.store.url import BadStoreUrl

MIN_VERSIONS: Mapping[str, tuple[int, int]] = {"MariaDB": (10, 8), "MySQL": (8, 0)}
"""The first versions that can skip locked rows, read JSON as a table and keep an index in descending order."""

UNSAFE_SETTINGS: Mapping[str, str] = {
    "innodb_flush_log_at_trx_commit": (
        "The database acknowledges commits early (innodb_flush_log_at_trx_commit): acknowledged changes can be lost."
    ),
    "sync_binlog": "The binary log is not synchronised at commit (sync_binlog): a power cut can undo acknowledged changes.",
    "innodb_doublewrite": "The database runs without innodb_doublewrite: a power cut can damage tables.",
}


class ServerTooOld(BadStoreUrl):
    """The server lacks statements that the store needs."""


class MysqlStore(ServerStore[MysqlSession]):
    """`Store` on MariaDB 10.8 or later, and MySQL 8.0 or later. A batch is a transaction."""

    engine = DIALECT.name
    unsafe_settings = UNSAFE_SETTINGS

    def __init__(
        self, pool: Pool[MysqlSession], advisory_lock: AdvisoryLock, clock: Clock, observe: BatchObserver
    ) -> None:
        super().__init__(pool, pool, advisory_lock, clock, observe)
        self._scan_limits: ScanLimits[receiving.SourceKey] = ScanLimits()
        self._state_mutex = StateMutex()
        extend = partial(transactions.extend, clock=clock)
        steps = TransactionSteps(
            transactions.add_members,
            extend,
            work_unit.execute,
            self._run_again,
            self._on_executed,
            attempts.begin,
            attempts.answer,
        )
        self.transactions = TransactionRecords(pool, steps)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def _send(self, drafts: list[Draft]) -> list[Receipt]:
        receipts, admitted = await self._pool.transaction(partial(sending.send, drafts=drafts))
        self._announce(admitted)
        return receipts

    async def send_or_replay(self, drafts: Sequence[Draft], attempt: Attempt) -> AttemptResult[list[Receipt]]:
        """See `MessageStore`."""

        async def work(session: MysqlSession) -> tuple[AttemptResult[list[Receipt]], list[Admitted]]:
            earlier = await attempts.begin(session, attempt)
            if earlier is not None:
                return AttemptResult(await stored_receipts(session, earlier), replayed=True), []
            receipts, admitted = await sending.send_into_groups(session, drafts)
            await session.commit(attempts.answer_statement(session, attempt, write_receipts(receipts)))
            return AttemptResult(receipts, replayed=False), admitted

        result, admitted = await self._retry_while_in_use(partial(self._pool.transaction, work))
        self._announce(admitted)
        return result

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim_or_replay(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """See `MessageStore`. An attempt that finds nothing is not recorded, so that a repeat may find something."""

        async def work(session: MysqlSession) -> AttemptResult[list[Message]]:
            earlier = await attempts.begin(session, attempt)
            if earlier is not None:
                return AttemptResult(
                    await receiving.still_locked(session, self._clock, read_tokens(earlier)), replayed=True
                )
            messages = await receiving.claim_unbatched(session, self._clock, claim, session.execute, self._scan_limits)
            if messages:
                await session.commit(attempts.answer_statement(session, attempt, write_tokens(messages)))
            else:
                await session.rollback()
            return AttemptResult(messages, replayed=False)

        return await self._retry_while_in_use(partial(self._pool.transaction, work))

    async def _claim(self, claims: list[Claim]) -> list[list[Message] | Exception]:
        return await self._pool.transaction(
            lambda session: receiving.claim(session, self._clock, claims, session.commit, self._scan_limits)
        )

    async def _claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        return await self._pool.transaction(
            partial(receiving.claim_by_number, clock=self._clock, wanted_claim=claim, numbers=numbers)
        )

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def _remove(self, removals: list[Removal]) -> list[bool]:
        return await self._settle(partial(settling.remove, removals=removals))

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """See `MaintenanceStore`."""

        async def work(session: MysqlSession) -> settling.Settled:
            def afterwards(numbers: Sequence[int]) -> list[bytes]:
                return [
                    session.render("add_restorable", numbers=numbers),
                    session.render("count_lock_purge", id=queue_id),
                ]

            return await settling.remove(session, removals, afterwards)

        with unavailable_when_closed:
            return await self._settle(work)

    async def restore(self, queue: Queue, numbers: Sequence[int]) -> list[Receipt]:
        """See `RestoreStore`."""

        async def work(session: MysqlSession) -> tuple[list[Receipt], list[Admitted]]:
            drafts = await take_restorable(session, queue, numbers)
            receipts, admitted = await sending.send_into_groups(session, drafts)
            await record_restored(session, receipts, admitted)
            return receipts, admitted

        with unavailable_when_closed:
            receipts, admitted = await self._pool.transaction(work)
        self._announce(admitted)
        return receipts

    async def execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        """See `MessageStore`."""
        async with self._state_mutex.hold(unit):
            return await self._execute(unit, attempt)

    async def _execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        async def work(session: MysqlSession) -> tuple[AttemptResult[WorkUnitResult], Sequence[Admitted]]:
            earlier = None if attempt is None else await attempts.begin(session, attempt)
            if earlier is not None:
                return AttemptResult(await stored_unit_result(session, earlier), replayed=True), ()
            effects = await work_unit.execute(session, unit)
            result = effects.result(unit)
            if attempt is not None:
                await session.commit(attempts.answer_statement(session, attempt, write_unit_result(result)))
            return AttemptResult(result, replayed=False), effects.admitted

        result, admitted = await self._retry_while_in_use(partial(self._pool.transaction, work))
        self._announce(admitted)
        return result

    def _on_executed(self, _unit: WorkUnit, effects: UnitEffects) -> None:
        self._announce(effects.admitted)

    async def _move(self, moves: list[Move]) -> list[bool]:
        return await self._settle(partial(settling.move, moves=moves))

    async def _release(self, moves: list[Move]) -> list[bool]:
        return await self._settle(partial(settling.release, moves=moves))

    async def _settle(self, work: Callable[[MysqlSession], Awaitable[settling.Settled]]) -> list[bool]:
        effective, admitted = await self._pool.transaction(work)
        self._announce(admitted)
        return effective

    async def _extend(self, extensions: list[Extension]) -> list[Extended | None]:
        async def work(session: MysqlSession) -> list[Extended | None]:
            execute = session.execute if any_keeps_history(extensions) else session.commit
            return await settling.extend(session, self._clock, extensions, execute)

        return await self._pool.transaction(work)

    # ---- counts ------------------------------------------------------------------------------------------------------

    async def delete_expired(self, limit: int) -> int:
        """See `MaintenanceStore`. Also folds the changes of the counts of accepted messages."""
        deleted = await super().delete_expired(limit)
        while await self._pool.transaction(counts.fold) == counts.MAX_FOLD_ROWS:
            pass
        return deleted


async def open_mysql(url: str, clock: Clock, connections: int, observe: BatchObserver) -> MysqlStore:
    """Open the store at this address.

    Raises `StoreUnavailable` if the database does not answer. Refuses with `ServerTooOld`.
    """
    connect = Connector(url)

    advisory_lock = AdvisoryLock(connect, clock)
    pool = Pool(connect, connections, check=advisory_lock.ensure_held)
    ((version,),) = await pool.fetch("version")
    try:
        check_version(version)
    except ServerTooOld:
        await pool.close()
        raise
    return MysqlStore(pool, advisory_lock, clock, observe)


def check_version(version: str) -> None:
    """Refuse an old server with `ServerTooOld`. A version is reported as `8.0.39` or `10.11.6-MariaDB-log`."""
    name = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    # Some MariaDB servers put 5.5.5 before their version, for replicas that would not understand it.
    major, minor = map(int, version.removeprefix("5.5.5-").split(".")[:2])
    if (major, minor) < MIN_VERSIONS[name]:
        min_version = ".".join(map(str, MIN_VERSIONS[name]))
        raise ServerTooOld(f"The server is {name} {version}; the store needs at least {min_version}.")
