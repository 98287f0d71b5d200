"""A send is stored as given, in order, as a whole or not at all, and once if the queue detects duplicates."""

import asyncio
from functools import partial

import pytest

from app.broker.ports.store import Store
from app.domain.instant import DAY, HOUR, MINUTE
from app.domain.message import BodyKind, Draft, Envelope, MessageHeaders, MessageState, Receipt
from app.domain.queue import Queue
from tests.contract.store_fixture import StoreFixture, bodies, completion, draft, numbers, retry_until_answered
from tests.virtual_clock import run_advancing
from tests.walks import for_each

FULL = Envelope(
    message_id="an id with blanks, ünïcode and 🦀 ",
    headers=MessageHeaders(
        content_type="application/json; charset=utf-8",
        correlation_id="correlation",
        subject="a 'quoted' \"subject\" \\ with % and :colons",
        reply_to="reply-to",
        to="to",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    group_id="group",
    properties='{"key":"välue","n":1.5,"yes":true}'.encode(),
)


@pytest.mark.behaviour("S3.30", "S2.1")
async def test_a_message_is_read_and_received_as_it_was_sent(store_fixture: StoreFixture, queue: Queue) -> None:
    body = bytes(range(256)) * 4
    (receipt,) = await store_fixture.store.send([Draft(queue.id, FULL, body, BodyKind.BYTES, priority=7, ttl=HOUR)])
    read = await store_fixture.store.read(queue.id, receipt.sequence_number)
    (received,) = await store_fixture.claim(queue)
    for message in (read, received):
        assert message is not None
        assert (message.envelope, message.body, message.body_kind, message.priority) == (FULL, body, BodyKind.BYTES, 7)
        assert (message.queue_id, message.sequence_number) == (queue.id, receipt.sequence_number)
    assert read is not None
    assert read.state is receipt.state is MessageState.AVAILABLE
    assert (read.delivery_count, read.failure_count, read.lock_generation) == (0, 0, 0)
    assert (read.lock_token, read.locked_until, read.receiver_id) == (None, None, None)
    assert (read.first_delivered_at, read.last_delivered_at) == (None, None)


@for_each("kind", BodyKind)
@for_each("body", [b"", b"0", b"\x00\xff", b"x" * 1_500_000], lambda body: f"{len(body)} bytes")
async def test_every_body_is_returned(store_fixture: StoreFixture, queue: Queue, kind: BodyKind, body: bytes) -> None:
    await store_fixture.store.send([Draft(queue.id, Envelope("id"), body, kind)])
    (message,) = await store_fixture.claim(queue)
    assert (message.body, message.body_kind) == (body, kind)
    assert message.envelope == Envelope("id")


async def test_receipts_have_ids_times_and_ascending_numbers_in_order(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    receipts = await store_fixture.store.send([draft(queue, message_id=name) for name in ("c", "a", "b")])
    assert [receipt.message_id for receipt in receipts] == ["c", "a", "b"]
    assert [receipt.sequence_number for receipt in receipts] == sorted({r.sequence_number for r in receipts})
    now = await store_fixture.store.now()
    assert all(store_fixture.is_close(receipt.enqueued_at, now) and not receipt.duplicate for receipt in receipts)
    later = await store_fixture.send(queue, b"later")
    assert later[0] > receipts[-1].sequence_number
    stored = [await store_fixture.store.read(queue.id, receipt.sequence_number) for receipt in receipts]
    assert [message and message.enqueued_at for message in stored] == [receipt.enqueued_at for receipt in receipts]


VARIANTS = [
    *({"priority": priority} for priority in (4, 4, 9)),
    *({"ttl": ttl} for ttl in (None, HOUR, HOUR)),
    *({"delay": delay} for delay in (MINUTE, None, HOUR)),
    *({"envelope": Envelope(f"in {group}", group_id=group)} for group in ("group", None, "other")),
    *({"envelope": Envelope(f"with {text!r}", properties=text)} for text in (b"", b'{"key":1}')),
]
"""Fields in which drafts differ, with values that repeat and values that are null."""


@for_each("window", [0, MINUTE])
@for_each("first", range(len(VARIANTS)))
async def test_drafts_of_one_send_keep_their_own_fields(store_fixture: StoreFixture, first: int, window: int) -> None:
    queue = await store_fixture.queue()
    chosen = (VARIANTS[first:] + VARIANTS[:first])[:4]
    drafts = [draft(queue, duplicate_window=window, **fields) for fields in chosen]
    receipts = await store_fixture.store.send(drafts)
    for one, receipt in zip(drafts, receipts, strict=True):
        stored = await store_fixture.store.read(queue.id, receipt.sequence_number)
        assert stored is not None
        assert (stored.envelope, stored.priority) == (one.envelope, one.priority)
        assert stored.available_at - stored.enqueued_at == (one.delay or 0)
        assert stored.expires_at == (None if one.ttl is None else stored.available_at + one.ttl)


async def test_a_thousand_messages_in_one_send_keep_their_order(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, *(str(number).encode() for number in range(1000)))
    assert sent == sorted(sent)
    received = await store_fixture.claim(queue, 1000)
    assert bodies(received) == [str(number).encode() for number in range(1000)]
    assert numbers(received) == sent


async def test_an_empty_send_stores_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    assert await store_fixture.store.send([]) == []


async def test_a_draft_that_cannot_be_stored_fails_only_its_own_send(store_fixture: StoreFixture, queue: Queue) -> None:
    bad = draft(queue, envelope=Envelope(None))  # type: ignore[arg-type]  # what no room before the store lets through
    calls = [store_fixture.store.send([draft(queue, b"good")]) for _ in range(8)]
    failing = store_fixture.store.send([draft(queue, b"beside the bad one"), bad])
    outcomes = await asyncio.gather(*calls[:4], failing, *calls[4:], return_exceptions=True)
    assert isinstance(outcomes.pop(4), Exception)
    assert len({receipts[0].sequence_number for receipts in outcomes if isinstance(receipts, list)}) == 8
    assert bodies(await store_fixture.claim(queue)) == [b"good"] * 8


@pytest.mark.fence("queue")
async def test_a_queue_never_sees_the_messages_of_another(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    ((mine,), (theirs,)) = (await store_fixture.send(queue, b"mine"), await store_fixture.send(other, b"theirs"))
    assert await store_fixture.store.read(queue.id, theirs) is None
    assert await store_fixture.store.read(other.id, mine) is None
    assert bodies(await store_fixture.claim(queue)) == [b"mine"]


async def test_concurrent_sends_are_each_stored_once(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    sends = [stores[index % 2].send([draft(queue, b"%d" % index)]) for index in range(100)]
    answers = await asyncio.gather(*sends)
    assert len({receipt.sequence_number for (receipt,) in answers}) == 100
    received = await store_fixture.claim(queue, 1000)
    assert {(message.sequence_number, message.body) for message in received} == {
        (receipt.sequence_number, b"%d" % index) for index, (receipt,) in enumerate(answers)
    }


# ---- due times and time to live --------------------------------------------------------------------------------------


@pytest.mark.behaviour("S2.13")
async def test_a_message_due_later_is_scheduled(store_fixture: StoreFixture, queue: Queue) -> None:
    now = await store_fixture.store.now()
    drafts = [draft(queue, available_at=now + HOUR), draft(queue, delay=MINUTE)]
    receipts = await store_fixture.store.send(drafts)
    assert [receipt.state for receipt in receipts] == [MessageState.SCHEDULED] * 2
    at, after = [await store_fixture.store.read(queue.id, receipt.sequence_number) for receipt in receipts]
    assert at is not None
    assert after is not None
    assert at.available_at == now + HOUR
    assert after.available_at == receipts[1].enqueued_at + MINUTE
    assert await store_fixture.claim(queue) == []


async def test_a_message_with_a_past_due_time_is_ordered_as_if_sent_now(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"first")
    (receipt,) = await store_fixture.store.send([draft(queue, b"late", available_at=1)])
    assert receipt.state is MessageState.AVAILABLE
    first, late = await store_fixture.claim(queue)
    assert (first.body, late.body) == (b"first", b"late")
    assert late.available_at == receipt.enqueued_at


async def test_the_time_to_live_starts_when_the_message_becomes_available(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    receipts = await store_fixture.store.send([draft(queue, ttl=HOUR), draft(queue, ttl=HOUR, delay=DAY), draft(queue)])
    found = [await store_fixture.store.read(queue.id, receipt.sequence_number) for receipt in receipts]
    lives = [message and message.expires_at and message.expires_at - message.enqueued_at for message in found]
    assert lives == [HOUR, DAY + HOUR, None]


# ---- duplicates ------------------------------------------------------------------------------------------------------

WINDOW = HOUR


@pytest.mark.behaviour("S3.31")
async def test_a_repeated_id_within_the_window_gets_the_first_receipt(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    (first,) = await store_fixture.store.send([draft(queue, b"one", "id", delay=HOUR, duplicate_window=WINDOW)])
    await store_fixture.advance_time(50 * 60)
    (second,) = await store_fixture.store.send([draft(queue, b"two", "id", duplicate_window=WINDOW)])
    assert (first.duplicate, second.duplicate) == (False, True)
    assert (second.sequence_number, second.message_id) == (first.sequence_number, "id")
    assert second.state is first.state is MessageState.SCHEDULED, "it is not due yet"
    stored = await store_fixture.store.browse(queue.id, list(MessageState), 0, 10)
    assert bodies(stored) == [b"one"]
    assert second.enqueued_at == stored[0].enqueued_at


async def test_a_duplicate_gets_the_state_of_the_first_message_now(store_fixture: StoreFixture, queue: Queue) -> None:
    async def repeated() -> Receipt:
        (receipt,) = await store_fixture.store.send([draft(queue, message_id="id", duplicate_window=WINDOW)])
        return receipt

    await store_fixture.store.send([draft(queue, message_id="id", delay=60, duplicate_window=WINDOW)])
    await store_fixture.advance_time(61)
    await store_fixture.store.promote(10)
    assert (await repeated()).state is MessageState.AVAILABLE
    (message,) = await store_fixture.claim(queue)
    assert (await repeated()).state is MessageState.LOCKED
    await store_fixture.store.remove([completion(queue, message)])
    ended = await repeated()
    assert (ended.state, ended.duplicate, ended.sequence_number) == (None, True, message.sequence_number)


@pytest.mark.fence("time")
async def test_after_the_window_an_id_is_new_again(store_fixture: StoreFixture, queue: Queue) -> None:
    (first,) = await store_fixture.store.send([draft(queue, b"one", "id", duplicate_window=WINDOW)])
    await store_fixture.advance_time(3601)
    (second,) = await store_fixture.store.send([draft(queue, b"two", "id", duplicate_window=WINDOW)])
    await store_fixture.advance_time(59 * 60)
    (third,) = await store_fixture.store.send([draft(queue, b"three", "id", duplicate_window=WINDOW)])
    assert (second.duplicate, third.duplicate) == (False, True)
    assert third.sequence_number == second.sequence_number > first.sequence_number


async def test_ids_are_compared_exactly_and_per_queue(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    ids = ["id", "ID", "id ", " id", "íd"]
    drafts = [draft(queue, message_id=name, duplicate_window=WINDOW) for name in ids]
    drafts += [draft(other, message_id="id", duplicate_window=WINDOW)]
    assert not any(receipt.duplicate for receipt in await store_fixture.store.send(drafts))
    assert all(receipt.duplicate for receipt in await store_fixture.store.send(drafts))


async def test_a_queue_without_duplicate_detection_stores_every_repeat(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    first, second = await store_fixture.store.send([draft(queue, message_id="id"), draft(queue, message_id="id")])
    assert first.sequence_number < second.sequence_number
    assert not second.duplicate


async def test_duplicates_in_one_send_are_recognised(store_fixture: StoreFixture, queue: Queue) -> None:
    names = ["a", "b", "a", "c", "b"]
    receipts = await store_fixture.store.send(
        [draft(queue, message_id=name, duplicate_window=WINDOW) for name in names]
    )
    assert [receipt.duplicate for receipt in receipts] == [False, False, True, False, True]
    assert receipts[2].sequence_number == receipts[0].sequence_number
    assert receipts[4].sequence_number == receipts[1].sequence_number
    fresh = [receipts[index].sequence_number for index in (0, 1, 3)]
    assert fresh == sorted(fresh)
    assert len(await store_fixture.claim(queue)) == 3


async def test_of_concurrent_sends_of_one_id_one_is_stored(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for attempt in range(5):
        one = draft(queue, message_id=f"id-{attempt}", duplicate_window=WINDOW)
        sends = (partial(stores[index % 2].send, [one]) for index in range(16))
        answers = await run_advancing(store_fixture.clock, asyncio.gather(*map(retry_until_answered, sends)))
        assert sum(not receipt.duplicate for (receipt,) in answers) == 1
        assert len({(r.sequence_number, r.enqueued_at, r.state) for (r,) in answers}) == 1
    assert len(await store_fixture.claim(queue)) == 5


async def test_a_message_id_is_kept_for_the_window_at_the_time_of_its_send(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    for name, before, after in (("long", 10 * MINUTE, MINUTE), ("short", MINUTE, 10 * MINUTE)):
        await store_fixture.store.send([draft(queue, b"one", name, duplicate_window=before)])
        await store_fixture.advance_time(120)
        (second,) = await store_fixture.store.send([draft(queue, b"two", name, duplicate_window=after)])
        assert second.duplicate is (name == "long")
