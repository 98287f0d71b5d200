"""A row that another transaction has locked fails the request for that row, and no other request."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import pytest

from app.broker.administration.purge import purge
from app.broker.administration.queues import change_queue
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import UnlockedRow, Withdrawal
from app.broker.ports.settling import Extension
from app.broker.receiving.receive import ReceiveMode, ReceiveRequest, receive
from app.broker.settling.outcomes import complete
from app.broker.settling.renew import renew
from app.broker.settling.revoke_locks import revoke_locks
from app.broker.settling.settle import release_undelivered, settle
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import MessageBusy, RequestInProgress, StoreUnavailable
from app.domain.settlement import NO_EXPIRED_GENERATION, Outcome, Removal, Settled, token_of
from app.maintenance.expiry import expire_locks
from app.store.open import open_store
from tests.brokers import ChangedStore, build_broker
from tests.changed_stores import LONG_LOCK_WAIT, open_patient
from tests.contract.store_fixture import (
    LOCK_DURATION,
    MariadbFixture,
    PostgresqlFixture,
    ServerFixture,
    StoreOpener,
    abandonment,
    claim,
    completion,
    draft,
    expiry,
    open_as_server,
    token,
)
from tests.faults.polling import wait_until
from tests.virtual_clock import VirtualClock, run_advancing, run_ready_tasks


@pytest.fixture(params=["postgresql", "mariadb"])
async def store_fixture(request: pytest.FixtureRequest, opener: StoreOpener) -> AsyncIterator[ServerFixture]:
    """A store whose rows another transaction can lock."""
    kinds = {"postgresql": (PostgresqlFixture, "postgres_url"), "mariadb": (MariadbFixture, "mariadb_url")}
    kind, url = kinds[request.param]
    store_fixture = kind(request.getfixturevalue(url), opener)
    await store_fixture.open()
    yield store_fixture
    await store_fixture.close()


@pytest.fixture
def opener() -> StoreOpener:
    """Opens the store. A test may choose another one."""
    return open_as_server


patiently = pytest.mark.parametrize("opener", [open_patient], ids=[""])
"""A statement that waits for a lock waits until after `WITHOUT_WAIT`."""


@pytest.fixture
async def queue(store_fixture: ServerFixture) -> Queue:
    return await store_fixture.queue()


WITHOUT_WAIT = 10.0
"""Seconds in which even a slow machine answers requests that do not wait for a lock."""
assert WITHOUT_WAIT < LONG_LOCK_WAIT


def lock_row(number: int) -> str:
    """Lock one message."""
    return f"SELECT 1 FROM message WHERE sequence_number = {number} FOR UPDATE"


Operation: TypeAlias = Callable[[ServerFixture, Queue, list[Message]], Awaitable[list[bool]]]


async def remove(store_fixture: ServerFixture, queue: Queue, messages: list[Message]) -> list[bool]:
    return await store_fixture.store.remove([completion(queue, message) for message in messages])


async def move(store_fixture: ServerFixture, queue: Queue, messages: list[Message]) -> list[bool]:
    return await store_fixture.store.move([abandonment(message) for message in messages])


async def extend(store_fixture: ServerFixture, queue: Queue, messages: list[Message]) -> list[bool]:
    extensions = [Extension(token(message), queue.id, MINUTE, NO_EXPIRED_GENERATION) for message in messages]
    return [extended is not None for extended in await store_fixture.store.extend(extensions)]


async def release(store_fixture: ServerFixture, queue: Queue, messages: list[Message]) -> list[bool]:
    return await store_fixture.store.release([expiry(message) for message in messages])


@pytest.mark.parametrize("operation", [remove, move, extend, release])
async def test_a_settlement_of_a_locked_row_has_no_effect_and_all_others_do(
    store_fixture: ServerFixture, queue: Queue, operation: Operation
) -> None:
    messages = [await store_fixture.locked(queue) for _ in range(3)]
    if operation is release:
        await store_fixture.advance_time(LOCK_DURATION / SECOND)
    async with store_fixture.open_transaction(lock_row(messages[1].sequence_number)):
        assert await operation(store_fixture, queue, messages) == [True, False, True]
    assert await operation(store_fixture, queue, messages[1:2]) == [True]


async def test_background_loops_skip_a_locked_row_and_process_all_others(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    locked, free = [await store_fixture.locked(queue) for _ in range(2)]
    held_late, free_late = await store_fixture.send(queue, b"", b"", ttl=SECOND)
    await store_fixture.advance_time(MINUTE / SECOND)
    async with store_fixture.open_transaction(lock_row(locked.sequence_number), lock_row(held_late)):
        assert [expired.token for expired in await store_fixture.store.expired_locks(10)] == [token(free)]
        overdue = await store_fixture.store.expired_messages(10)
        assert [row.sequence_number for row in overdue] == [free_late]
        rows = [UnlockedRow(number, queue.id, MessageState.AVAILABLE) for number in (held_late, free_late)]
        assert await store_fixture.store.dead_letter(rows, "why") == [False, True]
        withdrawal = Withdrawal(rows[0], queue.name, Outcome.EXPIRED, HOUR)
        assert await store_fixture.store.withdraw([withdrawal]) == [False]
        assert await store_fixture.store.expire([withdrawal]) == [False]
    assert {expired.token for expired in await store_fixture.store.expired_locks(10)} == {token(locked), token(free)}
    assert await store_fixture.store.withdraw([withdrawal]) == [True]


async def test_a_restore_leaves_out_what_another_transaction_restores(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    numbers = await store_fixture.send(queue, b"1", b"2")
    rows = [UnlockedRow(number, queue.id, MessageState.AVAILABLE) for number in numbers]
    withdrawals = [Withdrawal(row, queue.name, Outcome.PURGED, HOUR) for row in rows]
    assert await store_fixture.store.withdraw(withdrawals) == [True, True]
    locking = f"SELECT 1 FROM restorable WHERE sequence_number = {numbers[0]} FOR UPDATE"
    async with store_fixture.open_transaction(locking):
        assert len(await store_fixture.store.restore(queue, numbers)) == 1
    assert len(await store_fixture.store.restore(queue, numbers)) == 1


async def test_a_locked_row_is_deleted_later_and_all_others_now(store_fixture: ServerFixture, queue: Queue) -> None:
    for name in ("locked", "free"):
        attempt = Attempt(name.encode().ljust(32), secrets.token_bytes(32), SECOND)
        await store_fixture.store.send_or_replay([draft(queue, message_id=name, duplicate_window=SECOND)], attempt)
        await store_fixture.store.remove([completion(queue, await receive_one(store_fixture, queue), retention=0)])
    orphaned = await store_fixture.queue()
    numbers = await store_fixture.send(orphaned, b"", b"")
    await store_fixture.store.queues.delete(orphaned)
    await store_fixture.advance_time(2 * HOUR / SECOND)
    ((number,),) = await store_fixture.execute("SELECT MIN(sequence_number) FROM settlement")
    async with store_fixture.open_transaction(
        lock_row(numbers[0]),
        f"SELECT 1 FROM recent_id WHERE queue_id = {queue.id} AND message_id = 'locked' FOR UPDATE",
        f"SELECT 1 FROM settlement WHERE sequence_number = {number} FOR UPDATE",
        f"SELECT 1 FROM attempt WHERE attempt_key = {store_fixture.literal(b'locked'.ljust(32))} FOR UPDATE",
    ):
        while await store_fixture.store.delete_expired(10):
            pass
        for table in ("message", "recent_id", "settlement", "attempt"):
            assert await store_fixture.execute(f"SELECT COUNT(*) FROM {table}") == [(1,)], table
    while await store_fixture.store.delete_expired(10):
        pass
    assert await store_fixture.execute("SELECT COUNT(*) FROM attempt") == [(0,)]


async def receive_one(store_fixture: ServerFixture, queue: Queue) -> Message:
    (message,) = await store_fixture.claim(queue, 1)
    return message


async def test_a_sender_beside_a_waiting_one_is_answered(store_fixture: ServerFixture, queue: Queue) -> None:
    """Both share one batch. Only the id that another transaction is about to use fails its sender."""
    other = await store_fixture.queue()
    taken = draft(queue, message_id="taken", duplicate_window=HOUR)
    await store_fixture.store.send([taken])
    async with store_fixture.open_transaction(f"SELECT 1 FROM recent_id WHERE queue_id = {queue.id} FOR UPDATE"):
        sends = (store_fixture.store.send([taken]), store_fixture.store.send([draft(other)]))
        waiting, answered = await run_advancing(store_fixture.clock, asyncio.gather(*sends, return_exceptions=True))
    assert isinstance(waiting, StoreUnavailable)
    assert isinstance(answered, list)
    assert len(await store_fixture.claim(other)) == 1


@patiently
async def test_message_ids_locked_by_a_stopped_send_delay_no_other_send(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    """Clients of the stopped process retry elsewhere, beside senders of other ids and of none."""
    ids = [f"locked-{index}" for index in range(10)]
    locking = [f"INSERT INTO recent_id VALUES ({queue.id}, '{message_id}', 0, 0, 0, 0)" for message_id in ids]
    ids += ["free-0", "free-1"]
    async with store_fixture.open_transaction(*locking):
        repeats = [
            store_fixture.store.send([draft(queue, message_id=message_id, duplicate_window=HOUR)]) for message_id in ids
        ]
        repeating = asyncio.ensure_future(asyncio.gather(*repeats, return_exceptions=True))
        async with asyncio.timeout(WITHOUT_WAIT):
            await store_fixture.send(queue, b"body")
            answers = await run_advancing(store_fixture.clock, repeating)
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [True] * 10 + [False] * 2
    assert len(await store_fixture.claim(queue)) == 3


async def test_a_send_waits_for_an_attempt_that_is_locked_for_a_moment(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    attempt = Attempt(secrets.token_bytes(32), b"f" * 32, HOUR)
    async with store_fixture.open_transaction(*store_fixture.attempt_statements(attempt.key)):
        sending = asyncio.ensure_future(store_fixture.store.send_or_replay([draft(queue)], attempt))
        await wait_until(lambda: store_fixture.clock.timers, "the send pauses before another try")
    assert not (await run_advancing(store_fixture.clock, sending)).replayed


async def test_a_send_waits_for_a_message_id_that_is_locked_for_a_moment(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    clock = store_fixture.clock
    for attempt in (None, Attempt(secrets.token_bytes(32), b"f" * 32, HOUR)):
        one = draft(queue, duplicate_window=HOUR)
        name = one.envelope.message_id
        async with store_fixture.open_transaction(f"INSERT INTO recent_id VALUES ({queue.id}, '{name}', 0, 0, 0, 0)"):
            send = (
                store_fixture.store.send([one])
                if attempt is None
                else store_fixture.store.send_or_replay([one], attempt)
            )
            sending = asyncio.ensure_future(send)
            await wait_until(lambda: clock.timers, "the send pauses before another try")
        await run_advancing(clock, sending)
    assert len(await store_fixture.claim(queue)) == 2


@patiently
async def test_attempts_locked_by_a_stopped_request_delay_no_other_request(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    """Clients of the stopped process retry elsewhere. Requests without a key, and with other keys, are answered."""
    attempts = [Attempt(secrets.token_bytes(32), b"f" * 32, HOUR) for _ in range(12)]
    locking = [statement for attempt in attempts[:10] for statement in store_fixture.attempt_statements(attempt.key)]
    await store_fixture.send(queue, b"body")
    async with store_fixture.open_transaction(*locking):
        sends = [store_fixture.store.send_or_replay([draft(queue)], attempt) for attempt in attempts[1::2]]
        claims = [store_fixture.store.claim_or_replay(claim(queue), attempt) for attempt in attempts[::2]]
        repeating = asyncio.ensure_future(asyncio.gather(*sends, *claims, return_exceptions=True))
        async with asyncio.timeout(WITHOUT_WAIT):
            await store_fixture.send(queue, b"body")
            answers = await run_advancing(store_fixture.clock, repeating)
    assert [isinstance(answer, RequestInProgress) for answer in answers] == ([True] * 5 + [False]) * 2
    assert not (await store_fixture.store.send_or_replay([draft(queue)], attempts[0])).replayed


async def test_a_repeat_of_an_answered_attempt_waits_for_no_other_repeat(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    sent, received = (Attempt(secrets.token_bytes(32), b"f" * 32, HOUR) for _ in range(2))
    first = await store_fixture.store.send_or_replay([draft(queue)], sent)
    taken = await store_fixture.store.claim_or_replay(claim(queue), received)
    async with store_fixture.open_transaction(
        store_fixture.repeat_statement(sent.key), store_fixture.repeat_statement(received.key)
    ):
        again = await store_fixture.store.send_or_replay([draft(queue)], sent)
        assert (again.result, again.replayed) == (first.result, True)
        retaken = await store_fixture.store.claim_or_replay(claim(queue), received)
        assert ([token(message) for message in retaken.result], retaken.replayed) == (
            [token(message) for message in taken.result],
            True,
        )


@patiently
async def test_a_stopped_change_of_a_queue_delays_no_send(store_fixture: ServerFixture, queue: Queue) -> None:
    """The change locks the row of its queue from its UPDATE until its commit. Sends only read that row."""
    other = await store_fixture.queue()
    async with store_fixture.open_transaction(f"UPDATE queue SET version = version + 1 WHERE id = {queue.id}"):
        async with asyncio.timeout(WITHOUT_WAIT):
            for one in (queue, other):
                await store_fixture.send(one, b"body")
                await store_fixture.store.send_or_replay(
                    [draft(one)], Attempt(secrets.token_bytes(32), b"f" * 32, HOUR)
                )
    assert [len(await store_fixture.claim(source)) for source in (queue, other)] == [2, 2]


# ---- verbs -----------------------------------------------------------------------------------------------------------


async def test_each_settlement_of_a_batch_has_its_own_answer(store_fixture: ServerFixture, queue: Queue) -> None:
    clock = VirtualClock()
    broker = build_broker(store_fixture.store, clock)
    messages = [await store_fixture.locked(queue) for _ in range(3)]
    settlements = [complete(queue, token_of(message)) for message in messages]
    async with store_fixture.open_transaction(lock_row(messages[1].sequence_number)):
        answers = await run_advancing(clock, settle(broker.settling, queue, settlements))
        with pytest.raises(MessageBusy):
            await run_advancing(clock, renew(broker.settling, queue, token_of(messages[1])))
    assert [type(answer) for answer in answers] == [Settled, MessageBusy, Settled]
    (again,) = await settle(broker.settling, queue, settlements[1:2])
    assert isinstance(again, Settled)
    assert not again.replayed
    await broker.queue_cache.close()


async def test_a_settlement_waits_for_a_row_that_is_locked_for_a_moment(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    clock = VirtualClock()
    broker = build_broker(store_fixture.store, clock)
    message = await store_fixture.locked(queue)
    async with store_fixture.open_transaction(lock_row(message.sequence_number)):
        settling = asyncio.create_task(settle(broker.settling, queue, [complete(queue, token_of(message))]))
        await wait_until(lambda: clock.timers, "the settlement pauses before another try")
    (answer,) = await run_advancing(clock, settling)
    assert isinstance(answer, Settled)
    await broker.queue_cache.close()


async def test_receive_and_delete_waits_for_a_row_that_is_locked_for_a_moment(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    (number,) = await store_fixture.send(queue, b"body")
    locks = [lock_row(number)]

    async def remove_while_locked(removals: Sequence[Removal]) -> list[bool]:
        if not locks:
            return await store_fixture.store.remove(removals)
        async with store_fixture.open_transaction(locks.pop()):
            return await store_fixture.store.remove(removals)

    store: Any = ChangedStore(store_fixture.store, remove=remove_while_locked)
    broker = build_broker(store, VirtualClock())
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest(mode=ReceiveMode.RECEIVE_AND_DELETE))).result
    assert message.sequence_number == number
    assert await store_fixture.archived(number, "outcome") == [("received",)]
    await broker.queue_cache.close()


async def test_the_release_of_undelivered_messages_waits_for_a_locked_row(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    clock = VirtualClock()
    broker = build_broker(store_fixture.store, clock)
    message = await store_fixture.locked(queue)
    async with store_fixture.open_transaction(lock_row(message.sequence_number)):
        releasing = asyncio.create_task(release_undelivered(broker.settling, queue, [message]))
        await wait_until(lambda: clock.timers or releasing.done(), "the second try pauses")
    await run_advancing(clock, releasing)
    (again,) = await store_fixture.claim(queue, 1)
    assert (again.delivery_count, again.failure_count) == (1, 0)
    await broker.queue_cache.close()


async def test_the_release_of_orphaned_messages_waits_for_a_locked_row(
    store_fixture: ServerFixture, queue: Queue
) -> None:
    (number,) = await store_fixture.send(queue, b"body")
    store: Any = await open_store(store_fixture._url, store_fixture.clock, connections=1)
    cancelled, claimed, row_locked = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold_after_claim(_session: Any) -> None:
        claimed.set()
        await row_locked.wait()

    # The only connection serves, in turn, the first holder, the claim, the second holder and the release.
    async with asyncio.TaskGroup() as holders:
        holders.create_task(store._pool.run(lambda _session: cancelled.wait()))
        await run_ready_tasks()
        claiming = asyncio.create_task(store.claim(claim(queue, 1)))
        await run_ready_tasks()
        holders.create_task(store._pool.run(hold_after_claim))
        await run_ready_tasks()
        claiming.cancel()
        await asyncio.wait([claiming])
        cancelled.set()
        await claimed.wait()
        async with store_fixture.open_transaction(lock_row(number)):
            row_locked.set()
            await wait_until(lambda: store_fixture.clock.timers, "the second try of the release pauses")
    await run_advancing(store_fixture.clock, store.close())
    (again,) = await store_fixture.claim(queue, 1)
    assert (again.delivery_count, again.failure_count) == (1, 0)


async def test_the_sweep_and_a_change_of_a_queue_skip_a_locked_row(store_fixture: ServerFixture) -> None:
    broker = build_broker(store_fixture.store, VirtualClock())
    queue = await store_fixture.queue(QueueSettings(max_delivery_count=5))
    locked, free = [await store_fixture.locked(queue) for _ in range(2)]
    async with store_fixture.open_transaction(lock_row(locked.sequence_number)):
        await change_queue(broker.administration, queue, lambda _: QueueSettings(max_delivery_count=6))
        assert [await store_fixture.state(message) for message in (locked, free)] == [
            MessageState.LOCKED,
            MessageState.AVAILABLE,
        ]
        assert await revoke_locks(broker.settling) == 0
    await expire_locks(broker.settling)
    assert await store_fixture.state(locked) is MessageState.AVAILABLE
    await broker.queue_cache.close()


async def test_a_purge_counts_what_it_removed(store_fixture: ServerFixture, queue: Queue) -> None:
    broker = build_broker(store_fixture.store, VirtualClock())
    locked = [await store_fixture.locked(queue) for _ in range(2)]
    available = await store_fixture.send(queue, b"", b"")
    selection = MessageSelection([MessageState.AVAILABLE, MessageState.LOCKED], MatchAll())
    async with store_fixture.open_transaction(lock_row(locked[0].sequence_number), lock_row(available[0])):
        assert await purge(broker.administration, queue, selection) == 2
    assert await purge(broker.administration, queue, selection) == 2
    await broker.queue_cache.close()
