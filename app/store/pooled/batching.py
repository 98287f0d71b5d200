"""A store on a database server: requests that arrive together share one statement."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import structlog

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.settling import Extended, Extension
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.refusals import RequestInProgress, StoreUnavailable
from app.domain.settlement import LockedMessage, LockToken, Move, Removal, Tombstone, undelivered_release
from app.domain.weight import weight_of
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.runtime.clock import Clock
from app.runtime.coalescer import WeightLimits
from app.store.pooled.advisory_lock import AdvisoryLock
from app.store.pooled.engine import PooledEngine
from app.store.pooled.lanes import Lanes
from app.store.pooled.pool import AnySession, AttemptInUse, InUse, MessageIdInUse, Pool
from app.store.pooled.state_mutex import StateMutex
from app.store.shared.database import BatchObserver, Database, DiskNotWritable, NotWritable, StoreCoalescer
from app.store.shared.engine import UnitEffects
from app.store.shared.groups import any_in_group
from app.store.shared.held_groups import change_apart
from app.store.shared.history import any_keeps_history
from app.store.shared.message_rows import messages_locked_by
from app.store.shared.messages import MessageRecords
from app.store.shared.write_check import WriteCheck

Entry = TypeVar("Entry")
Result = TypeVar("Result")

RunBatch: TypeAlias = Callable[[list[Entry]], Coroutine[Any, Any, list[Result]]]

ClaimByNumber: TypeAlias = tuple[Claim, Sequence[int]]
"""A claim of messages by their numbers."""

SEND_LIMITS: WeightLimits[Draft] = WeightLimits(weight_of, max_run_weight=4 << 20, max_waiting_weight=64 << 20)
"""Bytes of drafts. MariaDB accepts 16 MiB per packet unless configured otherwise, and a body may grow to twice its size
in the text of a statement. With more than one statement in flight, larger batches gain nothing."""


DEDUPLICATED_SEND_LIMITS: WeightLimits[Draft] = WeightLimits(
    weight_of, max_run_weight=4 << 20, max_waiting_weight=16 << 20
)
"""The same for drafts that are checked for duplicate message ids."""

IN_USE_DELAYS = (0.01, 0.05, 0.2, 0.5)
"""Seconds before each retry with a message id or an attempt that another transaction is about to use."""

CLAIM_LIMITS: WeightLimits[Claim] = WeightLimits(attrgetter("max_messages"), max_run_weight=1000)
"""Messages that the claims request. All callers are answered when the run ends, so a small claim must not wait for
large ones."""

RELEASE_DELAYS = (0.005, 0.02, 0.08, 0.3, 1.0)
"""Seconds before each retry to release messages of a cancelled caller while another request has them locked."""

POOLER_WARNING = (
    "The database is reached through a pooler: no process can tell whether another one without the same Redis serves "
    "it, and plans follow the server's statistics unless the role has the settings named in docs/postgresql.md."
)

log = structlog.get_logger("peeklock.store")


class PooledStore(PooledEngine[AnySession], MessageRecords[AnySession]):
    """The verbs that run for every message, each with a batch of callers.

    Without an `advisory_lock` no process checks which other processes serve the database.
    """

    def __init__(
        self,
        database: Database,
        pool: Pool[AnySession],
        advisory_lock: AdvisoryLock | None,
        clock: Clock,
        observe: BatchObserver,
    ) -> None:
        super().__init__(database)
        self._pool = pool
        self._clock = clock
        self._advisory_lock = advisory_lock
        self._write_check = WriteCheck(pool)
        pool.on_refused = self._on_refused
        self._observe = observe
        self._state_mutex = StateMutex()
        self._release_tasks: set[asyncio.Task[None]] = set()
        send = self._observed("send", self.run_sends)
        self._sends = Lanes(lambda: StoreCoalescer(send, limits=SEND_LIMITS))
        # Apart, because their bodies need a further statement.
        self._shared_sends = StoreCoalescer(send, limits=SEND_LIMITS)
        # A batch of its own, because a message id that another transaction has locked fails a whole statement.
        self._deduplicated_sends = Lanes(lambda: StoreCoalescer(send, limits=DEDUPLICATED_SEND_LIMITS))
        claim = self._observed("claim", self.run_claims)
        self._claims, self._recorded_claims = (
            StoreCoalescer(claim, limits=CLAIM_LIMITS, on_orphaned=self._release_orphaned) for _ in range(2)
        )
        # Dead letters are received rarely, and each claim of them is a statement of its own.
        self._dead_letter_claims = StoreCoalescer(claim, max_batch_size=1, on_orphaned=self._release_orphaned)
        # One at a time. The coalescer is used for its release of messages whose caller was cancelled.
        self._claims_by_number = StoreCoalescer(
            self._run_claims_by_number,
            max_batch_size=1,
            on_orphaned=self._release_orphaned_by_number,
        )
        self._lock_reads = StoreCoalescer(self._observed("held", super().locked_messages))
        self._tombstone_reads = StoreCoalescer(self._observed("tombstones", super().tombstones))
        remove, move = self._observed("remove", self.run_removals), self._observed("move", self.run_moves)
        release = self._observed("release", self.run_releases)
        self._removals = Lanes(lambda: StoreCoalescer(remove))
        self._moves = Lanes(lambda: StoreCoalescer(move))
        self._releases = Lanes(lambda: StoreCoalescer(release))
        extend = self._observed("extend", self.run_extensions)
        self._extensions, self._recorded_extensions = (StoreCoalescer(extend) for _ in range(2))

    # ---- the engine --------------------------------------------------------------------------------------------------

    async def run(self, work: Callable[[AnySession], Awaitable[Result]], weight: int = 0) -> Result:
        """See `Engine`. Each work has a transaction of its own."""
        return await self._retry_while_in_use(partial(self._pool.transaction, work))

    async def forget_attempt(self, session: AnySession) -> None:
        """See `Engine`."""
        await session.rollback()

    async def still_locked_within(self, session: AnySession, tokens: Sequence[LockToken]) -> list[Message]:
        """See `Engine`."""
        if not tokens:
            return []
        read_started_at = self._clock.monotonic()
        found_rows = await session.fetch("still_locked", numbers=[token.sequence_number for token in tokens])
        return messages_locked_by(tokens, found_rows, read_started_at)

    def on_executed(self, unit: WorkUnit, effects: UnitEffects) -> None:
        """See `Engine`."""
        self._announce(effects.admitted)

    async def execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        """See `WorkUnitStore`."""
        async with self._state_mutex.hold(unit):
            return await self._execute(unit, attempt)

    async def _execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        return await super().execute(unit, attempt)

    # ---- sending and receiving ---------------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `SendingStore`."""
        if any(map(attrgetter("duplicate_window"), drafts)):
            # Only an id that is checked for duplicates can be in use.
            work = partial(self._deduplicated_sends.of(drafts).submit_all, drafts)
            return await self._retry_while_in_use(work)
        if any(map(attrgetter("shared_body_id"), drafts)):
            return await self._shared_sends.submit_all(drafts)
        return await self._sends.of(drafts).submit_all(drafts)

    async def _retry_while_in_use(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run the work. If another transaction uses the same id or attempt, pause without a connection and retry."""
        for pause in IN_USE_DELAYS:
            try:
                return await work()
            except InUse:
                await self._clock.sleep(pause)
        try:
            return await work()
        except MessageIdInUse as error:
            raise StoreUnavailable("Another request is sending a message with this id.") from error
        except AttemptInUse as error:
            raise RequestInProgress from error

    async def claim(self, claim: Claim) -> list[Message]:
        """See `ReceivingStore`."""
        claims = self._recorded_claims if claim.keeps_history else self._claims
        if claim.source is MessageState.DEAD_LETTERED:
            claims = self._dead_letter_claims
        return await claims.submit(claim)

    async def claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `ReceivingStore`."""
        return await self._claims_by_number.submit((claim, numbers))

    async def _run_claims_by_number(self, claims_by_number: list[ClaimByNumber]) -> list[list[Message]]:
        return [await self.run_claim_by_number(claim, numbers) for claim, numbers in claims_by_number]

    def _release_orphaned_by_number(self, claim_by_number: ClaimByNumber, messages: list[Message]) -> None:
        self._release_orphaned(claim_by_number[0], messages)

    def _release_orphaned(self, claim: Claim, messages: list[Message]) -> None:
        """Release messages that were claimed for a cancelled caller."""
        if messages:
            moves = [undelivered_release(message, keeps_history=claim.keeps_history) for message in messages]
            task = asyncio.create_task(self._release_unclaimed(moves), name=f"release to queue {claim.queue_id}")
            self._release_tasks.add(task)
            task.add_done_callback(self._release_tasks.discard)

    async def _release_unclaimed(self, moves: Sequence[Move]) -> None:
        remaining = moves
        try:
            remaining = await self._try_release(moves)
            for pause in RELEASE_DELAYS:
                if not remaining:
                    return
                await self._clock.sleep(pause)
                remaining = await self._try_release(remaining)
            error = "another request has locked them"
        except StoreUnavailable as failure:
            error = str(failure)
        if remaining:
            log.warning(
                "undelivered messages stay locked until their locks expire", messages=len(remaining), error=error
            )

    async def _try_release(self, moves: Sequence[Move]) -> list[Move]:
        """Return the moves that had no effect."""
        moved = await self.move(moves)
        self.on_moved(moves, moved)
        return [move for move, effective in zip(moves, moved, strict=True) if not effective]

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def locked_messages(self, tokens: Sequence[LockToken]) -> list[LockedMessage | None]:
        """See `SettlingStore`."""
        return await self._lock_reads.submit_all(tokens)

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """See `SettlingStore`."""
        return await self._tombstone_reads.submit_all(tokens)

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `SettlingStore`."""
        return await self._removals.of(removals).submit_all(removals)

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `SettlingStore`."""
        return await self._moves.of(moves).submit_all(moves)

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `SettlingStore`."""
        if not any_in_group(moves):
            return await self._releases.of(moves).submit_all(moves)
        released = await asyncio.gather(
            self._release_some(moves, [index for index, move in enumerate(moves) if not move.is_in_group]),
            self._release_in_groups(moves),
        )
        return [any(index in some for some in released) for index in range(len(moves))]

    async def _release_in_groups(self, moves: Sequence[Move]) -> set[int]:
        """Free messages of groups, but those of held groups. Return the indexes of the moves that took effect.

        Apart from the others, because a group that is in use must not keep their locks from ending.
        """
        in_groups = {
            index: (move.queue_id, move.token.sequence_number) for index, move in enumerate(moves) if move.is_in_group
        }
        return await change_apart(self._pool, in_groups, partial(self._release_some, moves), self._groups_of_locks)

    async def _release_some(self, moves: Sequence[Move], indexes: Sequence[int]) -> set[int]:
        chosen = [moves[index] for index in indexes]
        return set(compress(indexes, await self._releases.of(chosen).submit_all(chosen)))

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `SettlingStore`."""
        recorded = any_keeps_history(extensions)
        return await (self._recorded_extensions if recorded else self._extensions).submit_all(extensions)

    # ---- store -------------------------------------------------------------------------------------------------------

    async def check_writable(self) -> None:
        """See `StoreDatabase`."""
        await self._write_check.run()

    def leave_server(self) -> None:
        """Close all connections, also that of the lock, because the server is no longer the primary."""
        self._pool.terminate()
        if self._advisory_lock is not None:
            self._advisory_lock.disconnect()

    def _on_refused(self, error: NotWritable) -> None:
        self._write_check.on_refused(error)
        if self._advisory_lock is not None and not isinstance(error, DiskNotWritable):
            # The lock must be on the server that the next connection reaches.
            self._advisory_lock.disconnect()

    async def durability_risks(self) -> list[str]:
        """See `StoreDatabase`."""
        return [self.unsafe_settings[setting] for (setting,) in await self._pool.fetch("unsafe_settings")]

    async def is_replicated(self) -> bool:
        """See `StoreDatabase`. MariaDB and MySQL stop waiting for their replicas after a timeout."""
        return False

    async def acquire_exclusive(self) -> list[str]:
        """See `Store`."""
        return await self._acquire_lock("acquire_exclusive")

    async def acquire_shared(self) -> list[str]:
        """See `Store`."""
        return await self._acquire_lock("acquire_shared")

    async def close(self) -> None:
        """See `LockStore`."""
        claims = (self._claims, self._recorded_claims, self._dead_letter_claims, self._claims_by_number)
        sends = (self._sends, self._shared_sends, self._deduplicated_sends)
        for coalescer in (*sends, *claims, self._lock_reads, self._tombstone_reads):
            await coalescer.close()
        while self._release_tasks:
            await asyncio.wait(self._release_tasks)
        extensions = (self._extensions, self._recorded_extensions)
        for coalescer in (self._removals, self._moves, self._releases, *extensions):
            await coalescer.close()
        if self._advisory_lock is not None:
            await self._advisory_lock.release()
        await self._pool.close()

    async def _acquire_lock(self, claim: str) -> list[str]:
        warnings = await self.durability_risks()
        if self._advisory_lock is None:
            if claim == "acquire_shared":
                await self.queues.start_lock_version()
            return [*warnings, POOLER_WARNING]
        await self._advisory_lock.acquire(claim)
        return warnings

    def _observed(self, verb: str, run: RunBatch[Entry, Result]) -> RunBatch[Entry, Result]:
        """Return the batch function of a coalescer, which also reports the size of each batch."""

        def observed(entries: list[Entry]) -> Coroutine[Any, Any, list[Result]]:
            self._observe(verb, len(entries))
            return run(entries)

        return observed
