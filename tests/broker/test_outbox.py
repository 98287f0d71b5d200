"""Volatile messages: a bad one takes no neighbour along, and none is stored in the name of another's request."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from app.broker.outbox import Outbox
from app.domain.message import BodyKind, Draft, Envelope
from app.domain.queue import Queue
from tests.clock import VirtualClock

REQUEST: ContextVar[str] = ContextVar("request")


class Picky:
    """A store that refuses whatever has a bad message in it."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.requests: list[str | None] = []

    async def send(self, drafts: Sequence[Draft]) -> list[Any]:
        self.requests.append(REQUEST.get(None))
        names = [draft.envelope.message_id for draft in drafts]
        if "bad" in names:
            raise ValueError("bad")
        self.stored += names
        return []


async def no_queue(name: str) -> Queue:
    raise AssertionError(f"nothing is to be looked up, but {name} was")


def draft(name: str) -> Draft:
    return Draft(1, Envelope(name), b"", BodyKind.NONE)


async def test_a_draft_that_the_store_refuses_is_reported_alone() -> None:
    reported: list[tuple[str, int]] = []
    store: Any = Picky()
    outbox = Outbox(store, no_queue, VirtualClock(), lambda error, count: reported.append((str(error), count)))
    for name in ("a", "bad", "b", "c"):
        outbox.put(draft(name), "orders")
    await outbox.close()
    assert store.stored == ["a", "b", "c"]
    assert reported == [("bad", 1)]


async def test_nothing_is_stored_in_the_context_of_a_request() -> None:
    store: Any = Picky()
    REQUEST.set("first")
    outbox = Outbox(store, no_queue, VirtualClock(), lambda _error, _count: None)
    outbox.put(draft("a"), "orders")
    await outbox.close()
    assert store.requests == [None]
