"""The message store on PostgreSQL: one statement for all who do the same at the same moment."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from app.broker.ports import Attempt, Awoken, Edit, Extended, Extension, Once, Redrive
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.settlement import TOMBSTONE_KEEP, Move, Removal
from app.runtime.clock import Clock
from app.store import postgresql_attempts as attempts
from app.store import postgresql_receiving as receiving
from app.store import postgresql_sending as sending
from app.store import postgresql_settling as settling
from app.store.database import Observe
from app.store.floors import Floors
from app.store.pool import Pool
from app.store.postgresql_depths import CountingDatabase
from app.store.postgresql_session import WEAKNESSES, PreparedStatement, Session, address, connect
from app.store.presence import Presence
from app.store.server_store import ServerStore
from app.store.statements import Engine, load

Result = TypeVar("Result")

LARGEST_FOLD = 50_000
"""Changes of depths, or of counts, added up in one statement."""


class PostgresStore(ServerStore[Session]):
    """`Store` on PostgreSQL, from version 14 on."""

    weaknesses = WEAKNESSES

    def __init__(self, pool: Pool[Session], presence: Presence | None, clock: Clock, observe: Observe) -> None:
        super().__init__(CountingDatabase(pool), pool, presence, clock, observe)
        self._floors = Floors()

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def send_once(self, drafts: Sequence[Draft], attempt: Attempt) -> Once[list[Receipt]]:
        """See `Messages`."""
        work = partial(attempts.send, drafts=drafts, attempt=attempt)
        once = await self._until_free(partial(self._transact, work))
        if not once.replayed:
            self._note_sent(drafts, once.answer)
        return once

    async def _send(self, drafts: list[Draft]) -> list[Receipt]:
        receipts = await sending.send(self._pool, drafts)
        self._note_sent(drafts, receipts)
        return receipts

    def _note_sent(self, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
        if self._floors.is_idle:
            return
        for draft, receipt in zip(drafts, receipts, strict=True):
            if receipt.state is MessageState.AVAILABLE:
                place = (receipt.enqueued_at, receipt.sequence_number)
                self._floors.lower(draft.queue_id, draft.priority, place)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim_once(self, claim: Claim, attempt: Attempt) -> Once[list[Message]]:
        """See `Messages`. An attempt that finds nothing is not remembered, so that a repeat may find something."""
        work = partial(attempts.receive, floors=self._floors, clock=self._clock, claim=claim, attempt=attempt)
        try:
            return await self._until_free(partial(self._transact, work))
        except BaseException:
            # What it had claimed is free again, perhaps below a floor that rose over it.
            self._floors.forget(claim.queue_id)
            raise

    async def _claim(self, claims: list[Claim]) -> list[list[Message] | Exception]:
        return await receiving.claim(self._pool, self._floors, self._clock, claims)

    async def _claim_these(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        return await receiving.claim_these(self._pool, self._clock, claim, numbers)

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def _remove(self, removals: list[Removal]) -> list[bool]:
        run = partial(self._pool.fetch, "remove", keep=TOMBSTONE_KEEP)
        return [row is not None for row in await settling.settle(removals, settling.of_removals, run)]

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """See `Upkeep`."""

        async def work(session: Session) -> list[bool]:
            run = partial(session.fetch, "remove", keep=TOMBSTONE_KEEP)
            removed = [row is not None for row in await settling.settle(removals, settling.of_removals, run)]
            if any(removed):
                await session.change("count_lock_purge", id=queue_id)
            return removed

        return await self._transact(work)

    async def _move(self, moves: list[Move]) -> list[bool]:
        return await self._end("move", moves)

    async def _release(self, moves: list[Move]) -> list[bool]:
        return await self._end("release", moves)

    async def _end(self, name: str, moves: list[Move]) -> list[bool]:
        run = partial(self._pool.fetch, name, keep=TOMBSTONE_KEEP)
        ended = await settling.settle(moves, settling.of_moves, run)
        for move, row in zip(moves, ended, strict=True):
            if row is not None and move.state is MessageState.AVAILABLE:
                _, priority, available_at = row
                self._floors.lower(move.queue_id, priority, (available_at, move.token.sequence_number))
        return [row is not None for row in ended]

    async def _extend(self, extensions: list[Extension]) -> list[Extended | None]:
        asked = self._clock.monotonic()
        extended = await settling.settle(extensions, settling.of_extensions, partial(self._pool.fetch, "extend"))
        return [None if row is None else Extended(*row[1:], read_after=asked) for row in extended]

    # ---- what else puts messages below a floor -----------------------------------------------------------------------

    async def awaken(self, most: int) -> Awoken:
        """See `Upkeep`."""
        awoken = await super().awaken(most)
        self._forget_floors(awoken.by_queue)
        return awoken

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """See `Upkeep`."""
        redriven = await super().redrive(redrives)
        self._forget_floors({redrive.to_queue_id for redrive in redrives})
        return redriven

    async def edit(self, edit: Edit) -> Message | None:
        """See `Upkeep`."""
        edited = await super().edit(edit)
        self._forget_floors([edit.seen.queue_id])
        return edited

    def _forget_floors(self, queue_ids: Iterable[int]) -> None:
        for queue_id in queue_ids:
            self._floors.forget(queue_id)

    # ---- depths ------------------------------------------------------------------------------------------------------

    async def forget(self, most: int) -> int:
        """See `Upkeep`. Adds up the changes of queues' depths, and of the counts of accepted messages, as well."""
        forgotten = await super().forget(most)
        await self._pool.change("forget_depths")
        for fold in ("fold_depths", "fold_accepted"):
            while await self._pool.fetch(fold, most=LARGEST_FOLD) == [(LARGEST_FOLD,)]:
                pass
        return forgotten

    async def _transact(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        return await self._pool.repeat(lambda session: session.transact(work))


async def open_postgresql(url: str, clock: Clock, connections: int, observe: Observe) -> PostgresStore:
    """The store at this address, once it has answered. Raises `StoreUnavailable` when it does not."""
    where = address(url)
    statements = {name: PreparedStatement(statement) for name, statement in load(Engine.POSTGRESQL).items()}

    async def new_session() -> Session:
        return Session(await connect(where), statements)

    async def new_session_while_present() -> Session:
        if presence is not None:
            await presence.keep()
        return await new_session()

    # Behind a pooler the lock would be that of whoever comes next over the same connection.
    presence = None if where.is_pooled else Presence(new_session)
    store = PostgresStore(Pool(new_session_while_present, connections), presence, clock, observe)
    await store.now()
    return store
