"""A queue with a setting that only a newer version knows is left alone, and starves no other queue."""

import pytest

from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.broker.ports.sending import QueueGone
from app.domain.instant import DAY, SECOND
from app.domain.message import Envelope, MessageState
from app.domain.queue import (
    FEATURE_LEVEL,
    SHARED_BODIES_LEVEL,
    SYNCHRONOUS_LEVEL,
    Queue,
    QueueSettings,
    QueueStatus,
    required_level,
)
from tests.brokers import dead_letter_all
from tests.contract.store_fixture import ServerFixture, StoreFixture, abandonment, draft, numbers


async def need_this_version(store_fixture: StoreFixture, *queues: Queue) -> None:
    """Give queues the newest level that this version knows. It serves them like queues of level 0."""
    for queue in queues:
        await store_fixture.execute(f"UPDATE queue SET feature_level = {FEATURE_LEVEL} WHERE id = {queue.id}")


async def test_a_queue_has_the_level_that_its_settings_need(store_fixture: StoreFixture, queue: Queue) -> None:
    queues = store_fixture.store.queues
    assert queue.feature_level == required_level(queue.settings)
    await store_fixture.need_newer_server(queue)
    (found,) = await queues.page("", 10)
    assert found.feature_level == FEATURE_LEVEL + 1
    assert found == await queues.by_name(queue.name) == await queues.by_id(queue.id)
    changed = await queues.change(found, QueueSettings(max_delivery_count=3))
    assert changed is not None
    assert changed.feature_level == SHARED_BODIES_LEVEL, "its messages may share bodies"


async def test_a_queue_with_offered_messages_keeps_their_level(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.execute(f"UPDATE queue SET feature_level = {SYNCHRONOUS_LEVEL} WHERE id = {queue.id}")
    changed = await store_fixture.store.queues.change(queue, QueueSettings(max_delivery_count=3))
    assert changed is not None
    assert changed.feature_level == SYNCHRONOUS_LEVEL


async def test_a_changed_queue_has_the_level_that_its_settings_need(store_fixture: StoreFixture) -> None:
    created = await store_fixture.queue(QueueSettings(history=True))
    assert created.feature_level == required_level(created.settings)
    changed = await store_fixture.store.queues.change(created, QueueSettings())
    assert changed is not None
    assert changed.feature_level == 0


@pytest.mark.fence("level")
async def test_the_dead_letters_of_a_newer_queue_are_not_forwarded(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue(QueueSettings(forward_dead_letters_to=queue.name))
    await store_fixture.send(newer, b"body")
    await need_this_version(store_fixture, newer)
    assert await dead_letter_all(store_fixture.store, newer) == 1
    assert newer.id in [found.id for found in await store_fixture.store.queues.that_forward_dead_letters()]
    await store_fixture.need_newer_server(newer)
    assert newer.id not in [found.id for found in await store_fixture.store.queues.that_forward_dead_letters()]


@pytest.mark.fence("level")
@pytest.mark.parametrize("window", [None, DAY])
@pytest.mark.parametrize("count", [1, 2])
async def test_nothing_is_sent_to_a_newer_queue(
    store_fixture: StoreFixture, queue: Queue, window: int | None, count: int
) -> None:
    newer = await store_fixture.queue()
    await need_this_version(store_fixture, queue)
    await store_fixture.need_newer_server(newer)
    with pytest.raises(QueueGone):
        await store_fixture.store.send([draft(newer, duplicate_window=window) for _ in range(count)])
    assert len(await store_fixture.send(queue, b"a", b"b")) == 2
    assert await store_fixture.execute(f"SELECT 1 FROM message WHERE queue_id = {newer.id}") == []


async def dead_lettered(store_fixture: StoreFixture, queue: Queue) -> UnlockedRow:
    """A dead-lettered message."""
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message, state=MessageState.DEAD_LETTERED)])
    return UnlockedRow(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)


async def test_nothing_is_redriven_into_a_newer_queue(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    row = await dead_lettered(store_fixture, queue)
    await store_fixture.need_newer_server(newer)
    with pytest.raises(QueueGone):
        await store_fixture.store.redrive([Redrive(row, newer.id)])


async def test_nothing_is_redriven_out_of_a_newer_queue(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    row = await dead_lettered(store_fixture, newer)
    await store_fixture.need_newer_server(newer)
    assert await store_fixture.store.redrive([Redrive(row, queue.id)]) == [False]


@pytest.mark.fence("level")
async def test_due_messages_of_newer_queues_wait(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    await store_fixture.send(newer, b"a", b"b", delay=1 * SECOND)
    (due,) = await store_fixture.send(queue, b"c", delay=2 * SECOND)
    await store_fixture.send(queue, b"d", delay=60 * SECOND)
    await need_this_version(store_fixture, queue)
    await store_fixture.need_newer_server(newer)
    await store_fixture.advance_time(3)
    promoted = await store_fixture.store.promote(2)
    assert dict(promoted.by_queue) == {queue.id: [due]}
    assert promoted.next_due_in is not None
    assert promoted.next_due_in > 30 * SECOND


@pytest.mark.fence("level")
async def test_expired_messages_of_newer_queues_stay(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    for body in (b"a", b"b"):
        await store_fixture.send(newer, body, ttl=1 * SECOND)
    (expired,) = await store_fixture.send(queue, b"c", ttl=2 * SECOND)
    await need_this_version(store_fixture, queue)
    await store_fixture.need_newer_server(newer)
    await store_fixture.advance_time(3)
    found = await store_fixture.store.expired_messages(2)
    assert found == [UnlockedRow(expired, queue.id, MessageState.AVAILABLE)]
    # Nor are the changes of its depth added up, because they may count states that this version does not know.
    changes = f"SELECT total FROM depth WHERE queue_id = {newer.id}"
    before = await store_fixture.execute(changes)
    await store_fixture.store.delete_expired(10)
    assert await store_fixture.execute(changes) == before


@pytest.mark.fence("level")
async def test_expired_locks_of_newer_queues_stay(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    for _ in range(2):
        await store_fixture.locked(newer, lock_duration=1 * SECOND)
    locked = await store_fixture.locked(queue, lock_duration=2 * SECOND)
    await need_this_version(store_fixture, queue)
    await store_fixture.need_newer_server(newer)
    await store_fixture.advance_time(3)
    found = await store_fixture.store.expired_locks(2)
    assert [row.token.sequence_number for row in found] == numbers([locked])


@pytest.mark.fence("level")
async def test_locks_of_newer_queues_are_not_revoked(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    for changing in (newer, queue):
        await store_fixture.locked(changing)
        await store_fixture.store.queues.change(changing, QueueSettings(status=QueueStatus.DISABLED))
    await need_this_version(store_fixture, queue)
    await store_fixture.need_newer_server(newer)
    revocations = await store_fixture.store.queues.revocations(2)
    assert [revocation.queue_id for revocation in revocations] == [queue.id]


@pytest.mark.fence("level")
async def test_blocked_messages_of_newer_queues_stay(store_fixture: StoreFixture) -> None:
    newer, queue = [await store_fixture.queue(QueueSettings(group_in_flight=1)) for _ in range(2)]
    for each in (newer, queue):
        envelopes = [Envelope(body, group_id="g") for body in "ab"]
        await store_fixture.store.send(
            [draft(each, b"", envelope=envelope, is_in_group=True) for envelope in envelopes]
        )
        assert await store_fixture.store.queues.change(each, QueueSettings(group_in_flight=2))
    await need_this_version(store_fixture, queue)
    await store_fixture.need_newer_server(newer)
    assert await store_fixture.store.admit_after_changes(10)
    counts = await store_fixture.store.queues.counts([newer.id, queue.id])
    assert [counts[each.id].blocked for each in (newer, queue)] == [1, 0]


async def test_messages_in_states_of_a_newer_version_do_not_hinder_the_counts(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    (number, _, _) = await store_fixture.send(queue, b"a", b"b", b"c", delay=60 * SECOND)
    await store_fixture.need_newer_server(queue)
    await store_fixture.execute(f"UPDATE message SET state = 99 WHERE sequence_number = {number}")
    counts = await store_fixture.store.queues.counts([queue.id])
    await store_fixture.execute(f"UPDATE message SET state = 3 WHERE sequence_number = {number}")
    assert counts[queue.id].scheduled >= 2


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
async def test_a_stopped_change_of_a_newer_queue_delays_no_loop(store_fixture: ServerFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    for each in (newer, queue):
        await store_fixture.locked(each)
        await store_fixture.send(each, b"late", ttl=1 * SECOND)
        await store_fixture.send(each, b"due", delay=1 * SECOND)
    await store_fixture.need_newer_server(newer)
    await store_fixture.advance_time(60)
    async with store_fixture.open_transaction(f"UPDATE queue SET feature_level = 0 WHERE id = {newer.id}"):
        (lock,) = await store_fixture.store.expired_locks(10)
        (late,) = await store_fixture.store.expired_messages(10)
        promoted = await store_fixture.store.promote(10)
    assert {lock.queue_id, late.queue_id, *promoted.by_queue} == {queue.id}
