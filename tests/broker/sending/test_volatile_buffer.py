"""Volatile messages: a bad one does not affect others, and none is stored in the context of a request."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from app.broker.ports.sending import QueueGone
from app.broker.sending.volatile_buffer import _RETRY_SECONDS, VolatileBuffer
from app.domain.instant import MINUTE
from app.domain.message import BodyKind, Draft, Envelope, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import NewerQueue, QueueNotFound, RateLimited, StoreUnavailable
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from tests.brokers import ChangedStore
from tests.virtual_clock import VirtualClock, run_ready_tasks

GONE = 7
"""The id of a deleted queue."""

REQUEST: ContextVar[str] = ContextVar("request")


class RefusingStore:
    """A store that refuses a batch with a bad message in it, and is unavailable for its first `failures_left` tries."""

    def __init__(self, failures_left: int = 0) -> None:
        self.away = failures_left
        self.tries = 0
        self.stored: list[str] = []
        self.requests: list[str | None] = []
        self.largest = 0

    async def send(self, drafts: Sequence[Draft]) -> list[Any]:
        self.tries += 1
        if self.tries <= self.away:
            raise StoreUnavailable
        self.requests.append(REQUEST.get(None))
        self.largest = max(self.largest, len(drafts))
        names = [draft.envelope.message_id for draft in drafts]
        if "bad" in names:
            raise ValueError("bad")
        if GONE in [draft.queue_id for draft in drafts]:
            raise QueueGone
        self.stored += names
        return [Receipt(1, name, 0, MessageState.AVAILABLE) for name in names]


async def no_queue(name: str) -> Queue:
    raise AssertionError(f"nothing is to be looked up, but {name} was")


def draft(name: str, body: bytes = b"", queue_id: int = 1) -> Draft:
    return Draft(queue_id, Envelope(name), body, BodyKind.BYTES)


async def test_a_draft_that_the_store_refuses_is_reported_alone() -> None:
    reported: list[tuple[str, int]] = []
    store: Any = RefusingStore()
    buffer = VolatileBuffer(store, no_queue, VirtualClock(), lambda error, count: reported.append((str(error), count)))
    for name in ("a", "bad", "b", "c"):
        buffer.put(draft(name), "orders")
    await buffer.close()
    assert store.stored == ["a", "b", "c"]
    assert reported == [("bad", 1)]


async def test_nothing_is_stored_in_the_context_of_a_request() -> None:
    store: Any = RefusingStore()
    REQUEST.set("first")
    buffer = VolatileBuffer(store, no_queue, VirtualClock(), lambda _error, _count: None)
    buffer.put(draft("a"), "orders")
    await buffer.close()
    assert store.requests == [None]


async def test_the_bytes_in_the_buffer_are_limited() -> None:
    store: Any = RefusingStore()
    heavy = 10 * (1000 + MESSAGE_OVERHEAD_BYTES)
    buffer = VolatileBuffer(store, no_queue, VirtualClock(), lambda _error, _count: None, max_bytes=heavy)
    for number in range(10):
        buffer.put(draft(str(number), b"x" * 1000), "orders")
    with pytest.raises(RateLimited):
        buffer.put(draft("refused"), "orders")
    await buffer.close()
    buffer.put(draft("10", b"x" * 1000), "orders")
    await buffer.close()
    assert store.stored == [str(number) for number in range(11)]


async def test_the_bytes_of_a_batch_are_limited() -> None:
    store: Any = RefusingStore()
    buffer = VolatileBuffer(store, no_queue, VirtualClock(), lambda _error, _count: None)
    for number in range(10):
        buffer.put(draft(str(number), b"x" * (1 << 20)), "orders")
    await buffer.close()
    assert store.stored == [str(number) for number in range(10)]
    assert store.largest == 3


async def test_the_number_of_messages_in_the_buffer_is_limited() -> None:
    store: Any = RefusingStore()
    buffer = VolatileBuffer(store, no_queue, VirtualClock(), lambda _error, _count: None, max_messages=2)
    for name in ("a", "b"):
        buffer.put(draft(name), "orders")
    with pytest.raises(RateLimited):
        buffer.put(draft("refused"), "orders")
    await buffer.close()
    assert store.stored == ["a", "b"]


async def test_an_empty_buffer_accepts_a_draft_of_any_size() -> None:
    store: Any = RefusingStore()
    buffer = VolatileBuffer(store, no_queue, VirtualClock(), lambda _error, _count: None, max_bytes=1)
    buffer.put(draft("a"), "orders")
    await buffer.close()
    assert store.stored == ["a"]


async def test_an_unavailable_store_is_tried_again_after_a_pause() -> None:
    clock = VirtualClock()
    store: Any = RefusingStore(failures_left=2)
    buffer = VolatileBuffer(store, no_queue, clock, lambda _error, _count: None)
    buffer.put(draft("a"), "orders")
    await run_ready_tasks()
    assert store.tries == 1
    for tries in (2, 3):
        await clock.advance(_RETRY_SECONDS)
        assert store.tries == tries
    assert store.stored == ["a"]


async def test_the_listener_is_called_with_stored_drafts() -> None:
    stored: list[tuple[list[str], list[str]]] = []
    store: Any = RefusingStore()
    buffer = VolatileBuffer(store, no_queue, VirtualClock(), lambda _error, _count: None)
    buffer.on_stored = lambda drafts, receipts: stored.append(
        ([draft.envelope.message_id for draft in drafts], [receipt.message_id for receipt in receipts])
    )
    for name in ("a", "bad", "b"):
        buffer.put(draft(name), "orders")
    await buffer.close()
    assert stored == [(["a"], ["a"]), (["b"], ["b"])]


async def test_a_deleted_queue_is_looked_up_by_name_until_the_store_answers() -> None:
    clock = VirtualClock()
    store: Any = RefusingStore()
    looked_up: list[str] = []

    async def unavailable_at_first(name: str) -> Queue:
        looked_up.append(name)
        if len(looked_up) == 1:
            raise StoreUnavailable
        return Queue(1, name, QueueSettings(), 1, 0, 0)

    buffer = VolatileBuffer(store, unavailable_at_first, clock, lambda _error, _count: None)
    buffer.put(draft("a", queue_id=GONE), "orders")
    await run_ready_tasks()
    assert (looked_up, store.stored) == (["orders"], [])
    await clock.advance(_RETRY_SECONDS)
    assert (looked_up, store.stored) == (["orders", "orders"], ["a"])


async def test_a_draft_without_a_queue_is_reported() -> None:
    reported: list[tuple[str, int]] = []
    store: Any = RefusingStore()

    async def none(name: str) -> Queue:
        raise QueueNotFound(f"no queue {name}")

    buffer = VolatileBuffer(store, none, VirtualClock(), lambda error, count: reported.append((str(error), count)))
    buffer.put(draft("lost", queue_id=GONE), "orders")
    buffer.put(draft("a"), "orders")
    await buffer.close()
    assert reported == [("no queue orders", 1)]
    assert store.stored == ["a"]


async def test_a_draft_is_dropped_if_its_queue_needs_a_newer_server() -> None:
    reported: list[Exception] = []

    async def newer_queue(_name: str) -> Queue:
        raise NewerQueue

    store: Any = RefusingStore()
    buffer = VolatileBuffer(store, newer_queue, VirtualClock(), lambda error, _count: reported.append(error))
    buffer.put(draft("a", queue_id=GONE), "orders")
    buffer.put(draft("b"), "other")
    await buffer.close()
    assert store.stored == ["b"]
    assert [type(error) for error in reported] == [NewerQueue]


async def test_a_draft_follows_the_settings_of_a_queue_that_was_made_again() -> None:
    stored: list[Draft] = []

    async def send(drafts: Sequence[Draft]) -> list[Receipt]:
        if GONE in [draft.queue_id for draft in drafts]:
            raise QueueGone
        stored.extend(drafts)
        return [Receipt(1, draft.envelope.message_id, 0, MessageState.AVAILABLE) for draft in drafts]

    async def look_up(name: str) -> Queue:
        settings = QueueSettings(group_in_flight=1, history=True, duplicate_detection_window=MINUTE)
        return Queue(9, name, settings, 1, 0, 0)

    store: Any = ChangedStore(RefusingStore(), send=send)
    buffer = VolatileBuffer(store, look_up, VirtualClock(), lambda error, _: pytest.fail(str(error)))
    buffer.put(Draft(GONE, Envelope("a", group_id="g"), b"", BodyKind.BYTES), "orders")
    await buffer.close()
    (draft,) = stored
    assert (draft.queue_id, draft.is_in_group, draft.keeps_history, draft.duplicate_window) == (9, True, True, MINUTE)
