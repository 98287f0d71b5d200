"""A store on a database server: what many callers ask at the same moment goes there together."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import structlog

from app.broker.ports import Extended, Extension
from app.domain.delivery import Claim
from app.domain.instant import Instant
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.refusals import Overloaded, RequestInProgress, StoreUnavailable
from app.domain.settlement import Held, LockToken, Move, Removal, Tombstone, given_back
from app.domain.weight import weight_of
from app.runtime.clock import Clock
from app.runtime.coalescer import Coalescer, CoalescerFullError, Scale
from app.store.archive_records import ArchiveRecords
from app.store.database import Database, Observe, while_open
from app.store.key_records import KeyRecords
from app.store.message_records import MessageRecords
from app.store.pool import AnySession, AttemptHeld, HeldByAnother, MessageIdHeld, Pool
from app.store.presence import Presence
from app.store.queue_records import QueueRecords

Entry = TypeVar("Entry")
Result = TypeVar("Result")

Batch: TypeAlias = Callable[[list[Entry]], Coroutine[Any, Any, list[Result]]]

SHARED = (StoreUnavailable,)
"""What fails every caller of a batch alike; anything else is one caller's own fault."""


Choice: TypeAlias = tuple[Claim, Sequence[int]]
"""A claim of messages by their numbers."""

SENDING: Scale[Draft] = Scale(weight_of, largest_run_weight=4 << 20, most_waiting=64 << 20)
"""Bytes of drafts. MariaDB takes 16 MiB at a time unless it is told otherwise, and a body may grow to twice its size in
the text of a statement. More than one statement in flight gains nothing from being larger."""


def _asked_for(claim: Claim) -> int:
    return claim.most


SENDING_ONCE: Scale[Draft] = Scale(weight_of, largest_run_weight=4 << 20, most_waiting=16 << 20)
"""The same for drafts whose message ids are looked for."""

HELD_PAUSES = (0.01, 0.05, 0.2, 0.5)
"""Seconds before each further try to use a message id or an attempt that another transaction is about to use."""

CLAIMING: Scale[Claim] = Scale(_asked_for, largest_run_weight=1000)
"""Messages that are asked for. Nobody is answered before the run ends, so a small claim must not wait for large ones."""

RETURN_PAUSES = (0.005, 0.02, 0.08, 0.3, 1.0)
"""Seconds before each further try to free what was claimed for a caller that has gone, while another request holds it."""

POOLED = (
    "The database is reached through a pooler: nobody can tell whether another process without the same Redis serves "
    "it, and plans follow the server's statistics unless the role has the settings named in docs/postgresql.md."
)

log = structlog.get_logger("peeklock.store")


class ServerStore(MessageRecords, Generic[AnySession]):
    """The verbs that run for every message, each gathered; what becomes of a batch is its engine's own.

    A batch has one answer for each of its entries, in order, and takes effect as a whole or raises. Without a
    `presence` nobody watches who else serves the database.
    """

    weaknesses: ClassVar[Mapping[str, str]]
    """What is said of settings of the server by which something that was answered can be lost."""

    def __init__(
        self, database: Database, pool: Pool[AnySession], presence: Presence | None, clock: Clock, observe: Observe
    ) -> None:
        super().__init__(database)
        self._pool = pool
        self._clock = clock
        self._presence = presence
        self._observe = observe
        self.archive = ArchiveRecords(pool)
        self.queues = QueueRecords(pool)
        self.keys = KeyRecords(pool)
        self._errands: set[asyncio.Task[None]] = set()
        send = self._watched("send", self._send)
        self._sends = Coalescer(send, scale=SENDING, shared=SHARED)
        # Apart, because a message id that another transaction holds fails a whole statement.
        self._sends_once = Coalescer(send, scale=SENDING_ONCE, shared=SHARED)
        claim = self._watched("claim", self._claim)
        self._claims = Coalescer(claim, scale=CLAIMING, shared=SHARED, orphaned=self._give_back)
        # Few receive dead letters, and each claim of them is a statement of its own.
        self._dead_letter_claims = Coalescer(claim, largest=1, shared=SHARED, orphaned=self._give_back)
        # One at a time, and gathered all the same for what becomes of those whose caller has gone.
        self._choices = Coalescer(self._claim_chosen, largest=1, shared=SHARED, orphaned=self._give_back_chosen)
        self._looks = Coalescer(self._watched("held", super().held), shared=SHARED)
        self._memories = Coalescer(self._watched("tombstones", super().tombstones), shared=SHARED)
        self._removals = Coalescer(self._watched("remove", self._remove), shared=SHARED)
        self._moves = Coalescer(self._watched("move", self._move), shared=SHARED)
        self._releases = Coalescer(self._watched("release", self._release), shared=SHARED)
        self._extensions = Coalescer(self._watched("extend", self._extend), shared=SHARED)

    # ---- what an engine does -----------------------------------------------------------------------------------------

    @abstractmethod
    async def _send(self, drafts: list[Draft]) -> list[Receipt]: ...

    @abstractmethod
    async def _claim(self, claims: list[Claim]) -> list[list[Message] | Exception]: ...

    @abstractmethod
    async def _claim_these(self, claim: Claim, numbers: Sequence[int]) -> list[Message]: ...

    @abstractmethod
    async def _remove(self, removals: list[Removal]) -> list[bool]: ...

    @abstractmethod
    async def _move(self, moves: list[Move]) -> list[bool]: ...

    @abstractmethod
    async def _release(self, moves: list[Move]) -> list[bool]: ...

    @abstractmethod
    async def _extend(self, extensions: list[Extension]) -> list[Extended | None]: ...

    # ---- sending and receiving ---------------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `Messages`."""
        sends = self._sends_once if any(draft.duplicate_window for draft in drafts) else self._sends

        async def store() -> list[Receipt]:
            with while_open():
                return await sends.submit_together(drafts)

        try:
            return await self._until_free(store)
        except CoalescerFullError as error:
            raise Overloaded from error

    async def _until_free(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do the work; again after a pause, in which no connection is held, where another transaction is in its way."""
        for pause in HELD_PAUSES:
            try:
                return await work()
            except HeldByAnother:
                await self._clock.sleep(pause)
        try:
            return await work()
        except MessageIdHeld as error:
            raise StoreUnavailable("Another request is sending a message with this id.") from error
        except AttemptHeld as error:
            raise RequestInProgress from error

    async def claim(self, claim: Claim) -> list[Message]:
        """See `Messages`."""
        claims = self._dead_letter_claims if claim.source is MessageState.DEAD_LETTERED else self._claims
        with while_open():
            return await claims.submit(claim)

    async def claim_these(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `Messages`."""
        with while_open():
            return await self._choices.submit((claim, numbers))

    async def _claim_chosen(self, choices: list[Choice]) -> list[list[Message]]:
        return [await self._claim_these(claim, numbers) for claim, numbers in choices]

    def _give_back_chosen(self, choice: Choice, messages: list[Message]) -> None:
        self._give_back(choice[0], messages)

    def _give_back(self, claim: Claim, messages: list[Message]) -> None:
        """Free what was claimed for a caller who has gone."""
        if messages:
            errand = asyncio.create_task(self._return(messages), name=f"giving back to queue {claim.queue_id}")
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _return(self, messages: Sequence[Message]) -> None:
        left: Sequence[Move] = [given_back(message) for message in messages]
        try:
            left = await self._free(left)
            for pause in RETURN_PAUSES:
                if not left:
                    return
                await self._clock.sleep(pause)
                left = await self._free(left)
            error = "another request holds them"
        except StoreUnavailable as failure:
            error = str(failure)
        if left:
            log.warning("unclaimed messages wait for their locks to end", messages=len(left), error=error)

    async def _free(self, moves: Sequence[Move]) -> list[Move]:
        """Those of these moves that had no effect."""
        moved = await self.move(moves)
        self.on_moved(moves, moved)
        return [move for move, effective in zip(moves, moved, strict=True) if not effective]

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def held(self, tokens: Sequence[LockToken]) -> list[Held | None]:
        """See `Messages`."""
        with while_open():
            return await self._looks.submit_together(tokens)

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """See `Messages`."""
        with while_open():
            return await self._memories.submit_together(tokens)

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `Messages`."""
        with while_open():
            return await self._removals.submit_together(removals)

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        with while_open():
            return await self._moves.submit_together(moves)

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        with while_open():
            return await self._releases.submit_together(moves)

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `Messages`."""
        with while_open():
            return await self._extensions.submit_together(extensions)

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
        claims = (self._claims, self._dead_letter_claims, self._choices)
        for coalescer in (self._sends, self._sends_once, *claims, self._looks, self._memories):
            await coalescer.close()
        while self._errands:
            await asyncio.wait(self._errands)
        for coalescer in (self._removals, self._moves, self._releases, self._extensions):
            await coalescer.close()
        if self._presence is not None:
            await self._presence.leave()
        await self._pool.close()

    async def _serve(self, claim: str) -> list[str]:
        warnings = [self.weaknesses[setting] for (setting,) in await self._pool.fetch("weaknesses")]
        if self._presence is None:
            return [*warnings, POOLED]
        await self._presence.take(claim)
        return warnings

    def _watched(self, verb: str, run: Batch[Entry, Result]) -> Batch[Entry, Result]:
        """How a coalescer runs a batch: and somebody hears how many there were."""

        def watched(entries: list[Entry]) -> Coroutine[Any, Any, list[Result]]:
            self._observe(verb, len(entries))
            return run(entries)

        return watched
