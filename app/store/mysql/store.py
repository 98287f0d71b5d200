"""The store on MariaDB or MySQL: the verbs that run for every message, with many callers per transaction."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from app.broker.ports.attempts import Attempt
from app.broker.ports.settling import Admitted, Extended, Extension
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, Receipt
from app.domain.refusals import MessageTooLarge
from app.domain.settlement import Move, Removal
from app.domain.work_unit import WorkUnit
from app.runtime.clock import Clock
from app.store.mysql import receiving, sending, settling
from app.store.mysql.connect import Connector
from app.store.mysql.dialect import DIALECT
from app.store.mysql.scan_limits import ScanLimits
from app.store.mysql.session import MysqlSession, StatementTooLarge
from app.store.pooled.advisory_lock import AdvisoryLock
from app.store.pooled.batching import PooledStore
from app.store.pooled.pool import AttemptInUse, Pool
from app.store.shared.attempts import stored_answer
from app.store.shared.database import BatchObserver, LockWaitTimeout
from app.store.shared.groups import GroupKey, any_in_group
from app.store.shared.history import any_keeps_history
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

MAX_FOLD_ROWS = 5_000
"""Changes of counts that one transaction folds."""


class ServerTooOld(BadStoreUrl):
    """The server lacks statements that the store needs."""


class MysqlStore(PooledStore[MysqlSession]):
    """`Store` on MariaDB 10.8 or later, and MySQL 8.0 or later. A batch is a transaction."""

    dialect = DIALECT
    unsafe_settings = UNSAFE_SETTINGS

    def __init__(
        self, pool: Pool[MysqlSession], advisory_lock: AdvisoryLock, clock: Clock, observe: BatchObserver
    ) -> None:
        super().__init__(pool, pool, advisory_lock, clock, observe)
        self._scan_limits: ScanLimits[receiving.SourceKey] = ScanLimits()

    # ---- the engine --------------------------------------------------------------------------------------------------

    async def begin_attempt(self, session: MysqlSession, attempt: Attempt) -> str | None:
        """See `Engine`. Raises `AttemptInUse` if the first try is still running."""
        try:
            *_, earlier = await session.execute(
                session.render("attempt_for_update", attempt_key=attempt.key),
                session.render(
                    "begin_attempt",
                    attempt_key=attempt.key,
                    fingerprint=attempt.fingerprint,
                    retention=attempt.retention,
                ),
                session.render("earlier_attempt", attempt_key=attempt.key),
            )
            found_rows = earlier.rows
        except LockWaitTimeout as error:
            # Another repeat may have locked the row. Read its answer without a lock.
            found_rows = await session.fetch("earlier_attempt", attempt_key=attempt.key)
            if not found_rows:
                raise AttemptInUse from error
        return stored_answer(found_rows, attempt)

    async def answer_attempt(self, session: MysqlSession, attempt: Attempt, answer: str) -> None:
        """See `Engine`. Commits in the same round trip."""
        await session.commit(
            session.render(
                "answer_attempt",
                attempt_key=attempt.key,
                fingerprint=attempt.fingerprint,
                answer=answer,
                retention=attempt.retention,
            )
        )

    async def store_within(self, session: MysqlSession, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `PooledEngine`."""
        return await sending.store(session, drafts, session.execute)

    async def settle_within(self, session: MysqlSession, unit: WorkUnit) -> tuple[list[GroupKey], list[Admitted]]:
        """See `PooledEngine`. Does not report messages that are available again."""
        return await settling.settle_locked(session, unit.settlements), []

    async def claim_within(self, session: MysqlSession, claim: Claim) -> list[Message]:
        """See `Engine`."""
        return await receiving.claim_unbatched(session, self._clock, claim, session.execute, self._scan_limits)

    async def remove_within(
        self, session: MysqlSession, removals: Sequence[Removal]
    ) -> tuple[list[bool], list[Admitted]]:
        """See `Engine`."""
        return await settling.remove(session, removals, session.execute)

    async def extend_within(self, session: MysqlSession, extensions: Sequence[Extension]) -> list[bool]:
        """See `Engine`."""
        extended = await settling.extend(session, self._clock, extensions, session.execute)
        return [lock is not None for lock in extended]

    async def add_members(self, session: MysqlSession, members: Sequence[Mapping[str, Any]]) -> None:
        """See `Engine`."""
        try:
            for insert in session.render_inserts("add_member", members):
                await session.execute(insert)
        except StatementTooLarge as error:
            raise MessageTooLarge(f"The database accepts at most {error.largest} bytes at a time.") from error

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def run_sends(self, drafts: list[Draft]) -> list[Receipt]:
        """See `PooledEngine`."""
        if not (any_in_group(drafts) or any_keeps_history(drafts)):
            return await self._pool.transaction(lambda session: sending.store(session, drafts, session.commit))
        receipts, admitted = await self._pool.transaction(partial(self.send_within, drafts=drafts))
        self._announce(admitted)
        return receipts

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def run_claims(self, claims: list[Claim]) -> list[list[Message] | Exception]:
        """See `PooledEngine`."""
        return await self._pool.transaction(
            lambda session: receiving.claim(session, self._clock, claims, session.commit, self._scan_limits)
        )

    async def run_claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `PooledEngine`."""
        return await self._pool.transaction(
            partial(receiving.claim_by_number, clock=self._clock, wanted_claim=claim, numbers=numbers)
        )

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def run_removals(self, removals: list[Removal]) -> list[bool]:
        """See `PooledEngine`."""
        return await self._settle(lambda session: settling.remove(session, removals, session.commit))

    async def run_moves(self, moves: list[Move]) -> list[bool]:
        """See `PooledEngine`."""
        return await self._settle(partial(settling.move, moves=moves))

    async def run_releases(self, moves: list[Move]) -> list[bool]:
        """See `PooledEngine`."""
        return await self._settle(partial(settling.release, moves=moves))

    async def _settle(self, work: Callable[[MysqlSession], Awaitable[settling.Settled]]) -> list[bool]:
        effective, admitted = await self._pool.transaction(work)
        self._announce(admitted)
        return effective

    async def run_extensions(self, extensions: list[Extension]) -> list[Extended | None]:
        """See `PooledEngine`."""

        async def work(session: MysqlSession) -> list[Extended | None]:
            execute = session.execute if any_keeps_history(extensions) else session.commit
            return await settling.extend(session, self._clock, extensions, execute)

        return await self._pool.transaction(work)

    # ---- counts ------------------------------------------------------------------------------------------------------

    async def delete_expired(self, limit: int) -> int:
        """See `MaintainingStore`. Also folds the changes of the counts of accepted messages."""
        deleted = await super().delete_expired(limit)
        while await self._pool.transaction(_fold_counts) == MAX_FOLD_ROWS:
            pass
        return deleted


async def _fold_counts(session: MysqlSession) -> int:
    """Add changes of counts of accepted messages to the row of their queue and day. Return how many were folded.

    A message that leaves its queue may change the count that its send has made. So the locks are taken and released in
    one round trip: a process that stops holds none of them.
    """
    *_, deleted = await session.commit(
        session.render("lock_changes", limit=MAX_FOLD_ROWS),
        session.render("fold_accepted"),
        session.render("delete_folded"),
    )
    return deleted.changed


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
