"""A broker with real rooms for tests: any store, the lock store of a process on its own, a virtual clock."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count

from app.broker import announce
from app.broker.broker import Broker
from app.broker.catalogue import Catalogue
from app.broker.outbox import Outbox
from app.broker.ports import Store
from app.broker.searches import Searches
from app.domain.delivery import Claim
from app.domain.instant import MINUTE
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.refusals import Overloaded
from app.domain.settlement import Move, Outcome, token_of
from app.locks.open import open_locks
from app.runtime.bell import Bell
from app.runtime.byte_budget import ByteBudget
from app.store.open import open_store
from tests.clock import VirtualClock

ANSWERS = 128 << 20


class Counted(Counter[str]):
    """A tally that tests can read."""

    def count(self, event: str, amount: int = 1) -> None:  # type: ignore[override]
        self[event] += amount


def assemble(store: Store, clock: VirtualClock, *, auto_create: bool = True) -> Broker:
    """A broker over an open store, without chance: ids are counted and jitter is nought."""
    bell: Bell[int] = Bell(clock)
    locks = open_locks(None, bell, clock, _fail)
    ids: Iterator[int] = count(1)
    catalogue = Catalogue(store.queues, clock, auto_create=auto_create)
    broker = Broker(
        store=store,
        locks=locks.locks,
        catalogue=catalogue,
        waiting=bell,
        bells=locks.wake_ups,
        outbox=Outbox(store, catalogue.looked_up, clock, lambda error, _messages: _fail("outbox", error)),
        searches=Searches(clock, 200),
        tally=Counted(),
        clock=clock,
        chance=lambda: 0.0,
        new_id=lambda: f"made-{next(ids)}",
        answers=ByteBudget(ANSWERS, Overloaded),
    )
    announce.connect(broker)
    return broker


@asynccontextmanager
async def sqlite_broker(url: str, clock: VirtualClock, *, auto_create: bool = True) -> AsyncIterator[Broker]:
    """A broker over a migrated SQLite database whose clock is the virtual one."""
    store = await open_store(url, clock, 2)
    broker = assemble(store, clock, auto_create=auto_create)
    try:
        yield broker
    finally:
        await broker.outbox.close()
        await broker.catalogue.close()
        await store.close()


async def dead_letter_all(store: Store, queue: Queue) -> int:
    """Dead-letter the available messages of a queue, as their receiver would; how many."""
    messages = await store.claim(Claim(queue.id, 1000, MINUTE))
    outcome, state = Outcome.DEAD_LETTERED, MessageState.DEAD_LETTERED
    return sum(await store.move([Move(token_of(message), queue.id, outcome, state) for message in messages]))


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed in the background") from error
