"""Archived messages are read by number from the newest, in pages and without their bodies."""

from msgspec.structs import replace

from app.domain.archive import ArchivedMessage
from app.domain.instant import DAY
from app.domain.message import Envelope, MessageHeaders
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from tests.contract.store_fixture import StoreFixture, completion, draft
from tests.contract.test_archive import archive_messages

AFTER_ALL = 2**63 - 1


async def read(store_fixture: StoreFixture, before: int = AFTER_ALL, limit: int = 100) -> list[ArchivedMessage]:
    return await store_fixture.store.archive.ended_before(before, limit)


async def test_a_page_has_the_newest_messages_of_all_queues_before_a_number(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    other = await store_fixture.queue()
    first, second = await archive_messages(store_fixture, queue, 2)
    (third,) = await archive_messages(store_fixture, other, 1)
    await store_fixture.send(queue, b"not ended")
    newest = await read(store_fixture, limit=2)
    assert [(one.sequence_number, one.queue, one.queue_id) for one in newest] == [
        (third, other.name, other.id),
        (second, queue.name, queue.id),
    ]
    assert [one.sequence_number for one in await read(store_fixture, before=second)] == [first]
    assert await read(store_fixture, before=first) == []


async def test_an_archived_message_has_its_ids_and_the_instants_of_its_life(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    envelope = Envelope(
        "id", MessageHeaders("text/plain", "corr", "subject", "replies", "to", "00-1-2-01"), "group", b'{"n":1}'
    )
    (receipt,) = await store_fixture.store.send([replace(draft(queue), envelope=envelope)])
    (message,) = await store_fixture.claim(queue, receiver_id="worker-7")
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    (found,) = await read(store_fixture)
    assert (found.sequence_number, found.outcome, found.receiver_id) == (
        receipt.sequence_number,
        Outcome.COMPLETED,
        "worker-7",
    )
    # The properties stay unread: they may be large.
    assert found.envelope == replace(envelope, properties=b"")
    assert found.enqueued_at == message.enqueued_at
    assert found.first_delivered_at == message.last_delivered_at
    assert (found.delivery_count, found.failure_count) == (1, 0)
    assert found.settled_at >= found.first_delivered_at


async def test_a_message_that_no_receiver_got_has_no_delivery(store_fixture: StoreFixture, queue: Queue) -> None:
    await archive_messages(store_fixture, queue, 1, retention=DAY)
    (found,) = await read(store_fixture)
    assert (found.outcome, found.first_delivered_at, found.receiver_id) == (Outcome.PURGED, None, None)
