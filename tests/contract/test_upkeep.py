"""What background passes and administrators do to messages that nobody holds."""

import asyncio

import pytest

from app.broker.expire import retire
from app.broker.ports import Awoken, Edit, Redrive, Store, Unlocked, Withdrawal
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import BodyKind, Draft, Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import Outcome
from tests.contract.subject import Subject, abandonment, bodies, claim, draft, is_close, numbers, token
from tests.rooms import assemble


async def set_aside(subject: Subject, queue: Queue, state: MessageState, **fields: object) -> Unlocked:
    """A message that was received and put into this state."""
    message = await subject.locked(queue)
    await subject.store.move([abandonment(message, state=state, **fields)])
    return Unlocked(message.sequence_number, queue.id, state)


# ---- the schedule ----------------------------------------------------------------------------------------------------


def counted(awoken: Awoken) -> dict[int, int]:
    return {queue_id: len(numbers) for queue_id, numbers in awoken.by_queue.items()}


@pytest.mark.behaviour("S2.9")
async def test_due_messages_become_available_and_the_next_is_foretold(subject: Subject) -> None:
    one, two = await subject.queue(), await subject.queue()
    await subject.store.send([draft(one, b"a", delay=10 * SECOND), draft(one, b"b", delay=20 * SECOND)])
    await subject.store.send([draft(two, b"c", delay=15 * SECOND), draft(two, b"d", delay=MINUTE)])
    first = await subject.store.awaken(10)
    assert dict(first.by_queue) == {}
    assert is_close(first.rest, 10 * SECOND)
    await subject.pass_time(30)
    second = await subject.store.awaken(10)
    assert counted(second) == {one.id: 2, two.id: 1}
    assert is_close(second.rest, 30 * SECOND)
    assert bodies(await subject.claim(one)) == [b"a", b"b"]
    assert bodies(await subject.claim(two)) == [b"c"]


async def test_what_is_due_is_taken_in_batches_earliest_first(subject: Subject, queue: Queue) -> None:
    await subject.store.send([draft(queue, b"%d" % place, delay=(5 - place) * SECOND) for place in range(5)])
    await subject.pass_time(10)
    batch = await subject.store.awaken(2)
    assert (counted(batch), batch.rest) == ({queue.id: 2}, 0)
    assert bodies(await subject.claim(queue)) == [b"4", b"3"]


async def test_with_nothing_scheduled_there_is_nothing_to_wait_for(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"available")
    awoken = await subject.store.awaken(10)
    assert (dict(awoken.by_queue), awoken.rest) == ({}, None)


async def test_many_who_look_at_the_schedule_awaken_a_message_once(
    subject: Subject, stores: list[Store], queue: Queue
) -> None:
    await subject.store.send([draft(queue, delay=SECOND) for _ in range(30)])
    await subject.pass_time(2)
    looks = await asyncio.gather(*(stores[place % 2].awaken(20) for place in range(6)))
    assert sum(len(look.by_queue.get(queue.id, [])) for look in looks) == 30
    assert len(await subject.claim(queue)) == 30


# ---- time to live ----------------------------------------------------------------------------------------------------


async def test_overdue_is_what_has_outlived_itself_and_nobody_holds(subject: Subject, queue: Queue) -> None:
    short = {"ttl": 10 * SECOND}
    sent = await subject.send(queue, b"available", b"locked", b"deferred", b"dead", **short)
    _, locked, deferred, dead = sent
    await subject.send(queue, b"long", ttl=HOUR)
    await subject.send(queue, b"for ever")
    (scheduled,) = await subject.send(queue, b"scheduled", ttl=2 * SECOND, delay=5 * SECOND)
    taken = await subject.store.claim_these(claim(queue), [locked, deferred, dead])
    states = [MessageState.DEFERRED, MessageState.DEAD_LETTERED]
    await subject.store.move([abandonment(m, state=state) for m, state in zip(taken[1:], states, strict=True)])
    assert await subject.store.overdue(10) == []
    await subject.pass_time(11)
    found = await subject.store.overdue(10)
    assert set(found) == {
        Unlocked(sent[0], queue.id, MessageState.AVAILABLE),
        Unlocked(deferred, queue.id, MessageState.DEFERRED),
        Unlocked(scheduled, queue.id, MessageState.SCHEDULED),
    }
    assert len(await subject.store.overdue(2)) == 2


@pytest.mark.parametrize("outcome", [Outcome.EXPIRED, Outcome.PURGED, Outcome.CANCELLED])
async def test_a_withdrawn_message_is_in_the_archive_without_a_token(
    subject: Subject, queue: Queue, outcome: Outcome
) -> None:
    row = await set_aside(subject, queue, MessageState.DEFERRED)
    assert await subject.store.withdraw([Withdrawal(row, queue.name, outcome, DAY)]) == [True]
    assert await subject.store.read(queue.id, row.sequence_number) is None
    columns = ("queue", "outcome", "lock_token", "body", "settled_at", "remove_at")
    ((name, ended, secret, body, settled_at, remove_at),) = await subject.archived(row.sequence_number, *columns)
    assert (name, ended, secret, bytes(body)) == (queue.name, outcome.value, None, b"body")
    assert remove_at == settled_at + DAY


async def test_messages_withdrawn_together_go_each_their_way(subject: Subject, queue: Queue) -> None:
    other = await subject.queue(QueueSettings(archive_retention=0))
    mine = [await set_aside(subject, queue, state) for state in (MessageState.DEFERRED, MessageState.DEAD_LETTERED)]
    (theirs,) = await subject.send(other, b"body")
    gone = Unlocked(10**15, queue.id, MessageState.AVAILABLE)
    withdrawals = [
        Withdrawal(mine[0], queue.name, Outcome.PURGED, DAY),
        Withdrawal(gone, queue.name, Outcome.PURGED, DAY),
        Withdrawal(Unlocked(theirs, other.id, MessageState.AVAILABLE), other.name, Outcome.EXPIRED, 0),
        Withdrawal(mine[1], queue.name, Outcome.CANCELLED, DAY),
    ]
    assert await subject.store.withdraw(withdrawals) == [True, False, True, True]
    archived = await subject.execute("SELECT sequence_number, outcome FROM archive ORDER BY sequence_number")
    assert archived == [(mine[0].sequence_number, "purged"), (mine[1].sequence_number, "cancelled")]
    assert await subject.execute("SELECT sequence_number FROM message") == []
    assert await subject.store.withdraw([]) == []


async def test_a_buried_message_says_why(subject: Subject, queue: Queue) -> None:
    (number,) = await subject.send(queue, b"body", ttl=SECOND)
    row = Unlocked(number, queue.id, MessageState.AVAILABLE)
    await subject.pass_time(2)
    assert await subject.store.bury([row], "ttl_expired") == [True]
    dead = await subject.store.read(queue.id, number)
    assert dead is not None
    assert (dead.state, dead.dead_letter_reason) == (MessageState.DEAD_LETTERED, "ttl_expired")
    assert is_close(dead.dead_lettered_at, await subject.store.now())
    await subject.pass_time(10)
    assert await subject.store.overdue(10) == []
    assert numbers(await subject.claim(queue, source=MessageState.DEAD_LETTERED)) == [number]
    assert await subject.store.bury([], "nothing") == []


async def test_an_edit_outlives_a_sweeper_that_looked_before_it(subject: Subject, queue: Queue) -> None:
    """A process may stop between its look and what it does about it."""
    (number,) = await subject.send(queue, b"body", ttl=MINUTE)
    await subject.pass_time(61)
    overdue = await subject.store.overdue(10)
    seen = await subject.store.read(queue.id, number)
    assert seen is not None
    edited = await subject.store.edit(Edit(seen, delay=0))
    assert edited is not None
    assert await retire(assemble(subject.store, subject.clock), overdue) == 0
    after = await subject.store.read(queue.id, number)
    assert after is not None
    assert (after.state, after.expires_at) == (MessageState.AVAILABLE, edited.expires_at)


async def test_a_redrive_outlives_a_sweeper_that_looked_before_it(subject: Subject) -> None:
    queue = await subject.queue(QueueSettings(dead_letter_on_expiry=True))
    broker = assemble(subject.store, subject.clock)
    (number,) = await subject.send(queue, b"body", ttl=MINUTE)
    await subject.pass_time(61)
    overdue = await subject.store.overdue(10)
    assert await retire(broker, overdue) == 1
    dead = Unlocked(number, queue.id, MessageState.DEAD_LETTERED)
    assert await subject.store.redrive([Redrive(dead, queue.id)]) == [True]
    assert await retire(broker, overdue) == 0
    back = await subject.store.read(queue.id, number)
    assert back is not None
    assert (back.state, back.dead_letter_reason) == (MessageState.AVAILABLE, None)


# ---- redrive ---------------------------------------------------------------------------------------------------------


async def test_a_redriven_message_starts_anew_at_the_end(subject: Subject, queue: Queue) -> None:
    envelope = Envelope("id", properties=b'{"a":1}')
    await subject.store.send([Draft(queue.id, envelope, b"dead", BodyKind.JSON, ttl=10 * SECOND)])
    (message,) = await subject.claim(queue)
    dead = abandonment(message, state=MessageState.DEAD_LETTERED, last_failure="it broke", dead_letter_reason="why")
    await subject.store.move([dead])
    await subject.pass_time(20)
    await subject.send(queue, b"waits already")
    await subject.pass_time(1)
    row = Unlocked(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    assert await subject.store.redrive([Redrive(row, queue.id)]) == [True]
    fresh = await subject.store.read(queue.id, message.sequence_number)
    assert fresh is not None
    assert (fresh.state, fresh.delivery_count, fresh.failure_count) == (MessageState.AVAILABLE, 0, 0)
    assert (fresh.dead_letter_reason, fresh.dead_letter_description, fresh.dead_lettered_at) == (None, None, None)
    assert (fresh.last_failure, fresh.last_delivered_at, fresh.expires_at) == (None, None, None)
    assert (fresh.envelope, fresh.body) == (envelope, b"dead")
    assert is_close(fresh.available_at, await subject.store.now())
    assert bodies(await subject.claim(queue)) == [b"waits already", b"dead"]


async def test_dead_letters_may_go_to_another_queue(subject: Subject, queue: Queue) -> None:
    other = await subject.queue()
    rows = [await set_aside(subject, queue, MessageState.DEAD_LETTERED) for _ in range(3)]
    redrives = [Redrive(rows[0], other.id), Redrive(rows[1], queue.id), Redrive(rows[2], other.id)]
    assert await subject.store.redrive(redrives) == [True, True, True]
    assert numbers(await subject.claim(other)) == [rows[0].sequence_number, rows[2].sequence_number]
    assert numbers(await subject.claim(queue)) == [rows[1].sequence_number]
    assert await subject.store.redrive([]) == []


async def test_the_tombstones_of_earlier_deliveries_outlive_a_redrive(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.move([abandonment(message, state=MessageState.DEAD_LETTERED, outcome=Outcome.DEAD_LETTERED)])
    row = Unlocked(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    await subject.store.redrive([Redrive(row, queue.id)])
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    assert stone.outcome is Outcome.DEAD_LETTERED
