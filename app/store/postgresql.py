"""The message store on PostgreSQL: one statement for all who do the same at the same moment."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import structlog

from app.broker.ports import Attempt, Awoken, Edit, Extended, Extension, Once, Redrive
from app.domain.delivery import Claim
from app.domain.instant import Instant
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import Held, LockToken, Move, Removal, Tombstone, given_back
from app.runtime.coalescer import Coalescer
from app.store import postgresql_attempts as attempts
from app.store import postgresql_receiving as receiving
from app.store import postgresql_sending as sending
from app.store import postgresql_settling as settling
from app.store.archive_records import ArchiveRecords
from app.store.floors import Floors
from app.store.key_records import KeyRecords
from app.store.pool import Pool
from app.store.postgresql_depths import CountingDatabase
from app.store.postgresql_session import POOLED, WEAKNESSES, PreparedStatement, Session, address, connect
from app.store.presence import Presence
from app.store.queue_records import QueueRecords
from app.store.records import TOMBSTONE_KEEP, MessageRecords
from app.store.statements import Engine, load

Entry = TypeVar("Entry")
Result = TypeVar("Result")

Batch: TypeAlias = Callable[[list[Entry]], Coroutine[Any, Any, Sequence[Result | Exception]]]

Observe: TypeAlias = Callable[[str, int], None]
"""Hears the verb, and how many entries shared one statement of it."""

SHARED = (StoreUnavailable,)
"""What fails every caller of a batch alike; anything else is one caller's own fault."""

LARGEST_FOLD = 50_000
"""Changes of depths added up at a time: far more than come about between two passes."""

Choice: TypeAlias = tuple[Claim, Sequence[int]]
"""A claim of messages by their numbers."""

log = structlog.get_logger("peeklock.store")


class PostgresStore(MessageRecords):
    """`Store` on PostgreSQL, from version 14 on."""

    def __init__(self, pool: Pool[Session], presence: Presence | None, observe: Observe) -> None:
        super().__init__(CountingDatabase(pool))
        self._pool = pool
        self._presence = presence
        self._observe = observe
        self.archive = ArchiveRecords(pool)
        self.queues = QueueRecords(pool)
        self.keys = KeyRecords(pool)
        self._floors = Floors()
        self._errands: set[asyncio.Task[None]] = set()
        self._sends = Coalescer(self._watched("send", self._send), shared=SHARED)
        self._claims = Coalescer(self._claim, shared=SHARED, orphaned=self._give_back)
        # One at a time, and gathered all the same for what becomes of those whose caller has gone.
        self._choices = Coalescer(self._claim_these, largest=1, shared=SHARED, orphaned=self._give_back_choice)
        self._looks = Coalescer(self._watched("held", super().held), shared=SHARED)
        self._memories = Coalescer(self._watched("tombstones", super().tombstones), shared=SHARED)
        self._removals = Coalescer(self._watched("remove", self._remove), shared=SHARED)
        self._moves = Coalescer(self._watched("move", partial(self._end, "move")), shared=SHARED)
        self._releases = Coalescer(self._watched("release", partial(self._end, "release")), shared=SHARED)
        self._extensions = Coalescer(self._watched("extend", self._extend), shared=SHARED)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `Messages`."""
        return await self._sends.submit_together(drafts)

    async def send_once(self, drafts: Sequence[Draft], attempt: Attempt) -> Once[list[Receipt]]:
        """See `Messages`."""
        once = await self._transact(partial(attempts.send, drafts=drafts, attempt=attempt))
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

    async def claim(self, claim: Claim) -> list[Message]:
        """See `Messages`."""
        return await self._claims.submit(claim)

    async def claim_once(self, claim: Claim, attempt: Attempt) -> Once[list[Message]]:
        """See `Messages`. An attempt that finds nothing is not remembered, so that a repeat may find something."""
        try:
            return await self._transact(partial(attempts.receive, floors=self._floors, claim=claim, attempt=attempt))
        except BaseException:
            # What it had claimed is free again, perhaps below a floor that rose over it.
            self._floors.forget(claim.queue_id)
            raise

    async def claim_these(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `Messages`."""
        return await self._choices.submit((claim, numbers))

    async def _claim(self, claims: list[Claim]) -> list[list[Message] | Exception]:
        answers: list[list[Message] | Exception] = []
        for portion in receiving.portions(claims):
            self._observe("claim", len(portion))
            try:
                answers += await receiving.claim(self._pool, self._floors, portion)
            except StoreUnavailable as error:
                # What earlier portions have claimed is theirs.
                answers += [error] * len(portion)
        return answers

    async def _claim_these(self, choices: list[Choice]) -> list[list[Message]]:
        return [await receiving.claim_these(self._pool, claim, numbers) for claim, numbers in choices]

    def _give_back_choice(self, choice: Choice, messages: list[Message]) -> None:
        self._give_back(choice[0], messages)

    def _give_back(self, claim: Claim, messages: list[Message]) -> None:
        """Free, uncounted, what was claimed for a caller who has gone."""
        if messages:
            errand = asyncio.create_task(self._return(messages), name=f"giving back to queue {claim.queue_id}")
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _return(self, messages: Sequence[Message]) -> None:
        try:
            await self.move([given_back(message) for message in messages])
        except StoreUnavailable as error:
            log.warning("unclaimed messages wait for their locks to end", messages=len(messages), error=str(error))

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def held(self, tokens: Sequence[LockToken]) -> list[Held | None]:
        """See `Messages`."""
        return await self._looks.submit_together(tokens)

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """See `Messages`."""
        return await self._memories.submit_together(tokens)

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `Messages`."""
        return await self._removals.submit_together(removals)

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        return await self._moves.submit_together(moves)

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        return await self._releases.submit_together(moves)

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `Messages`."""
        return await self._extensions.submit_together(extensions)

    async def _remove(self, removals: list[Removal]) -> list[bool]:
        run = partial(self._pool.fetch, "remove", keep=TOMBSTONE_KEEP)
        return [row is not None for row in await settling.settle(removals, settling.of_removals, run)]

    async def _end(self, name: str, moves: list[Move]) -> list[bool]:
        run = partial(self._pool.fetch, name, keep=TOMBSTONE_KEEP)
        ended = await settling.settle(moves, settling.of_moves, run)
        for move, row in zip(moves, ended, strict=True):
            if row is not None and move.state is MessageState.AVAILABLE:
                _, priority, available_at = row
                self._floors.lower(move.queue_id, priority, (available_at, move.token.sequence_number))
        return [row is not None for row in ended]

    async def _extend(self, asked: list[Extension]) -> list[Extended | None]:
        extended = await settling.settle(asked, settling.of_extensions, partial(self._pool.fetch, "extend"))
        return [None if row is None else Extended(*row[1:]) for row in extended]

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
        """See `Upkeep`. Adds up the changes of queues' depths as well."""
        forgotten = await super().forget(most)
        await self._pool.change("forget_depths")
        await self._pool.change("fold_depths", most=LARGEST_FOLD)
        return forgotten

    # ---- the whole ---------------------------------------------------------------------------------------------------

    async def now(self) -> Instant:
        """See `Store`."""
        if self._presence is not None:
            await self._presence.keep()
        return await super().now()

    async def claim_alone(self) -> list[str]:
        """See `Store`."""
        return await self._serve("claim_alone")

    async def claim_shared(self) -> list[str]:
        """See `Store`."""
        return await self._serve("claim_shared")

    async def close(self) -> None:
        """See `Store`."""
        for coalescer in (self._sends, self._claims, self._choices, self._looks, self._memories):
            await coalescer.close()
        while self._errands:
            await asyncio.wait(self._errands)
        for coalescer in (self._removals, self._moves, self._releases, self._extensions):
            await coalescer.close()
        if self._presence is not None:
            await self._presence.leave()
        await self._pool.close()

    async def _serve(self, claim: str) -> list[str]:
        warnings = [WEAKNESSES[setting] for (setting,) in await self._pool.fetch("weaknesses")]
        if self._presence is None:
            return [*warnings, POOLED]
        await self._presence.take(claim)
        return warnings

    def _watched(
        self, verb: str, run: Callable[[list[Entry]], Coroutine[Any, Any, list[Result]]]
    ) -> Batch[Entry, Result]:
        """How a coalescer runs a batch: observed."""

        def observed(entries: list[Entry]) -> Coroutine[Any, Any, list[Result]]:
            self._observe(verb, len(entries))
            return run(entries)

        return observed

    async def _transact(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        return await self._pool.repeat(lambda session: session.transact(work))


async def open_postgresql(url: str, connections: int, observe: Observe) -> PostgresStore:
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
    store = PostgresStore(Pool(new_session_while_present, connections), presence, observe)
    await store.now()
    return store
