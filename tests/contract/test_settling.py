"""At most one settlement takes effect for a delivery. It is recorded, and the message is archived or moves on."""

import asyncio

import pytest
from msgspec.structs import replace

from app.broker.ports.store import Store
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageHeaders, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import MAX_DELIVERY_COUNT_REASON, LockToken, Outcome, Tombstone, undelivered_release
from app.store.shared.message_rows import ARCHIVED_COLUMNS
from tests.bounds import bounded
from tests.contract.store_fixture import (
    LOCK_DURATION,
    StoreFixture,
    abandonment,
    bodies,
    completion,
    token,
    with_wrong_token,
)

# ---- out of the queue ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.20", "S0.7", "S2.10", "S2.11")
async def test_a_completed_message_is_in_the_archive_and_nowhere_else(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    assert await store_fixture.state(message) is None
    now = await store_fixture.store.now()
    ((name, outcome, settled_at, remove_at),) = await store_fixture.archived(
        message.sequence_number, "queue", "outcome", "settled_at", "remove_at"
    )
    assert (name, outcome) == (queue.name, "completed")
    assert store_fixture.is_close(settled_at, now)
    assert remove_at == settled_at + queue.settings.archive_retention
    await store_fixture.advance_time(60)
    assert await store_fixture.claim(queue) == []
    assert await store_fixture.store.expired_locks(100) == []


@pytest.mark.behaviour("S2.32")
async def test_the_archive_keeps_every_field_of_the_message(store_fixture: StoreFixture, queue: Queue) -> None:
    envelope = Envelope(
        "id", MessageHeaders("type", "correlation", "subject", "reply", "to", "trace"), "group", b'{"a":1}'
    )
    await store_fixture.store.send([Draft(queue.id, envelope, b"\x00body", BodyKind.JSON, priority=6, ttl=DAY)])
    (once,) = await store_fixture.claim(queue, receiver_id="first")
    await store_fixture.store.move([abandonment(once, last_failure="it broke", dead_letter_reason="r")])
    (message,) = await store_fixture.claim(queue, receiver_id="second")
    columns = ", ".join(ARCHIVED_COLUMNS)
    before = await store_fixture.execute(f"SELECT {columns} FROM message")
    await store_fixture.store.remove([completion(queue, message)])
    assert await store_fixture.execute(f"SELECT {columns} FROM archive") == before
    kept = dict(zip(ARCHIVED_COLUMNS, before[0], strict=True))
    assert (kept["delivery_count"], kept["failure_count"], kept["receiver_id"]) == (2, 1, "second")
    assert bytes(kept["body"]) == b"\x00body"


async def test_without_retention_only_a_tombstone_remains(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=0))
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    assert await store_fixture.state(message) is None
    assert await store_fixture.execute("SELECT * FROM archive") == []
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert (tombstone.outcome, tombstone.state) == (Outcome.COMPLETED, None)


@pytest.mark.parametrize("retention", [0, 10 * SECOND, DAY])
async def test_a_completion_is_recorded_for_an_hour_at_least(store_fixture: StoreFixture, retention: int) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=retention))
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message)])
    await store_fixture.advance_time(3500)
    if first := await store_fixture.store.archive.first_unsealed(0):
        await store_fixture.store.archive.seal(first)
    for _ in bounded("no expired row is left"):
        if not await store_fixture.store.delete_expired(100) + await store_fixture.store.archive.delete_expired(100):
            break
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert (tombstone.token, tombstone.queue_id, tombstone.outcome) == (token(message), queue.id, Outcome.COMPLETED)


# ---- back into a queue -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.14", "S3.22", "S2.33")
async def test_an_abandoned_message_is_available_with_only_its_counts_changed(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.store.send(
        [Draft(queue.id, Envelope("id", properties=b'{"a":1}'), b"body", BodyKind.JSON, ttl=DAY)]
    )
    before = (await store_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 1))[0]
    (message,) = await store_fixture.claim(queue, receiver_id="worker")
    assert await store_fixture.store.move([abandonment(message, last_failure="it broke")]) == [True]
    after = await store_fixture.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert after == replace(
        before,
        delivery_count=1,
        failure_count=1,
        last_failure="it broke",
        first_delivered_at=message.first_delivered_at,
        last_delivered_at=message.last_delivered_at,
        read_at=after.read_at,
    )


@pytest.mark.behaviour("S2.21")
async def test_a_release_leaves_a_message_as_it_was_before_the_delivery(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"body")
    (before,) = await store_fixture.store.browse(queue.id, [MessageState.AVAILABLE], 0, 1)
    (message,) = await store_fixture.claim(queue, receiver_id="worker")
    assert await store_fixture.store.move([undelivered_release(message)]) == [True]
    after = await store_fixture.store.read(queue.id, message.sequence_number)
    assert after == replace(before, read_at=after.read_at if after else 0)
    assert await store_fixture.store.move([undelivered_release(message)]) == [False]


@pytest.mark.behaviour("S2.21")
async def test_a_release_keeps_earlier_deliveries_and_their_failures(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message, last_failure="it broke")])
    (again,) = await store_fixture.claim(queue)
    await store_fixture.store.move([undelivered_release(again)])
    (third,) = await store_fixture.claim(queue)
    assert (third.delivery_count, third.failure_count, third.last_failure) == (2, 1, "it broke")


@pytest.mark.behaviour("S2.7", "S2.9")
async def test_a_delayed_message_is_scheduled_from_now_on(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    now = await store_fixture.store.now()
    delayed = abandonment(message, state=MessageState.SCHEDULED, delay=20 * SECOND)
    assert await store_fixture.store.move([delayed]) == [True]
    after = await store_fixture.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert after.state is MessageState.SCHEDULED
    assert store_fixture.is_close(after.available_at, now + 20 * SECOND)
    assert await store_fixture.claim(queue) == []
    await store_fixture.advance_time(30)
    await store_fixture.store.promote(10)
    assert bodies(await store_fixture.claim(queue)) == [b"body"]


@pytest.mark.behaviour("S3.24", "S2.6")
async def test_a_dead_letter_has_its_reason_and_time(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    now = await store_fixture.store.now()
    move = abandonment(
        message,
        outcome=Outcome.DEAD_LETTERED,
        state=MessageState.DEAD_LETTERED,
        dead_letter_reason="unreadable",
        dead_letter_description="line 1: ünexpected 'end'",
        properties=b'{"seen":true}',
    )
    assert await store_fixture.store.move([move]) == [True]
    dead = await store_fixture.store.read(queue.id, message.sequence_number)
    assert dead is not None
    assert (dead.state, dead.lock_token, dead.locked_until) == (MessageState.DEAD_LETTERED, None, None)
    assert (dead.dead_letter_reason, dead.dead_letter_description) == ("unreadable", "line 1: ünexpected 'end'")
    assert dead.envelope.properties == b'{"seen":true}'
    assert store_fixture.is_close(dead.dead_lettered_at, now)


async def test_a_dead_letter_that_was_received_and_abandoned_keeps_its_reason(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    dead = {"outcome": Outcome.DEAD_LETTERED, "state": MessageState.DEAD_LETTERED}
    await store_fixture.store.move([abandonment(message, **dead, dead_letter_reason=MAX_DELIVERY_COUNT_REASON)])
    before = await store_fixture.store.read(queue.id, message.sequence_number)
    (received,) = await store_fixture.claim(queue, source=MessageState.DEAD_LETTERED)
    await store_fixture.store.move([abandonment(received, state=MessageState.DEAD_LETTERED, failures=0)])
    after = await store_fixture.store.read(queue.id, message.sequence_number)
    assert before is not None
    assert after is not None
    assert after.dead_letter_reason == MAX_DELIVERY_COUNT_REASON
    assert after.dead_lettered_at == before.dead_lettered_at


@pytest.mark.parametrize(("change", "kept"), [(None, b'{"a":1}'), (b'{"b":2}', b'{"b":2}'), (b"", b"")])
async def test_properties_change_only_on_request(
    store_fixture: StoreFixture, queue: Queue, change: bytes | None, kept: bytes
) -> None:
    await store_fixture.store.send([Draft(queue.id, Envelope("id", properties=b'{"a":1}'), b"", BodyKind.NONE)])
    (message,) = await store_fixture.claim(queue)
    await store_fixture.store.move([abandonment(message, properties=change)])
    (again,) = await store_fixture.claim(queue)
    assert again.envelope.properties == kept


CHANGES = [
    {"last_failure": "timeout"},
    {"delay": MINUTE, "state": MessageState.SCHEDULED},
    {"last_failure": "timeout", "failures": 0},
    {"properties": b'{"key":1}'},
    {"state": MessageState.DEAD_LETTERED, "outcome": Outcome.DEAD_LETTERED, "dead_letter_reason": "why"},
]


@pytest.mark.parametrize("first", range(len(CHANGES)))
async def test_moves_of_one_call_keep_their_own_fields(store_fixture: StoreFixture, queue: Queue, first: int) -> None:
    changes = (CHANGES[first:] + CHANGES[:first])[:3]
    await store_fixture.send(queue, *(b"body" for _ in changes))
    moves = [
        abandonment(message, **change)
        for message, change in zip(await store_fixture.claim(queue, 3), changes, strict=True)
    ]
    assert await store_fixture.store.move(moves) == [True] * 3
    for move in moves:
        message = await store_fixture.store.read(queue.id, move.token.sequence_number)
        assert message is not None
        assert (message.state, message.failure_count) == (move.state, move.failures)
        assert (message.last_failure, message.dead_letter_reason) == (move.last_failure, move.dead_letter_reason)
        assert message.envelope.properties == (move.properties or b"")
        assert (message.available_at > message.enqueued_at) == (move.delay is not None)


# ---- one effect ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.6")
async def test_of_two_settlements_in_one_request_the_first_takes_effect(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    one, two = await store_fixture.locked(queue), await store_fixture.locked(queue)
    settlement = completion(queue, one)
    assert await store_fixture.store.remove([settlement, settlement]) == [True, False]
    delayed = abandonment(two, state=MessageState.SCHEDULED, delay=HOUR)
    assert await store_fixture.store.move([delayed, abandonment(two)]) == [True, False]
    assert await store_fixture.state(two) is MessageState.SCHEDULED
    assert len(await store_fixture.archived(one.sequence_number, "outcome")) == 1


@pytest.mark.behaviour("S0.6", "S0.23", "S3.21")
async def test_of_many_concurrent_settlements_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for _ in range(10):
        message = await store_fixture.locked(queue)
        given_back = abandonment(message, state=MessageState.SCHEDULED, delay=HOUR)
        settlements = [
            *(stores[index % 2].remove([completion(queue, message)]) for index in range(8)),
            *(stores[index % 2].move([given_back]) for index in range(8)),
        ]
        took_effect = [effective for (effective,) in await asyncio.gather(*settlements)]
        assert took_effect.count(True) == 1
        completed = True in took_effect[:8]
        assert await store_fixture.state(message) is (None if completed else MessageState.SCHEDULED)
        (tombstone,) = await stores[1].tombstones([token(message)])
        assert tombstone is not None
        assert tombstone.outcome is (Outcome.COMPLETED if completed else Outcome.ABANDONED)


@pytest.mark.behaviour("S2.19")
async def test_settlements_of_many_callers_stay_separate(store_fixture: StoreFixture, queue: Queue) -> None:
    held = [await store_fixture.locked(queue) for _ in range(20)]
    wrong = [with_wrong_token(message) for message in held]
    calls = [
        store_fixture.store.remove([completion(queue, m), completion(queue, w)])
        for m, w in zip(held, wrong, strict=True)
    ]
    assert await asyncio.gather(*calls) == [[True, False]] * 20


async def test_an_empty_settlement_changes_nothing(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    assert await store.remove([]) == await store.move([]) == await store.release([]) == []
    assert await store.extend([]) == []
    assert await store.locked_messages([]) == []
    assert await store.tombstones([]) == []


# ---- tombstones ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.13", "S3.21")
async def test_every_settlement_is_recorded_by_its_token(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message)])
    (second,) = await store_fixture.claim(queue)
    await store_fixture.store.move([abandonment(second, state=MessageState.DEFERRED, outcome=Outcome.DEFERRED)])
    unknown = LockToken(message.sequence_number, bytes(16))
    now = await store_fixture.store.now()
    first_stone, second_stone, none = await store_fixture.store.tombstones([token(message), token(second), unknown])
    assert none is None
    for tombstone, one, outcome, state in [
        (first_stone, message, Outcome.ABANDONED, MessageState.AVAILABLE),
        (second_stone, second, Outcome.DEFERRED, MessageState.DEFERRED),
    ]:
        assert tombstone is not None
        assert tombstone == Tombstone(token(one), queue.id, outcome, state, tombstone.settled_at)
        assert store_fixture.is_close(tombstone.settled_at, now)


async def test_a_current_delivery_has_no_tombstone_and_is_locked(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.tombstones([token(message)]) == [None]
    (held,) = await store_fixture.store.locked_messages([token(message)])
    assert held is not None
    assert (held.token, held.queue_id, held.lock_generation) == (token(message), queue.id, 0)
    assert (held.home_state, held.delivery_count, held.failure_count) == (MessageState.AVAILABLE, 1, 0)
    assert held.is_live
    assert held.locked_until == message.locked_until
    await store_fixture.advance_time(LOCK_DURATION // SECOND + 1)
    (ended,) = await store_fixture.store.locked_messages([token(message)])
    assert ended is not None
    assert not ended.is_live


async def test_a_settled_token_is_no_longer_locked(store_fixture: StoreFixture, queue: Queue) -> None:
    first, second = await store_fixture.locked(queue), await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(first)])
    tokens = [token(message) for message in (first, second, with_wrong_token(second), first)]
    held = await store_fixture.store.locked_messages(tokens)
    assert [message and message.token for message in held] == [None, token(second), None, None]


async def test_the_lock_of_an_ended_delivery_is_removed_from_the_message(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue, receiver_id="worker", lock_duration=MINUTE)
    await store_fixture.store.move([abandonment(message)])
    after: Message | None = await store_fixture.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert (after.lock_token, after.locked_until, after.receiver_id, after.lock_generation) == (None, None, None, 0)
