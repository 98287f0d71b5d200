"""A row that another transaction holds fails what is asked of that row, and nothing beside it."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import pytest

from app.broker.complete import complete
from app.broker.filters import Everything
from app.broker.give_back import give_back
from app.broker.ports import Attempt, Extension, Unlocked, Withdrawal
from app.broker.purge import Choice, purge
from app.broker.queues import change_queue, take_locks
from app.broker.receive import Wish, receive_and_delete
from app.broker.renew import renew
from app.broker.settling import settle
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import MessageBusy, RequestInProgress, StoreUnavailable
from app.domain.settlement import NO_EVIDENCE, Move, Outcome, Removal, Settled, token_of
from app.maintenance.expiry import expire_locks
from tests.clock import VirtualClock, through
from tests.contract.subject import (
    LOCK,
    MariaSubject,
    PostgresSubject,
    ServerSubject,
    abandonment,
    claim,
    completion,
    draft,
    expiry,
    token,
)
from tests.faults.waiting import until
from tests.rooms import assemble


@pytest.fixture(params=["postgresql", "mariadb"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[ServerSubject]:
    """A store whose rows another transaction can hold."""
    kinds = {"postgresql": (PostgresSubject, "postgres_url"), "mariadb": (MariaSubject, "mariadb_url")}
    kind, url = kinds[request.param]
    subject = kind(request.getfixturevalue(url))
    await subject.begin()
    yield subject
    await subject.end()


@pytest.fixture
async def queue(subject: ServerSubject) -> Queue:
    return await subject.queue()


SHORTEST_LOCK_WAIT = 3.0
"""Seconds: a statement that waits for a lock is answered no sooner."""


def row_of(number: int) -> str:
    """Lock one message."""
    return f"SELECT 1 FROM message WHERE sequence_number = {number} FOR UPDATE"


Verb: TypeAlias = Callable[[ServerSubject, Queue, list[Message]], Awaitable[list[bool]]]


async def remove(subject: ServerSubject, queue: Queue, messages: list[Message]) -> list[bool]:
    return await subject.store.remove([completion(queue, message) for message in messages])


async def move(subject: ServerSubject, queue: Queue, messages: list[Message]) -> list[bool]:
    return await subject.store.move([abandonment(message) for message in messages])


async def extend(subject: ServerSubject, queue: Queue, messages: list[Message]) -> list[bool]:
    extensions = [Extension(token(message), queue.id, MINUTE, NO_EVIDENCE) for message in messages]
    return [extended is not None for extended in await subject.store.extend(extensions)]


async def release(subject: ServerSubject, queue: Queue, messages: list[Message]) -> list[bool]:
    return await subject.store.release([expiry(message) for message in messages])


@pytest.mark.parametrize("verb", [remove, move, extend, release])
async def test_an_ending_of_a_held_row_has_no_effect_and_its_neighbours_have_theirs(
    subject: ServerSubject, queue: Queue, verb: Verb
) -> None:
    messages = [await subject.locked(queue) for _ in range(3)]
    if verb is release:
        await subject.pass_time(LOCK / SECOND)
    async with subject.holding(row_of(messages[1].sequence_number)):
        assert await verb(subject, queue, messages) == [True, False, True]
    assert await verb(subject, queue, messages[1:2]) == [True]


async def test_the_passes_leave_a_held_row_out_and_act_on_all_others(subject: ServerSubject, queue: Queue) -> None:
    held, free = [await subject.locked(queue) for _ in range(2)]
    held_late, free_late = await subject.send(queue, b"", b"", ttl=SECOND)
    await subject.pass_time(MINUTE / SECOND)
    async with subject.holding(row_of(held.sequence_number), row_of(held_late)):
        assert [one.token for one in await subject.store.ended_locks(10)] == [token(free)]
        overdue = await subject.store.overdue(10)
        assert [row.sequence_number for row in overdue] == [free_late]
        rows = [Unlocked(number, queue.id, MessageState.AVAILABLE) for number in (held_late, free_late)]
        assert await subject.store.bury(rows, "why") == [False, True]
        withdrawal = Withdrawal(rows[0], queue.name, Outcome.EXPIRED, HOUR)
        assert await subject.store.withdraw([withdrawal]) == [False]
        assert await subject.store.expire([withdrawal]) == [False]
    assert {one.token for one in await subject.store.ended_locks(10)} == {token(held), token(free)}
    assert await subject.store.withdraw([withdrawal]) == [True]


async def test_what_is_held_is_forgotten_later_and_everything_else_now(subject: ServerSubject, queue: Queue) -> None:
    for name in ("held", "free"):
        attempt = Attempt(name.encode().ljust(32), secrets.token_bytes(32), SECOND)
        await subject.store.send_once([draft(queue, message_id=name, duplicate_window=SECOND)], attempt)
        await subject.store.remove([completion(queue, await one(subject, queue), retention=0)])
    orphaned = await subject.queue()
    numbers = await subject.send(orphaned, b"", b"")
    await subject.store.queues.delete(orphaned)
    await subject.pass_time(2 * HOUR / SECOND)
    ((number,),) = await subject.execute("SELECT MIN(sequence_number) FROM settlement")
    async with subject.holding(
        row_of(numbers[0]),
        f"SELECT 1 FROM recent_id WHERE queue_id = {queue.id} AND message_id = 'held' FOR UPDATE",
        f"SELECT 1 FROM settlement WHERE sequence_number = {number} FOR UPDATE",
        f"SELECT 1 FROM attempt WHERE attempt_key = {subject.literal(b'held'.ljust(32))} FOR UPDATE",
    ):
        while await subject.store.forget(10):
            pass
        for table in ("message", "recent_id", "settlement", "attempt"):
            assert await subject.execute(f"SELECT COUNT(*) FROM {table}") == [(1,)], table
    while await subject.store.forget(10):
        pass
    assert await subject.execute("SELECT COUNT(*) FROM attempt") == [(0,)]


async def one(subject: ServerSubject, queue: Queue) -> Message:
    (message,) = await subject.claim(queue, 1)
    return message


async def test_a_sender_beside_one_that_has_to_wait_is_answered(subject: ServerSubject, queue: Queue) -> None:
    """Both leave in one batch; only the id that is about to be used by another transaction fails its sender."""
    other = await subject.queue()
    taken = draft(queue, message_id="taken", duplicate_window=HOUR)
    await subject.store.send([taken])
    async with subject.holding(f"SELECT 1 FROM recent_id WHERE queue_id = {queue.id} FOR UPDATE"):
        sends = (subject.store.send([taken]), subject.store.send([draft(other)]))
        waiting, answered = await through(subject.clock, asyncio.gather(*sends, return_exceptions=True))
    assert isinstance(waiting, StoreUnavailable)
    assert isinstance(answered, list)
    assert len(await subject.claim(other)) == 1


async def test_message_ids_that_a_stopped_send_holds_hold_no_other_send_up(
    subject: ServerSubject, queue: Queue
) -> None:
    """Clients of the stopped process try again elsewhere, beside senders of other ids and of none."""
    ids = [f"held-{place}" for place in range(10)]
    hold = [f"INSERT INTO recent_id VALUES ({queue.id}, '{one}', 0, 0, 0, 0)" for one in ids]
    ids += ["free-0", "free-1"]
    async with subject.holding(*hold):
        repeats = [subject.store.send([draft(queue, message_id=one, duplicate_window=HOUR)]) for one in ids]
        repeating = asyncio.ensure_future(asyncio.gather(*repeats, return_exceptions=True))
        async with asyncio.timeout(SHORTEST_LOCK_WAIT):
            await subject.send(queue, b"body")
            answers = await through(subject.clock, repeating)
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [True] * 10 + [False] * 2
    assert len(await subject.claim(queue)) == 3


async def test_a_send_waits_for_an_attempt_that_is_held_for_a_moment(subject: ServerSubject, queue: Queue) -> None:
    attempt = Attempt(secrets.token_bytes(32), b"f" * 32, HOUR)
    async with subject.holding(*subject.of_attempt(attempt.key)):
        sending = asyncio.ensure_future(subject.store.send_once([draft(queue)], attempt))
        await until(lambda: subject.clock.timers, "the send pauses before another try")
    assert not (await through(subject.clock, sending)).replayed


async def test_a_send_waits_for_a_message_id_that_is_held_for_a_moment(subject: ServerSubject, queue: Queue) -> None:
    clock = subject.clock
    for attempt in (None, Attempt(secrets.token_bytes(32), b"f" * 32, HOUR)):
        one = draft(queue, duplicate_window=HOUR)
        name = one.envelope.message_id
        async with subject.holding(f"INSERT INTO recent_id VALUES ({queue.id}, '{name}', 0, 0, 0, 0)"):
            send = subject.store.send([one]) if attempt is None else subject.store.send_once([one], attempt)
            sending = asyncio.ensure_future(send)
            await until(lambda: clock.timers, "the send pauses before another try")
        await through(clock, sending)
    assert len(await subject.claim(queue)) == 2


async def test_attempts_that_a_stopped_request_holds_hold_no_other_request_up(
    subject: ServerSubject, queue: Queue
) -> None:
    """Clients of the stopped process try again elsewhere. Requests without a key, and with other keys, are answered."""
    attempts = [Attempt(secrets.token_bytes(32), b"f" * 32, HOUR) for _ in range(12)]
    hold = [statement for attempt in attempts[:10] for statement in subject.of_attempt(attempt.key)]
    await subject.send(queue, b"body")
    async with subject.holding(*hold):
        sends = [subject.store.send_once([draft(queue)], attempt) for attempt in attempts[1::2]]
        claims = [subject.store.claim_once(claim(queue), attempt) for attempt in attempts[::2]]
        repeating = asyncio.ensure_future(asyncio.gather(*sends, *claims, return_exceptions=True))
        async with asyncio.timeout(SHORTEST_LOCK_WAIT):
            await subject.send(queue, b"body")
            answers = await through(subject.clock, repeating)
    assert [isinstance(answer, RequestInProgress) for answer in answers] == ([True] * 5 + [False]) * 2
    assert not (await subject.store.send_once([draft(queue)], attempts[0])).replayed


async def test_a_repeat_of_an_answered_attempt_waits_for_no_other_repeat(subject: ServerSubject, queue: Queue) -> None:
    sent, received = (Attempt(secrets.token_bytes(32), b"f" * 32, HOUR) for _ in range(2))
    first = await subject.store.send_once([draft(queue)], sent)
    taken = await subject.store.claim_once(claim(queue), received)
    async with subject.holding(subject.of_repeat(sent.key), subject.of_repeat(received.key)):
        again = await subject.store.send_once([draft(queue)], sent)
        assert (again.answer, again.replayed) == (first.answer, True)
        retaken = await subject.store.claim_once(claim(queue), received)
        assert ([token(one) for one in retaken.answer], retaken.replayed) == (
            [token(one) for one in taken.answer],
            True,
        )


async def test_a_change_of_a_queue_that_is_stopped_holds_no_send_up(subject: ServerSubject, queue: Queue) -> None:
    """The change holds the row of its queue from its UPDATE until its commit. Sends only read that row."""
    other = await subject.queue()
    async with subject.holding(f"UPDATE queue SET version = version + 1 WHERE id = {queue.id}"):
        async with asyncio.timeout(SHORTEST_LOCK_WAIT):
            for one in (queue, other):
                await subject.send(one, b"body")
                await subject.store.send_once([draft(one)], Attempt(secrets.token_bytes(32), b"f" * 32, HOUR))
    assert [len(await subject.claim(one)) for one in (queue, other)] == [2, 2]


# ---- through the verbs -----------------------------------------------------------------------------------------------


async def test_each_settlement_of_a_batch_has_its_own_answer(subject: ServerSubject, queue: Queue) -> None:
    clock = VirtualClock()
    broker = assemble(subject.store, clock)
    messages = [await subject.locked(queue) for _ in range(3)]
    asks = [complete(queue, token_of(message)) for message in messages]
    async with subject.holding(row_of(messages[1].sequence_number)):
        answers = await through(clock, settle(broker, queue, asks))
        with pytest.raises(MessageBusy):
            await through(clock, renew(broker, queue, token_of(messages[1])))
    assert [type(answer) for answer in answers] == [Settled, MessageBusy, Settled]
    (again,) = await settle(broker, queue, asks[1:2])
    assert isinstance(again, Settled)
    assert not again.replayed
    await broker.catalogue.close()


async def test_a_settlement_waits_for_a_row_that_is_held_for_a_moment(subject: ServerSubject, queue: Queue) -> None:
    clock = VirtualClock()
    broker = assemble(subject.store, clock)
    message = await subject.locked(queue)
    async with subject.holding(row_of(message.sequence_number)):
        settling = asyncio.create_task(settle(broker, queue, [complete(queue, token_of(message))]))
        await until(lambda: clock.timers, "the settlement pauses before another look")
    (answer,) = await through(clock, settling)
    assert isinstance(answer, Settled)
    await broker.catalogue.close()


async def test_receive_and_delete_waits_for_a_row_that_is_held_for_a_moment(
    subject: ServerSubject, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = assemble(subject.store, VirtualClock())
    (number,) = await subject.send(queue, b"body")
    remove = subject.store.remove

    async def remove_beside_another(removals: Sequence[Removal]) -> list[bool]:
        monkeypatch.undo()
        async with subject.holding(row_of(number)):
            return await remove(removals)

    monkeypatch.setattr(subject.store, "remove", remove_beside_another)
    (message,) = await receive_and_delete(broker, queue, Wish())
    assert message.sequence_number == number
    assert await subject.archived(number, "outcome") == [("received",)]
    await broker.catalogue.close()


async def test_what_is_given_back_waits_for_a_row_that_is_held_for_a_moment(
    subject: ServerSubject, queue: Queue
) -> None:
    clock = VirtualClock()
    broker = assemble(subject.store, clock)
    message = await subject.locked(queue)
    async with subject.holding(row_of(message.sequence_number)):
        giving = asyncio.create_task(give_back(broker, queue, [message]))
        await until(lambda: clock.timers or giving.done(), "the second look pauses")
    await through(clock, giving)
    (again,) = await subject.claim(queue, 1)
    assert (again.delivery_count, again.failure_count) == (2, 0)
    await broker.catalogue.close()


async def test_what_a_store_gives_back_waits_for_a_row_that_is_held_for_a_moment(
    subject: ServerSubject, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = await subject.send(queue, b"body")
    claiming: list[asyncio.Task[list[Message]]] = []

    def go(statement: str, _callers: int) -> None:
        if statement == "claim":
            claiming[0].cancel()

    monkeypatch.setattr(subject, "note", go)
    store = await subject.open_another()
    move, held = store.move, asyncio.Event()

    async def move_beside_another(moves: Sequence[Move]) -> list[bool]:
        monkeypatch.undo()
        async with subject.holding(row_of(number)):
            moved = await move(moves)
        held.set()
        return moved

    monkeypatch.setattr(store, "move", move_beside_another)
    claiming.append(asyncio.create_task(store.claim(claim(queue, 1))))
    await asyncio.wait(claiming)
    await held.wait()
    await through(subject.clock, store.close())
    (again,) = await subject.claim(queue, 1)
    assert (again.delivery_count, again.failure_count) == (2, 0)


async def test_the_sweep_and_a_change_of_a_queue_pass_a_held_row_by(subject: ServerSubject) -> None:
    broker = assemble(subject.store, VirtualClock())
    queue = await subject.queue(QueueSettings(max_delivery_count=5))
    held, free = [await subject.locked(queue) for _ in range(2)]
    async with subject.holding(row_of(held.sequence_number)):
        await change_queue(broker, queue, lambda _: QueueSettings(max_delivery_count=6))
        assert [await subject.state(message) for message in (held, free)] == [
            MessageState.LOCKED,
            MessageState.AVAILABLE,
        ]
        assert await take_locks(broker) == 0
    await expire_locks(broker)
    assert await subject.state(held) is MessageState.AVAILABLE
    await broker.catalogue.close()


async def test_a_purge_counts_what_it_removed(subject: ServerSubject, queue: Queue) -> None:
    broker = assemble(subject.store, VirtualClock())
    locked = [await subject.locked(queue) for _ in range(2)]
    available = await subject.send(queue, b"", b"")
    choice = Choice([MessageState.AVAILABLE, MessageState.LOCKED], Everything())
    async with subject.holding(row_of(locked[0].sequence_number), row_of(available[0])):
        assert await purge(broker, queue, choice) == 2
    assert await purge(broker, queue, choice) == 2
    await broker.catalogue.close()
