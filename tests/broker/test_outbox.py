"""Volatile messages: a bad one takes no neighbour along, and none is stored in the name of another's request."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from app.broker.outbox import Outbox
from app.domain.message import BodyKind, Draft, Envelope
from app.domain.queue import Queue
from app.domain.refusals import RateLimited
from app.domain.weight import ROW_BYTES
from tests.clock import VirtualClock

REQUEST: ContextVar[str] = ContextVar("request")


class Picky:
    """A store that refuses whatever has a bad message in it."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.requests: list[str | None] = []
        self.largest = 0

    async def send(self, drafts: Sequence[Draft]) -> list[Any]:
        self.requests.append(REQUEST.get(None))
        self.largest = max(self.largest, len(drafts))
        names = [draft.envelope.message_id for draft in drafts]
        if "bad" in names:
            raise ValueError("bad")
        self.stored += names
        return []


async def no_queue(name: str) -> Queue:
    raise AssertionError(f"nothing is to be looked up, but {name} was")


def draft(name: str, body: bytes = b"") -> Draft:
    return Draft(1, Envelope(name), body, BodyKind.BYTES)


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


async def test_what_waits_to_be_stored_is_bounded_in_bytes() -> None:
    store: Any = Picky()
    heavy = 10 * (1000 + ROW_BYTES)
    outbox = Outbox(store, no_queue, VirtualClock(), lambda _error, _count: None, most_bytes=heavy)
    for place in range(10):
        outbox.put(draft(str(place), b"x" * 1000), "orders")
    with pytest.raises(RateLimited):
        outbox.put(draft("refused"), "orders")
    await outbox.close()
    outbox.put(draft("10", b"x" * 1000), "orders")
    await outbox.close()
    assert store.stored == [str(place) for place in range(11)]


async def test_a_batch_of_large_drafts_is_bounded_in_bytes() -> None:
    store: Any = Picky()
    outbox = Outbox(store, no_queue, VirtualClock(), lambda _error, _count: None)
    for place in range(10):
        outbox.put(draft(str(place), b"x" * (1 << 20)), "orders")
    await outbox.close()
    assert store.stored == [str(place) for place in range(10)]
    assert store.largest == 3
