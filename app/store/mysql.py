"""The store on MariaDB or MySQL: the verbs that run for every message, many callers to a transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import structlog

from app.broker.ports import Attempt, Extended, Extension, Once
from app.domain.delivery import Claim
from app.domain.instant import Instant
from app.domain.message import Draft, Message, Receipt
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import Held, LockToken, Move, Removal, Tombstone, given_back
from app.runtime.coalescer import Coalescer
from app.store import mysql_attempts as attempts
from app.store import mysql_receiving as receiving
from app.store import mysql_sending as sending
from app.store import mysql_settling as settling
from app.store.archive_records import ArchiveRecords
from app.store.documents import read_receipts, read_tokens, write_receipts, write_tokens
from app.store.key_records import KeyRecords
from app.store.mysql_connect import Connector
from app.store.mysql_session import Session
from app.store.pool import Pool
from app.store.presence import Presence
from app.store.queue_records import QueueRecords
from app.store.records import MessageRecords
from app.store.url import BadStoreUrl

Entry = TypeVar("Entry")
Result = TypeVar("Result")

Batch: TypeAlias = Callable[[list[Entry]], Coroutine[Any, Any, Sequence[Result | Exception]]]
Work: TypeAlias = Callable[[Session, list[Entry]], Awaitable[list[Result]]]

Observe: TypeAlias = Callable[[str, int], None]
"""Hears the verb, and how many callers shared one transaction of it."""

SHARED = (StoreUnavailable,)
"""What fails every caller of a batch alike; anything else is one caller's own fault."""

Choice: TypeAlias = tuple[Claim, Sequence[int]]
"""A claim of messages by their numbers."""

OLDEST: Mapping[str, tuple[int, int]] = {"MariaDB": (10, 8), "MySQL": (8, 0)}
"""The first versions that lock past what others hold, read JSON as a table and keep an index in descending order."""

WEAKNESSES: Mapping[str, str] = {
    "innodb_flush_log_at_trx_commit": (
        "The database acknowledges commits early (innodb_flush_log_at_trx_commit): what was answered can be lost."
    ),
    "sync_binlog": "The binary log is not synchronised at commit (sync_binlog): a power cut can undo what was answered.",
    "innodb_doublewrite": "The database runs without innodb_doublewrite: a power cut can damage tables.",
}

log = structlog.get_logger("peeklock.store")


class ServerTooOld(BadStoreUrl):
    """The server lacks statements that the store is made of."""


class MysqlStore(MessageRecords):
    """`Store` on MariaDB, from version 10.8 on, and MySQL, from version 8.0 on."""

    def __init__(self, pool: Pool[Session], presence: Presence, observe: Observe) -> None:
        super().__init__(pool)
        self._pool = pool
        self._presence = presence
        self._observe = observe
        self.archive = ArchiveRecords(pool)
        self.queues = QueueRecords(pool)
        self.keys = KeyRecords(pool)
        self._errands: set[asyncio.Task[None]] = set()
        self._sends = Coalescer(self._batch("send", sending.send), shared=SHARED)
        self._claims = Coalescer(self._claim, shared=SHARED, orphaned=self._give_back)
        # One at a time, and gathered all the same for what becomes of those whose caller has gone.
        self._choices = Coalescer(self._claim_these, largest=1, shared=SHARED, orphaned=self._give_back_choice)
        self._looks = Coalescer(self._watched("held", super().held), shared=SHARED)
        self._memories = Coalescer(self._watched("tombstones", super().tombstones), shared=SHARED)
        self._removals = Coalescer(self._batch("remove", settling.remove), shared=SHARED)
        self._moves = Coalescer(self._batch("move", settling.move), shared=SHARED)
        self._releases = Coalescer(self._batch("release", settling.release), shared=SHARED)
        self._extensions = Coalescer(self._batch("extend", settling.extend), shared=SHARED)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """See `Messages`."""
        return await self._sends.submit_together(drafts)

    async def send_once(self, drafts: Sequence[Draft], attempt: Attempt) -> Once[list[Receipt]]:
        """See `Messages`."""

        async def work(session: Session) -> Once[list[Receipt]]:
            earlier = await attempts.begin(session, attempt)
            if earlier is not None:
                return Once(read_receipts(earlier), replayed=True)
            receipts = await sending.store(session, drafts, session.ask)
            await session.finish(attempts.kept(session, attempt, write_receipts(receipts)))
            return Once(receipts, replayed=False)

        return await self._transact(work)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> list[Message]:
        """See `Messages`."""
        return await self._claims.submit(claim)

    async def claim_once(self, claim: Claim, attempt: Attempt) -> Once[list[Message]]:
        """See `Messages`. An attempt that finds nothing is not remembered, so that a repeat may find something."""

        async def work(session: Session) -> Once[list[Message]]:
            earlier = await attempts.begin(session, attempt)
            if earlier is not None:
                return Once(await receiving.still_locked(session, read_tokens(earlier)), replayed=True)
            (messages,) = await receiving.claim(session, [claim], session.ask)
            if messages:
                await session.finish(attempts.kept(session, attempt, write_tokens(messages)))
            else:
                await session.undo()
            return Once(messages, replayed=False)

        return await self._transact(work)

    async def claim_these(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """See `Messages`."""
        return await self._choices.submit((claim, numbers))

    async def _claim(self, claims: list[Claim]) -> Sequence[list[Message] | Exception]:
        answers: list[list[Message] | Exception] = []
        for portion in receiving.portions(claims):
            try:
                answers += await self._claim_portion(portion)
            except StoreUnavailable as error:
                # What earlier portions have claimed is theirs.
                answers += [error] * len(portion)
        return answers

    async def _claim_portion(self, claims: list[Claim]) -> list[list[Message]]:
        self._observe("claim", len(claims))
        return await self._transact(lambda session: receiving.claim(session, claims, session.finish))

    async def _claim_these(self, choices: list[Choice]) -> list[list[Message]]:
        return [
            await self._transact(partial(receiving.claim_these, wish=claim, numbers=numbers))
            for claim, numbers in choices
        ]

    def _give_back_choice(self, choice: Choice, messages: list[Message]) -> None:
        self._give_back(choice[0], messages)

    def _give_back(self, claim: Claim, messages: list[Message]) -> None:
        """Free what was claimed for a caller that has gone."""
        if messages:
            errand = asyncio.create_task(self._return(messages), name=f"giving back to queue {claim.queue_id}")
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _return(self, messages: Sequence[Message]) -> None:
        try:
            await self._moves.submit_all([given_back(message) for message in messages])
        except StoreUnavailable as error:
            log.warning("unclaimed messages wait for their locks to end", messages=len(messages), error=str(error))

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def held(self, tokens: Sequence[LockToken]) -> list[Held | None]:
        """See `Messages`."""
        return await self._looks.submit_all(tokens)

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """See `Messages`."""
        return await self._memories.submit_all(tokens)

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """See `Messages`."""
        return await self._removals.submit_all(removals)

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        return await self._moves.submit_all(moves)

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """See `Messages`."""
        return await self._releases.submit_all(moves)

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """See `Messages`."""
        return await self._extensions.submit_all(extensions)

    # ---- the whole ---------------------------------------------------------------------------------------------------

    async def now(self) -> Instant:
        """See `Store`."""
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
        await self._presence.leave()
        await self._pool.close()

    async def _serve(self, claim: str) -> list[str]:
        await self._presence.take(claim)
        return [WEAKNESSES[setting] for (setting,) in await self._pool.fetch("weaknesses")]

    def _batch(self, verb: str, work: Work[Entry, Result]) -> Batch[Entry, Result]:
        """How a coalescer runs a batch: as one transaction."""
        return self._watched(verb, lambda entries: self._transact(lambda session: work(session, entries)))

    def _watched(self, verb: str, run: Batch[Entry, Result]) -> Batch[Entry, Result]:
        """The same, and somebody hears of it."""

        def watched(entries: list[Entry]) -> Coroutine[Any, Any, Sequence[Result | Exception]]:
            self._observe(verb, len(entries))
            return run(entries)

        return watched

    async def _transact(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        return await self._pool.repeat(lambda session: session.transact(work))


async def open_mysql(url: str, connections: int, observe: Observe) -> MysqlStore:
    """The store at this address, once it has answered.

    Raises `StoreUnavailable` when it does not. Refuses with `ServerTooOld`.
    """
    connect = Connector(url)

    async def connect_while_present() -> Session:
        await presence.keep()
        return await connect()

    presence = Presence(connect)
    pool = Pool(connect_while_present, connections)
    ((version,),) = await pool.fetch("version")
    try:
        allow(version)
    except ServerTooOld:
        await pool.close()
        raise
    return MysqlStore(pool, presence, observe)


def allow(version: str) -> None:
    """Refuse a server with `ServerTooOld`, by what it calls its version: `8.0.39`, `10.11.6-MariaDB-log`."""
    name = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    # Some MariaDB servers put 5.5.5 before their version, for replicas that would not understand it.
    major, minor = map(int, version.removeprefix("5.5.5-").split(".")[:2])
    if (major, minor) < OLDEST[name]:
        oldest = ".".join(map(str, OLDEST[name]))
        raise ServerTooOld(f"The server is {name} {version}; the store needs at least {oldest}.")
