"""The message store on PostgreSQL: one statement serves all callers of the same verb."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.maintaining import Edit, MoveStep, Promoted, Redrive
from app.broker.ports.settling import Admitted, Extended, Extension
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.queue import Queue
from app.domain.settlement import LockToken, Move, Removal
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.runtime.clock import Clock
from app.store.pooled.advisory_lock import AdvisoryLock
from app.store.pooled.batching import PooledStore
from app.store.pooled.pool import AttemptInUse, Pool
from app.store.postgresql import receiving, sending, settling
from app.store.postgresql.commits import GatheredCommits
from app.store.postgresql.connect import Connector, parse_address
from app.store.postgresql.depths import DepthCountingDatabase
from app.store.postgresql.dialect import DIALECT
from app.store.postgresql.entries import entry_columns
from app.store.postgresql.scan_bounds import ScanBounds
from app.store.postgresql.session import UNSAFE_SETTINGS, PostgresqlSession, PreparedStatement
from app.store.postgresql.settling import AnySettlement, Settlement
from app.store.postgresql.timelines import HighestTimelines
from app.store.shared.attempts import Answers, stored_answer
from app.store.shared.database import BatchObserver
from app.store.shared.engine import UnitEffects
from app.store.shared.groups import GroupKey, any_in_group
from app.store.shared.history import any_keeps_history
from app.store.shared.rows import Row
from app.store.shared.shared_bodies import shared_bodies

Result = TypeVar("Result")

TIMELINE = "timeline:"
"""The beginning of the name of a system's timeline among what processes have seen."""

MAX_FOLD_ROWS = 50_000
"""Changes of depths or counts that one statement folds."""


class PostgresqlStore(PooledStore[PostgresqlSession]):
    """`Store` on PostgreSQL 14 or later."""

    dialect = DIALECT
    unsafe_settings = UNSAFE_SETTINGS

    def __init__(
        self,
        pool: Pool[PostgresqlSession],
        advisory_lock: AdvisoryLock | None,
        clock: Clock,
        observe: BatchObserver,
        timelines: HighestTimelines | None = None,
    ) -> None:
        super().__init__(DepthCountingDatabase(pool), pool, advisory_lock, clock, observe)
        self._timelines = timelines or HighestTimelines()
        self._timelines.on_raised = self.leave_server
        self._scan_bounds = ScanBounds()
        self._commits = GatheredCommits(pool, self._observed, self.on_executed)

    # ---- timelines ---------------------------------------------------------------------------------------------------

    def seen(self) -> Mapping[str, int]:
        """See `StoreDatabase`."""
        return {f"{TIMELINE}{system}": number for system, number in self._timelines.numbers.items()}

    def learn(self, seen: Mapping[str, int]) -> None:
        """See `StoreDatabase`."""
        known = {name.removeprefix(TIMELINE): number for name, number in seen.items() if name.startswith(TIMELINE)}
        self._timelines.raise_to({int(system): number for system, number in known.items()})

    # ---- the engine --------------------------------------------------------------------------------------------------

    async def begin_attempt(self, session: PostgresqlSession, attempt: Attempt) -> str | None:
        """See `Engine`. Raises `AttemptInUse` if the first try is still running."""
        if await session.fetch(
            "begin_attempt", attempt_key=attempt.key, fingerprint=attempt.fingerprint, retention=attempt.retention
        ):
            return None
        found_rows = await session.fetch("earlier_attempt", attempt_key=attempt.key)
        if not found_rows:
            raise AttemptInUse
        return stored_answer(found_rows, attempt)

    async def answer_attempt(self, session: PostgresqlSession, attempt: Attempt, answer: str) -> None:
        """See `Engine`."""
        await session.change("answer_attempt", attempt_key=attempt.key, answer=answer)

    async def store_within(self, session: PostgresqlSession, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `PooledEngine`."""
        return await sending.send(session, drafts)

    async def settle_within(self, session: PostgresqlSession, unit: WorkUnit) -> tuple[list[GroupKey], list[Admitted]]:
        """See `PooledEngine`."""
        return await settling.settle_unit(session, unit)

    async def claim_within(self, session: PostgresqlSession, claim: Claim) -> list[Message]:
        """See `Engine`."""
        return await receiving.claim_unbatched(session, self._scan_bounds, self._clock, claim)

    async def remove_within(
        self, session: PostgresqlSession, removals: Sequence[Removal]
    ) -> tuple[list[bool], list[Admitted]]:
        """See `Engine`."""
        settled, admitted = await settling.settle_in_groups(session, settling.REMOVE, removals)
        return [row is not None for row in settled], admitted

    async def extend_within(self, session: PostgresqlSession, extensions: Sequence[Extension]) -> list[bool]:
        """See `Engine`."""
        return [row is not None for row in await settling.extend_and_record(session, extensions)]

    async def add_members(self, session: PostgresqlSession, members: Sequence[Mapping[str, Any]]) -> None:
        """See `Engine`."""
        columns = tuple(members[0])
        await session.change("add_members", **entry_columns(columns, [tuple(member.values()) for member in members]))

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def run_sends(self, drafts: list[Draft]) -> list[Receipt]:
        """See `PooledEngine`."""
        admitted: list[Admitted] = []
        if any_in_group(drafts) or shared_bodies(drafts):
            work = partial(self.send_within, drafts=drafts)
            receipts, admitted = await self._pool.transaction(work)
        else:
            statements = sending.RECORDED_SEND if any_keeps_history(drafts) else sending.SEND
            receipts = await sending.send(self._pool, drafts, statements)
        self._lower_bounds(drafts, receipts)
        self._announce(admitted)
        return receipts

    def _lower_bounds(self, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
        if self._scan_bounds.is_idle:
            return
        for draft, receipt in zip(drafts, receipts, strict=True):
            if receipt.state is MessageState.AVAILABLE:
                position = (receipt.enqueued_at, receipt.sequence_number)
                self._scan_bounds.lower(draft.queue_id, draft.priority, position)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim_or_replay(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """See `ReceivingStore`."""
        try:
            return await super().claim_or_replay(claim, attempt)
        except BaseException:
            # The messages that it claimed are available again, perhaps below a `ScanBound` that rose over them.
            self._scan_bounds.discard(claim.queue_id)
            raise

    async def run_claims(self, claims: list[Claim]) -> list[list[Message] | Exception]:
        """See `PooledEngine`."""
        if claims[0].source is not MessageState.DEAD_LETTERED or not any_keeps_history(claims):
            return await receiving.claim(self._pool, self._scan_bounds, self._clock, claims)
        work = partial(receiving.claim_in_transaction, bounds=self._scan_bounds, clock=self._clock, claims=claims)
        return await self._pool.transaction(work)

    async def run_claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `PooledEngine`."""
        work = partial(receiving.claim_by_number, clock=self._clock, claim=claim, numbers=numbers)
        return await (self._pool.transaction(work) if claim.keeps_history else work(self._pool))

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def run_removals(self, removals: list[Removal]) -> list[bool]:
        """See `PooledEngine`."""
        if any_keeps_history(removals) and not any_in_group(removals):
            recorded = settling.RECORDED_REMOVE
            settled = await settling.settle(self._pool, recorded, removals, **settling.WITHOUT_GROUPS)
        else:
            settled = await self._settle(settling.REMOVE, removals)
        return [row is not None for row in settled]

    async def run_moves(self, moves: list[Move]) -> list[bool]:
        """See `PooledEngine`."""
        return await self._settle_moves(settling.MOVE, moves)

    async def run_releases(self, moves: list[Move]) -> list[bool]:
        """See `PooledEngine`."""
        return await self._settle_moves(settling.RELEASE, moves)

    async def _settle_moves(self, settlement: Settlement[Move], moves: list[Move]) -> list[bool]:
        settled = await self._settle(settlement, moves)
        for move, row in zip(moves, settled, strict=True):
            if row is not None and move.state is MessageState.AVAILABLE:
                *_, priority, available_at = row
                self._scan_bounds.lower(move.queue_id, priority, (available_at, move.token.sequence_number))
        return [row is not None for row in settled]

    async def _settle(
        self, settlement: Settlement[AnySettlement], entries: Sequence[AnySettlement]
    ) -> Sequence[Row | None]:
        """Run a settlement. The same transaction admits messages of groups and records it, if entries may need that."""
        if not (any_in_group(entries) or any_keeps_history(entries)):
            return await settling.settle(self._pool, settlement, entries, **settling.WITHOUT_GROUPS)
        work = partial(settling.settle_in_groups, settlement=settlement, entries=entries)
        settled, admitted = await self._pool.transaction(work)
        self._announce(admitted)
        return settled

    async def _execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        effects = await self._commits.execute(unit, attempt)
        if effects is not None:
            return AttemptResult(effects.result(unit), replayed=False)
        return await super()._execute(unit, attempt)

    async def _execute_once(
        self,
        unit: WorkUnit,
        attempt: Attempt | None,
        answers: Answers[PostgresqlSession, Result],
        result_of: Callable[[UnitEffects], Result],
    ) -> AttemptResult[Result]:
        try:
            return await super()._execute_once(unit, attempt, answers, result_of)
        except BaseException:
            # The transaction may have been committed.
            self._discard_bounds({entry.queue_id for entry in (*unit.settlements, *unit.drafts)})
            raise

    async def locked_message_id(self, queue_id: int, token: LockToken) -> str | None:
        """See `SettlingStore`."""
        return await self._commits.locked_message_id(queue_id, token)

    def on_executed(self, unit: WorkUnit, effects: UnitEffects) -> None:
        """See `Engine`."""
        if not any(version.duplicate for version in effects.versions):
            self._lower_bounds(unit.drafts, effects.receipts)
        self._lower_bounds_for(effects.returned)
        self._announce(effects.admitted)

    def _announce(self, admitted: Sequence[Admitted]) -> None:
        self._lower_bounds_for(admitted)
        super()._announce(admitted)

    def _lower_bounds_for(self, messages: Sequence[Admitted]) -> None:
        for message in messages:
            position = (message.available_at, message.sequence_number)
            self._scan_bounds.lower(message.queue_id, message.priority, position)

    async def run_extensions(self, extensions: list[Extension]) -> list[Extended | None]:
        """See `PooledEngine`."""
        read_started_at = self._clock.monotonic()
        if any_keeps_history(extensions):
            extended = await self._pool.transaction(partial(settling.extend_and_record, extensions=extensions))
        else:
            extended = await settling.extend(self._pool, extensions)
        return [None if row is None else Extended(*row[1:], read_started_at=read_started_at) for row in extended]

    # ---- other verbs that store messages below a `ScanBound` ---------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        """See `MaintainingStore`."""
        promoted = await super().promote(limit)
        self._discard_bounds(promoted.by_queue)
        return promoted

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """See `MaintainingStore`."""
        try:
            return await super().redrive(redrives)
        finally:
            self._discard_bounds({redrive.to_queue_id for redrive in redrives})

    async def advance_move(self, step: MoveStep) -> list[bool] | None:
        """See `MaintainingStore`."""
        try:
            return await super().advance_move(step)
        finally:
            self._discard_bounds({redrive.to_queue_id for redrive in step.redrives})

    async def restore(self, queue: Queue, numbers: Sequence[int]) -> list[Receipt]:
        """See `MaintainingStore`."""
        try:
            return await super().restore(queue, numbers)
        finally:
            self._discard_bounds([queue.id])

    async def edit(self, edit: Edit) -> Message | None:
        """See `MaintainingStore`."""
        try:
            return await super().edit(edit)
        finally:
            self._discard_bounds([edit.expected.queue_id])

    def _discard_bounds(self, queue_ids: Iterable[int]) -> None:
        for queue_id in queue_ids:
            self._scan_bounds.discard(queue_id)

    async def close(self) -> None:
        """See `LockStore`."""
        await self._commits.close()
        await super().close()

    async def is_replicated(self) -> bool:
        """See `StoreDatabase`."""
        ((replicated,),) = await self._pool.fetch("is_replicated")
        return replicated

    # ---- depths ------------------------------------------------------------------------------------------------------

    async def delete_expired(self, limit: int) -> int:
        """See `MaintainingStore`. Also folds the changes of queues' depths and of the counts of accepted messages."""
        deleted = await super().delete_expired(limit)
        for statement in ("fold_depths", "fold_accepted"):
            while await self._pool.fetch(statement, limit=MAX_FOLD_ROWS) == [(MAX_FOLD_ROWS,)]:
                pass
        # Last, because it looks up the queue of each row.
        await self._pool.change("delete_orphaned_depths")
        return deleted


async def open_postgresql(url: str, clock: Clock, connections: int, observe: BatchObserver) -> PostgresqlStore:
    """Open the store at this address. Raises `StoreUnavailable` if the database does not answer."""
    server_address = parse_address(url)
    connect = Connector(server_address)
    statements = {name: PreparedStatement(statement) for name, statement in DIALECT.statements.items()}

    async def new_session() -> PostgresqlSession:
        return PostgresqlSession(await connect(), statements)

    # Behind a pooler the lock would belong to the next client of the same server connection.
    advisory_lock = None if server_address.is_pooled else AdvisoryLock(new_session, clock)
    pool = Pool(new_session, connections, check=advisory_lock.ensure_held if advisory_lock else None)
    store = PostgresqlStore(pool, advisory_lock, clock, observe, connect.timelines)
    await store.now()
    return store
