"""Messages that share a body: it is stored once, delivered whole, and removed with its last reference."""

import secrets
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Redrive, UnlockedRow, Withdrawal
from app.broker.ports.sending import QueueGone
from app.domain.archive import CopiedBatch, TrimResult
from app.domain.instant import DAY, HOUR
from app.domain.message import Draft, MessageState
from app.domain.queue import SHARED_BODIES_LEVEL, Queue, QueueSettings, required_level
from app.domain.settlement import Outcome
from app.domain.topic import SubscriptionSettings, TopicSettings
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, weight_of
from app.domain.work_unit import WorkUnit
from tests.contract.store_fixture import (
    ServerFixture,
    StoreFixture,
    abandonment,
    bodies,
    claim,
    completion,
    draft,
    numbers,
)

BODY = bytes(range(256)) * 64


def copies(*queues: Queue, body: bytes = BODY, body_id: str = "", **fields: Any) -> list[Draft]:
    """Drafts for these queues that share a body."""
    body_id = body_id or secrets.token_hex(8)
    return [draft(queue, body, shared_body_id=body_id, **fields) for queue in queues]


async def sharing_queue(store_fixture: StoreFixture, settings: QueueSettings | None = None) -> Queue:
    """A queue that is the target of a subscription."""
    queue = await store_fixture.queue(settings)
    topics = store_fixture.store.topics
    topic = await topics.find("orders") or await topics.create("orders", TopicSettings())
    assert topic is not None
    assert await topics.subscriptions(topic).create(queue.name, SubscriptionSettings(queue.name))
    found = await store_fixture.store.queues.by_id(queue.id)
    assert found is not None
    return found


async def stored_bodies(store_fixture: StoreFixture) -> list[bytes]:
    """The shared bodies in the database."""
    return [body for (body,) in await store_fixture.execute("SELECT body FROM shared_body ORDER BY id")]


async def sweep(store_fixture: StoreFixture) -> int:
    """Delete the bodies that no message has. Return how many shared bodies are left."""
    await store_fixture.store.delete_expired(100)
    return len(await stored_bodies(store_fixture))


async def archive_is_emptied(store_fixture: StoreFixture) -> None:
    """Remove the batches whose retention has passed, after a day."""
    await store_fixture.advance_time(DAY / 10**6 * 30)
    while await store_fixture.store.archive.delete_expired(100):
        pass


async def batch_is_sealed(store_fixture: StoreFixture) -> CopiedBatch:
    """Seal the messages of the archive. Return a copy of the batch."""
    first = await store_fixture.store.archive.first_unsealed(0)
    assert first is not None
    batch = await store_fixture.store.archive.seal(first)
    assert batch is not None
    return CopiedBatch(batch.number, batch.row_count, batch.digest)


# ---- one body --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S1.6", "S1.15", "S1.17")
@pytest.mark.parametrize("body", [BODY, b"small", b""])
async def test_copies_store_one_body_and_each_is_delivered_whole(store_fixture: StoreFixture, body: bytes) -> None:
    queues = [await sharing_queue(store_fixture) for _ in range(3)]
    await store_fixture.store.send([*copies(*queues, body=body), draft(queues[0], b"its own")])
    assert await stored_bodies(store_fixture) == [body]
    in_rows = await store_fixture.execute("SELECT SUM(LENGTH(body)), SUM(shared_body_bytes) FROM message")
    assert [tuple(map(int, row)) for row in in_rows] == [(len(b"its own"), 3 * len(body))]
    assert [bodies(await store_fixture.claim(queue)) for queue in queues] == [[body, b"its own"], [body], [body]]


async def test_one_send_may_store_several_shared_bodies(store_fixture: StoreFixture) -> None:
    one, two = await sharing_queue(store_fixture), await sharing_queue(store_fixture)
    other = BODY[::-1]
    await store_fixture.store.send([*copies(one, two), *copies(one, two, body=other)])
    assert sorted(await stored_bodies(store_fixture)) == sorted([BODY, other])
    assert [bodies(await store_fixture.claim(queue)) for queue in (one, two)] == [[BODY, other]] * 2


@pytest.mark.parametrize("settings", [QueueSettings(group_in_flight=1), QueueSettings(history=True)])
async def test_copies_for_groups_and_histories_share_a_body(
    store_fixture: StoreFixture, settings: QueueSettings
) -> None:
    one, two = await sharing_queue(store_fixture, settings), await sharing_queue(store_fixture)
    drafts = copies(one, two, is_in_group=settings.group_in_flight is not None, keeps_history=settings.history)
    grouped = replace(drafts[0], envelope=replace(drafts[0].envelope, group_id="g"))
    await store_fixture.store.send([grouped, replace(drafts[1], is_in_group=False, keeps_history=False)])
    assert await stored_bodies(store_fixture) == [BODY]
    assert [bodies(await store_fixture.claim(queue)) for queue in (one, two)] == [[BODY], [BODY]]


async def test_a_duplicate_leaves_the_body_to_the_other_copy(store_fixture: StoreFixture) -> None:
    one, two = await sharing_queue(store_fixture), await sharing_queue(store_fixture)
    first, second = copies(one, two, message_id="id", duplicate_window=HOUR)
    await store_fixture.store.send([first])
    assert await sweep(store_fixture) == 1
    again = [replace(copy, shared_body_id="again") for copy in (first, second)]
    assert [receipt.duplicate for receipt in await store_fixture.store.send(again)] == [True, False]
    assert [bodies(await store_fixture.claim(queue)) for queue in (one, two)] == [[BODY], [BODY]]
    duplicates = [replace(copy, shared_body_id="more") for copy in (first, second)]
    assert all(receipt.duplicate for receipt in await store_fixture.store.send(duplicates))
    assert await sweep(store_fixture) == 2


async def test_a_refused_send_leaves_no_body(store_fixture: StoreFixture) -> None:
    queue, gone = await sharing_queue(store_fixture), await store_fixture.queue()
    await store_fixture.store.queues.delete(gone)
    with pytest.raises(QueueGone):
        await store_fixture.store.send(copies(queue, gone))
    assert await stored_bodies(store_fixture) == []


async def test_a_repeated_attempt_stores_no_second_body(store_fixture: StoreFixture) -> None:
    one, two = await sharing_queue(store_fixture), await sharing_queue(store_fixture)
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    first = await store_fixture.store.send_or_replay(copies(one, two), attempt)
    second = await store_fixture.store.send_or_replay(copies(one, two), attempt)
    assert (first.result, second.replayed) == (second.result, True)
    assert await stored_bodies(store_fixture) == [BODY]
    assert [bodies(await store_fixture.claim(queue)) for queue in (one, two)] == [[BODY], [BODY]]


async def test_the_sends_of_a_work_unit_share_a_body(store_fixture: StoreFixture) -> None:
    one, two = await sharing_queue(store_fixture), await sharing_queue(store_fixture)
    await store_fixture.store.execute(WorkUnit([], copies(one, two)), None)
    assert await stored_bodies(store_fixture) == [BODY]
    assert [bodies(await store_fixture.claim(queue)) for queue in (one, two)] == [[BODY], [BODY]]


# ---- every way to read it --------------------------------------------------------------------------------------------


async def test_a_shared_body_is_read_by_every_verb(store_fixture: StoreFixture) -> None:
    store, queue = store_fixture.store, await sharing_queue(store_fixture)
    receipts = await store.send(copies(queue, queue))
    first, second = [receipt.sequence_number for receipt in receipts]
    found = await store.read(queue.id, first)
    assert found is not None
    assert found.body == BODY
    browsed = await store.browse(queue.id, [MessageState.AVAILABLE], 0, 10)
    assert bodies(browsed) == [BODY, BODY]
    messages = await store_fixture.claim(queue)
    assert numbers(messages) == [first, second]
    await store.move([abandonment(messages[0], state=MessageState.DEAD_LETTERED)])
    await store.move([abandonment(messages[1], state=MessageState.DEFERRED)])
    dead = await store_fixture.claim(queue, source=MessageState.DEAD_LETTERED)
    deferred = await store.claim_by_number(claim(queue, source=MessageState.DEFERRED), [second])
    assert bodies([*dead, *deferred]) == [BODY, BODY]


async def test_a_repeated_receive_reads_the_shared_body_again(store_fixture: StoreFixture) -> None:
    queue = await sharing_queue(store_fixture)
    await store_fixture.store.send(copies(queue, queue))
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    first = await store_fixture.store.claim_or_replay(claim(queue, 2), attempt)
    again = await store_fixture.store.claim_or_replay(claim(queue, 2), attempt)
    assert bodies(first.result) == bodies(again.result) == [BODY, BODY]


async def test_claims_and_metadata_count_a_shared_body_for_each_message(store_fixture: StoreFixture) -> None:
    queue = await sharing_queue(store_fixture)
    drafts = copies(queue, queue, queue)
    await store_fixture.store.send(drafts)
    weight = weight_of(drafts[0])
    assert weight == MESSAGE_OVERHEAD_BYTES + len(BODY)
    messages = await store_fixture.claim(queue, max_bytes=2 * weight)
    assert bodies(messages) == [BODY, BODY]
    metadata = await store_fixture.store.read_metadata(queue.id, numbers(messages))
    assert [one.body_bytes for one in metadata] == [len(BODY), len(BODY)]
    (last,) = await store_fixture.claim(queue, max_bytes=1)
    assert last.body == BODY


# ---- the archive -----------------------------------------------------------------------------------------------------


async def test_ended_messages_refer_to_the_body_until_the_last_one_is_removed(store_fixture: StoreFixture) -> None:
    one, two = await sharing_queue(store_fixture), await sharing_queue(store_fixture)
    await store_fixture.store.send(copies(one, two))
    for queue in (one, two):
        (message,) = await store_fixture.claim(queue)
        assert await sweep(store_fixture) == 1
        assert await store_fixture.store.remove([completion(queue, message)]) == [True]
        assert await store_fixture.archived(message.sequence_number, "LENGTH(body)") == [(0,)]
        assert await sweep(store_fixture) == 1
    await batch_is_sealed(store_fixture)
    await archive_is_emptied(store_fixture)
    assert await store_fixture.execute("SELECT 1 FROM archive") == []
    assert await sweep(store_fixture) == 0


@pytest.mark.fence("reference")
async def test_a_body_stays_while_a_message_has_it(store_fixture: StoreFixture) -> None:
    queue = await sharing_queue(store_fixture)
    await store_fixture.store.send(copies(queue))
    assert await sweep(store_fixture) == 1


@pytest.mark.fence("reference")
async def test_a_body_stays_while_an_archived_message_has_it(store_fixture: StoreFixture) -> None:
    queue = await sharing_queue(store_fixture)
    await store_fixture.store.send(copies(queue))
    (message,) = await store_fixture.claim(queue)
    await store_fixture.store.remove([completion(queue, message)])
    assert await sweep(store_fixture) == 1


async def test_without_an_archive_the_last_completion_ends_the_body(store_fixture: StoreFixture) -> None:
    queue = await sharing_queue(store_fixture, QueueSettings(archive_retention=0))
    await store_fixture.store.send(copies(queue, queue))
    for left, message in zip((1, 0), await store_fixture.claim(queue), strict=True):
        await store_fixture.store.remove([completion(queue, message)])
        assert await sweep(store_fixture) == left


async def test_the_digest_of_a_batch_covers_the_shared_body(store_fixture: StoreFixture) -> None:
    queue = await sharing_queue(store_fixture)
    (receipt,) = await store_fixture.store.send(copies(queue))
    (message,) = await store_fixture.claim(queue)
    await store_fixture.store.remove([completion(queue, message)])
    sealed = await batch_is_sealed(store_fixture)
    await store_fixture.execute(
        "UPDATE archive SET body = (SELECT shared_body.body FROM shared_body), shared_body_id = NULL, "
        f"shared_body_bytes = NULL WHERE sequence_number = {receipt.sequence_number}"
    )
    assert await store_fixture.store.archive.trim(sealed) is TrimResult.TOO_YOUNG


async def test_a_batch_whose_shared_body_changed_differs(store_fixture: StoreFixture) -> None:
    queue = await sharing_queue(store_fixture)
    await store_fixture.store.send(copies(queue))
    (message,) = await store_fixture.claim(queue)
    await store_fixture.store.remove([completion(queue, message)])
    sealed = await batch_is_sealed(store_fixture)
    await store_fixture.execute("UPDATE shared_body SET body = 'other'")
    assert await store_fixture.store.archive.trim(sealed) is TrimResult.DIFFERS


async def test_a_restored_message_has_the_shared_body(store_fixture: StoreFixture) -> None:
    store, queue = store_fixture.store, await sharing_queue(store_fixture)
    (receipt,) = await store.send(copies(queue))
    row = UnlockedRow(receipt.sequence_number, queue.id, MessageState.AVAILABLE)
    assert await store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, DAY)]) == [True]
    await store.restore(queue, [receipt.sequence_number])
    assert bodies(await store_fixture.claim(queue)) == [BODY]


async def test_messages_of_a_deleted_queue_keep_their_body_in_the_archive(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    (receipt,) = await store_fixture.store.send(copies(queue))
    await store_fixture.store.queues.delete(queue)
    assert await sweep(store_fixture) == 1
    found = await store_fixture.archived(receipt.sequence_number, "shared_body_bytes")
    assert found == [(len(BODY),)]


# ---- queues that share bodies ----------------------------------------------------------------------------------------


async def test_the_target_of_a_subscription_shares_bodies_from_then_on(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    queue = await sharing_queue(store_fixture)
    assert (queue.feature_level, queue.shares_bodies) == (SHARED_BODIES_LEVEL, True)
    for settings in (QueueSettings(history=True), QueueSettings()):
        changed = await store.queues.change(queue, settings)
        assert changed is not None
        assert changed.shares_bodies
        queue = changed
    topic = await store.topics.find("orders")
    assert topic is not None
    other = await store_fixture.queue()
    assert not other.shares_bodies
    subscription = await store.topics.subscriptions(topic).find(queue.name)
    assert subscription is not None
    assert await store.topics.subscriptions(topic).change(subscription, SubscriptionSettings(other.name))
    found = [await store.queues.by_id(one.id) for one in (queue, other)]
    assert [one is not None and one.shares_bodies for one in found] == [True, True]


async def test_a_queue_that_was_no_target_has_the_level_of_its_settings(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(history=True))
    changed = await store_fixture.store.queues.change(queue, QueueSettings())
    assert changed is not None
    assert changed.feature_level == required_level(QueueSettings())


@pytest.mark.parametrize("shares", [True, False])
async def test_a_message_moves_with_its_reference_only_to_a_queue_that_shares(
    store_fixture: StoreFixture, shares: bool
) -> None:
    store, queue = store_fixture.store, await sharing_queue(store_fixture)
    target = await sharing_queue(store_fixture) if shares else await store_fixture.queue()
    await store.send([*copies(queue, queue), draft(queue, b"its own")])
    messages = await store_fixture.claim(queue)
    await store.move([abandonment(message, state=MessageState.DEAD_LETTERED) for message in messages[1:]])
    rows = [UnlockedRow(number, queue.id, MessageState.DEAD_LETTERED) for number in numbers(messages[1:])]
    assert await store.redrive([Redrive(row, target.id) for row in rows]) == [True, True]
    moved = await store_fixture.execute(f"SELECT shared_body_id FROM message WHERE queue_id = {target.id}")
    assert sorted(body_id is not None for (body_id,) in moved) == [False, shares]
    assert bodies(await store_fixture.claim(target)) == [BODY, b"its own"]


# ---- races -----------------------------------------------------------------------------------------------------------


async def test_a_body_outlives_a_move_into_the_archive_that_is_under_way(store_fixture: StoreFixture) -> None:
    if not isinstance(store_fixture, ServerFixture):
        pytest.skip("one writer")
    queue = await sharing_queue(store_fixture)
    (receipt,) = await store_fixture.store.send(copies(queue))
    shared = "sequence_number, queue_id, priority, enqueued_at, available_at, delivery_count, failure_count, message_id"
    shared += ", body_kind, body, shared_body_id, shared_body_bytes"
    archive = (
        f"INSERT INTO archive (queue, outcome, settled_at, remove_at, {shared}) "
        f"SELECT 'orders', 'completed', 1, 1, {shared} FROM message WHERE sequence_number = {receipt.sequence_number}"
    )
    delete = f"DELETE FROM message WHERE sequence_number = {receipt.sequence_number}"
    async with store_fixture.open_transaction(archive, delete, commits=True):
        assert await sweep(store_fixture) == 1
    assert await sweep(store_fixture) == 1
    await store_fixture.execute("DELETE FROM depth")


async def test_a_body_that_is_being_stored_is_not_removed(store_fixture: StoreFixture) -> None:
    if not isinstance(store_fixture, ServerFixture):
        pytest.skip("one writer")
    statement = f"INSERT INTO shared_body (id, body) VALUES ('new', {store_fixture.literal(BODY)})"
    async with store_fixture.open_transaction(statement):
        await store_fixture.store.delete_expired(100)
        assert await stored_bodies(store_fixture) == []


@pytest.mark.parametrize(("limit", "expected"), [(1, [4, 4, 4, 3]), (2, [4, 3, 3]), (3, [4, 3])])
async def test_the_removal_looks_at_a_bounded_number_of_bodies_in_turn(
    store_fixture: StoreFixture, limit: int, expected: Sequence[int]
) -> None:
    queue = await sharing_queue(store_fixture)
    for body_id in ("a", "b", "c"):
        await store_fixture.store.send(copies(queue, body_id=body_id))
    await store_fixture.execute("INSERT INTO shared_body (id, body) VALUES ('d', '')")
    left: list[int] = []
    for _ in expected:
        await store_fixture.store.delete_expired(limit)
        left.append(len(await stored_bodies(store_fixture)))
    assert left == expected
