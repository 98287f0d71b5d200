"""At most one ending takes effect for one delivery; it is remembered, and the message is archived or moves on."""

import asyncio
from dataclasses import replace

import pytest

from app.broker.ports import Store
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import LIMIT_REACHED, LockToken, Outcome, Tombstone
from app.store.rows import ARCHIVED_COLUMNS
from tests.bounds import bounded
from tests.contract.subject import LOCK, Subject, abandonment, bodies, completion, is_close, stranger, token

# ---- out of the queue ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.20", "S0.7", "S2.10", "S2.11")
async def test_a_completed_message_is_in_the_archive_and_nowhere_else(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    assert await subject.store.remove([completion(queue, message)]) == [True]
    assert await subject.state(message) is None
    now = await subject.store.now()
    ((name, outcome, settled_at, remove_at),) = await subject.archived(
        message.sequence_number, "queue", "outcome", "settled_at", "remove_at"
    )
    assert (name, outcome) == (queue.name, "completed")
    assert is_close(settled_at, now)
    assert remove_at == settled_at + queue.settings.archive_retention
    await subject.pass_time(60)
    assert await subject.claim(queue) == []
    assert await subject.store.ended_locks(100) == []


@pytest.mark.behaviour("S2.32")
async def test_the_archive_keeps_everything_of_the_message(subject: Subject, queue: Queue) -> None:
    envelope = Envelope("id", "type", "correlation", "subject", "reply", "to", "group", "trace", b'{"a":1}')
    await subject.store.send([Draft(queue.id, envelope, b"\x00body", BodyKind.JSON, priority=6, ttl=DAY)])
    (once,) = await subject.claim(queue, receiver_id="first")
    await subject.store.move([abandonment(once, last_failure="it broke", dead_letter_reason="r")])
    (message,) = await subject.claim(queue, receiver_id="second")
    columns = ", ".join(ARCHIVED_COLUMNS)
    before = await subject.execute(f"SELECT {columns} FROM message")
    await subject.store.remove([completion(queue, message)])
    assert await subject.execute(f"SELECT {columns} FROM archive") == before
    kept = dict(zip(ARCHIVED_COLUMNS, before[0], strict=True))
    assert (kept["delivery_count"], kept["failure_count"], kept["receiver_id"]) == (2, 1, "second")
    assert bytes(kept["body"]) == b"\x00body"


async def test_without_retention_only_a_tombstone_is_left(subject: Subject) -> None:
    queue = await subject.queue(QueueSettings(archive_retention=0))
    message = await subject.locked(queue)
    assert await subject.store.remove([completion(queue, message)]) == [True]
    assert await subject.state(message) is None
    assert await subject.execute("SELECT * FROM archive") == []
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    assert (stone.outcome, stone.state) == (Outcome.COMPLETED, None)


@pytest.mark.parametrize("retention", [0, 10 * SECOND, DAY])
async def test_a_completion_is_remembered_for_an_hour_at_least(subject: Subject, retention: int) -> None:
    queue = await subject.queue(QueueSettings(archive_retention=retention))
    message = await subject.locked(queue)
    await subject.store.remove([completion(queue, message)])
    await subject.pass_time(3500)
    if first := await subject.store.archive.first_unsealed(0):
        await subject.store.archive.seal(first)
    for _ in bounded("nothing is left to forget"):
        if not await subject.store.forget(100) + await subject.store.archive.forget(100):
            break
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    assert (stone.token, stone.queue_id, stone.outcome) == (token(message), queue.id, Outcome.COMPLETED)


# ---- back into a queue -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.14", "S3.22", "S2.33")
async def test_an_abandoned_message_is_free_at_once_and_unchanged_but_for_its_counts(
    subject: Subject, queue: Queue
) -> None:
    await subject.store.send([Draft(queue.id, Envelope("id", properties=b'{"a":1}'), b"body", BodyKind.JSON, ttl=DAY)])
    before = (await subject.store.browse(queue.id, [MessageState.AVAILABLE], 0, 1))[0]
    (message,) = await subject.claim(queue, receiver_id="worker")
    assert await subject.store.move([abandonment(message, last_failure="it broke")]) == [True]
    after = await subject.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert after == replace(
        before,
        delivery_count=1,
        failure_count=1,
        last_failure="it broke",
        last_delivered_at=message.last_delivered_at,
        read_at=after.read_at,
    )


async def test_an_uncounted_release_leaves_failures_and_their_reason(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.move([abandonment(message, last_failure="it broke")])
    (again,) = await subject.claim(queue)
    await subject.store.move([abandonment(again, outcome=Outcome.RELEASED, failures=0)])
    (third,) = await subject.claim(queue)
    assert (third.delivery_count, third.failure_count, third.last_failure) == (3, 1, "it broke")


@pytest.mark.behaviour("S2.7", "S2.9")
async def test_a_delayed_message_is_scheduled_from_now_on(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    now = await subject.store.now()
    delayed = abandonment(message, state=MessageState.SCHEDULED, delay=20 * SECOND)
    assert await subject.store.move([delayed]) == [True]
    after = await subject.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert after.state is MessageState.SCHEDULED
    assert is_close(after.available_at, now + 20 * SECOND)
    assert await subject.claim(queue) == []
    await subject.pass_time(30)
    await subject.store.awaken(10)
    assert bodies(await subject.claim(queue)) == [b"body"]


@pytest.mark.behaviour("S3.24", "S2.6")
async def test_a_dead_letter_says_why_and_when(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    now = await subject.store.now()
    move = abandonment(
        message,
        outcome=Outcome.DEAD_LETTERED,
        state=MessageState.DEAD_LETTERED,
        dead_letter_reason="unreadable",
        dead_letter_description="line 1: ünexpected 'end'",
        properties=b'{"seen":true}',
    )
    assert await subject.store.move([move]) == [True]
    dead = await subject.store.read(queue.id, message.sequence_number)
    assert dead is not None
    assert (dead.state, dead.lock_token, dead.locked_until) == (MessageState.DEAD_LETTERED, None, None)
    assert (dead.dead_letter_reason, dead.dead_letter_description) == ("unreadable", "line 1: ünexpected 'end'")
    assert dead.envelope.properties == b'{"seen":true}'
    assert is_close(dead.dead_lettered_at, now)


async def test_a_dead_letter_that_was_only_looked_at_keeps_its_reason(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    dead = {"outcome": Outcome.DEAD_LETTERED, "state": MessageState.DEAD_LETTERED}
    await subject.store.move([abandonment(message, **dead, dead_letter_reason=LIMIT_REACHED)])
    before = await subject.store.read(queue.id, message.sequence_number)
    (seen,) = await subject.claim(queue, source=MessageState.DEAD_LETTERED)
    await subject.store.move([abandonment(seen, state=MessageState.DEAD_LETTERED, failures=0)])
    after = await subject.store.read(queue.id, message.sequence_number)
    assert before is not None
    assert after is not None
    assert after.dead_letter_reason == LIMIT_REACHED
    assert after.dead_lettered_at == before.dead_lettered_at


@pytest.mark.parametrize(("change", "kept"), [(None, b'{"a":1}'), (b'{"b":2}', b'{"b":2}'), (b"", b"")])
async def test_properties_change_only_when_asked(
    subject: Subject, queue: Queue, change: bytes | None, kept: bytes
) -> None:
    await subject.store.send([Draft(queue.id, Envelope("id", properties=b'{"a":1}'), b"", BodyKind.NONE)])
    (message,) = await subject.claim(queue)
    await subject.store.move([abandonment(message, properties=change)])
    (again,) = await subject.claim(queue)
    assert again.envelope.properties == kept


# ---- one effect ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.6")
async def test_of_two_endings_in_one_call_the_first_takes_effect(subject: Subject, queue: Queue) -> None:
    one, two = await subject.locked(queue), await subject.locked(queue)
    ending = completion(queue, one)
    assert await subject.store.remove([ending, ending]) == [True, False]
    delayed = abandonment(two, state=MessageState.SCHEDULED, delay=HOUR)
    assert await subject.store.move([delayed, abandonment(two)]) == [True, False]
    assert await subject.state(two) is MessageState.SCHEDULED
    assert len(await subject.archived(one.sequence_number, "outcome")) == 1


@pytest.mark.behaviour("S0.6", "S0.23", "S3.21")
async def test_of_many_endings_at_once_one_takes_effect(subject: Subject, stores: list[Store], queue: Queue) -> None:
    for _ in range(10):
        message = await subject.locked(queue)
        given_back = abandonment(message, state=MessageState.SCHEDULED, delay=HOUR)
        endings = [
            *(stores[place % 2].remove([completion(queue, message)]) for place in range(8)),
            *(stores[place % 2].move([given_back]) for place in range(8)),
        ]
        took = [effective for (effective,) in await asyncio.gather(*endings)]
        assert took.count(True) == 1
        completed = True in took[:8]
        assert await subject.state(message) is (None if completed else MessageState.SCHEDULED)
        (stone,) = await stores[1].tombstones([token(message)])
        assert stone is not None
        assert stone.outcome is (Outcome.COMPLETED if completed else Outcome.ABANDONED)


@pytest.mark.behaviour("S2.19")
async def test_endings_of_many_callers_are_told_apart(subject: Subject, queue: Queue) -> None:
    held = [await subject.locked(queue) for _ in range(20)]
    wrong = [stranger(message) for message in held]
    calls = [
        subject.store.remove([completion(queue, m), completion(queue, w)]) for m, w in zip(held, wrong, strict=True)
    ]
    assert await asyncio.gather(*calls) == [[True, False]] * 20


async def test_nothing_to_end_is_nothing_done(subject: Subject) -> None:
    store = subject.store
    assert await store.remove([]) == await store.move([]) == await store.release([]) == []
    assert await store.extend([]) == []
    assert await store.held([]) == []
    assert await store.tombstones([]) == []


# ---- what is remembered ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.13", "S3.21")
async def test_every_ending_is_remembered_by_its_token(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.move([abandonment(message)])
    (second,) = await subject.claim(queue)
    await subject.store.move([abandonment(second, state=MessageState.DEFERRED, outcome=Outcome.DEFERRED)])
    unknown = LockToken(message.sequence_number, bytes(16))
    now = await subject.store.now()
    first_stone, second_stone, none = await subject.store.tombstones([token(message), token(second), unknown])
    assert none is None
    for stone, one, outcome, state in [
        (first_stone, message, Outcome.ABANDONED, MessageState.AVAILABLE),
        (second_stone, second, Outcome.DEFERRED, MessageState.DEFERRED),
    ]:
        assert stone is not None
        assert stone == Tombstone(token(one), queue.id, outcome, state, stone.settled_at)
        assert is_close(stone.settled_at, now)


async def test_a_delivery_under_way_has_no_tombstone_but_is_held(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    assert await subject.store.tombstones([token(message)]) == [None]
    (held,) = await subject.store.held([token(message)])
    assert held is not None
    assert (held.token, held.queue_id, held.lock_generation) == (token(message), queue.id, 0)
    assert (held.home_state, held.delivery_count, held.failure_count) == (MessageState.AVAILABLE, 1, 0)
    assert held.is_live
    assert held.locked_until == message.locked_until
    await subject.pass_time(LOCK // SECOND + 1)
    (ended,) = await subject.store.held([token(message)])
    assert ended is not None
    assert not ended.is_live


async def test_a_token_that_is_gone_is_held_no_more(subject: Subject, queue: Queue) -> None:
    first, second = await subject.locked(queue), await subject.locked(queue)
    await subject.store.move([abandonment(first)])
    tokens = [token(message) for message in (first, second, stranger(second), first)]
    held = await subject.store.held(tokens)
    assert [one and one.token for one in held] == [None, token(second), None, None]


async def test_the_lock_of_an_ended_delivery_is_gone_from_the_message(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue, receiver_id="worker", lock_duration=MINUTE)
    await subject.store.move([abandonment(message)])
    after: Message | None = await subject.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert (after.lock_token, after.locked_until, after.receiver_id, after.lock_generation) == (None, None, None, 0)
