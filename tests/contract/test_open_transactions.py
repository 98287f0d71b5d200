"""Members of a transaction take effect together at its commit, on every store, or none does."""

import asyncio
import dataclasses
import secrets
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from app.broker.ports.settling import Extension
from app.broker.ports.store import Store
from app.broker.ports.transactions import CommitResult, SettlementsFailed
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Envelope, MessageHeaders, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import NewerQueue
from app.domain.settlement import (
    MAX_GENERATION,
    NEVER_RENEWED,
    NO_EXPIRED_GENERATION,
    Fence,
    Outcome,
    Settlement,
    fence_above,
)
from app.domain.transaction import (
    LOCK_MARGIN,
    MAX_MEMBERS,
    MAX_TRANSACTION_BYTES,
    OUTCOME_RETENTION,
    Intent,
    JoinedIntent,
    Transaction,
    TransactionKey,
    TransactionState,
    send_weight,
)
from app.domain.transaction_refusals import (
    MemberName,
    MessageInTransaction,
    RollbackCause,
    TooManyTransactions,
    TransactionEnded,
    TransactionFull,
    TransactionNotFound,
    TransactionRolledBack,
)
from tests.contract.store_fixture import (
    LOCK_DURATION,
    ServerFixture,
    StoreFixture,
    abandonment,
    bodies,
    completion,
    draft,
    expiry,
    token,
)

TIMEOUT = MINUTE
AFTER_TIMEOUT = TIMEOUT // SECOND


def new_key(principal: str = "client") -> TransactionKey:
    """The key of a transaction that no test has used."""
    return TransactionKey(secrets.token_hex(16), principal)


async def opened(store_fixture: StoreFixture, duration: int = TIMEOUT) -> TransactionKey:
    """Open a transaction."""
    key = new_key()
    await store_fixture.store.transactions.open(key, duration, 1000, 1000)
    return key


async def join(store_fixture: StoreFixture, key: TransactionKey, queue: Queue, *sent: bytes, **fields: Any) -> None:
    """Let sends join that differ only in their bodies."""
    await store_fixture.store.transactions.join_sends(
        key, [(queue.name, draft(queue, body, **fields)) for body in sent]
    )


async def intend(store_fixture: StoreFixture, key: TransactionKey, queue: Queue, *settlements: Settlement) -> list[Any]:
    """Let settlements join."""
    intents = [Intent(settlement) for settlement in settlements]
    return await store_fixture.store.transactions.join_settlements(key, queue.name, intents)


async def committed(store_fixture: StoreFixture, key: TransactionKey) -> Transaction:
    """Commit, and return the transaction."""
    result = await store_fixture.store.transactions.commit(key)
    assert result.transaction.state is TransactionState.COMMITTED
    return result.transaction


async def rolled_back(store_fixture: StoreFixture, key: TransactionKey) -> Transaction:
    """Commit what can only be rolled back, and return the transaction."""
    result = await store_fixture.store.transactions.commit(key)
    assert result.transaction.state is TransactionState.ROLLED_BACK
    assert result.unit is None
    return result.transaction


async def waiting(store_fixture: StoreFixture, queue: Queue) -> list[bytes]:
    """The bodies that a receiver gets, in order."""
    return bodies(await store_fixture.claim(queue))


async def members_of(store_fixture: StoreFixture, key: TransactionKey) -> list[MemberName]:
    """The names of all members."""
    return [member.name for member in await store_fixture.store.transactions.members(key.id, -1, MAX_MEMBERS)]


async def test_open_transactions_of_all_principals_are_listed_by_deadline(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    transactions = store_fixture.store.transactions
    late, early, ended = new_key("late"), new_key("early"), new_key()
    for key, duration in ((late, HOUR), (early, MINUTE), (ended, MINUTE)):
        await transactions.open(key, duration, 1000, 1000)
    await transactions.roll_back(ended, RollbackCause.REQUESTED)
    await join(store_fixture, late, queue, b"one", b"two")
    first, second = await transactions.list_open(10)
    assert (first.key, second.key) == (early, late)
    assert (first.transaction.member_count, second.transaction.member_count) == (0, 2)
    assert [one.key for one in await transactions.list_open(1)] == [early]


# ---- sends -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S1.10", "S1.25", "S1.28", "S1.29", "S1.83")
async def test_sends_are_stored_at_the_commit_in_the_order_of_joining(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    other = await store_fixture.queue()
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"one", b"two")
    await join(store_fixture, key, other, b"three")
    await join(store_fixture, key, queue, b"four")
    (before,) = await store_fixture.send(queue, b"sent alone")
    assert await waiting(store_fixture, queue) == [b"sent alone"]
    assert await store_fixture.store.queues.total(queue.id) == 1
    transaction = await committed(store_fixture, key)
    assert transaction.result is not None
    stored = [receipt.sequence_number for receipt in transaction.result.receipts]
    assert stored == sorted(stored)
    assert len(stored) == 4
    assert stored[0] > before
    assert await waiting(store_fixture, queue) == [b"one", b"two", b"four"]
    assert await waiting(store_fixture, other) == [b"three"]


@pytest.mark.behaviour("S1.31")
async def test_a_rollback_removes_what_was_sent(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"one")
    ended = await store_fixture.store.transactions.roll_back(key, RollbackCause.REQUESTED)
    assert (ended.state, ended.cause) == (TransactionState.ROLLED_BACK, RollbackCause.REQUESTED)
    assert await members_of(store_fixture, key) == []
    assert (await rolled_back(store_fixture, key)).cause is RollbackCause.REQUESTED
    assert await waiting(store_fixture, queue) == []


@pytest.mark.parametrize("commits", [True, False])
async def test_the_end_of_a_transaction_leaves_the_members_of_others(
    store_fixture: StoreFixture, queue: Queue, commits: bool
) -> None:
    key, other = await opened(store_fixture), await opened(store_fixture)
    for each in (key, other):
        await join(store_fixture, each, queue, b"one")
    if commits:
        await committed(store_fixture, key)
    else:
        await store_fixture.store.transactions.roll_back(key, RollbackCause.REQUESTED)
    assert len(await members_of(store_fixture, other)) == 1
    await committed(store_fixture, other)
    assert await waiting(store_fixture, queue) == [b"one"] * (2 if commits else 1)


async def test_a_send_keeps_what_its_sender_gave(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    sent = draft(queue, b"\x00\xff body", "the id", priority=7, ttl=HOUR)
    envelope = Envelope(sent.envelope.message_id, MessageHeaders(subject="häß"), "g", b'{"a":"\\u0000"}')
    sent = replace(sent, envelope=envelope)
    await store_fixture.store.transactions.join_sends(key, [(queue.name, sent)])
    await committed(store_fixture, key)
    (message,) = await store_fixture.claim(queue)
    assert (message.envelope, message.body, message.body_kind) == (sent.envelope, sent.body, sent.body_kind)
    assert message.priority == 7
    assert message.expires_at is not None


async def test_a_due_time_counts_from_the_joining(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"soon", delay=20 * SECOND)
    await join(store_fixture, key, queue, b"later", delay=90 * SECOND)
    await store_fixture.advance_time(30)
    result = (await committed(store_fixture, key)).result
    assert result is not None
    assert [receipt.state for receipt in result.receipts] == [MessageState.AVAILABLE, MessageState.SCHEDULED]
    await store_fixture.advance_time(61)
    await store_fixture.store.promote(10)
    assert await waiting(store_fixture, queue) == [b"soon", b"later"]


@pytest.mark.behaviour("S1.30")
async def test_a_send_that_has_expired_rolls_the_transaction_back(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    await join(store_fixture, key, queue, b"mortal", ttl=10 * SECOND, message_id="mortal")
    await store_fixture.advance_time(11)
    transaction = await rolled_back(store_fixture, key)
    assert transaction.cause is RollbackCause.MESSAGE_EXPIRED
    assert transaction.member == MemberName(1, queue.name, message_id="mortal")
    assert await store_fixture.state(message) is MessageState.LOCKED
    assert await store_fixture.store.queues.total(queue.id) == 1


async def test_a_time_to_live_begins_when_the_send_joins(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"mortal", ttl=90 * SECOND)
    await store_fixture.advance_time(30)
    await committed(store_fixture, key)
    await store_fixture.advance_time(61)
    assert await waiting(store_fixture, queue) == []


async def test_a_send_to_a_queue_that_was_deleted_rolls_the_transaction_back(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    other = await store_fixture.queue()
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"one")
    await join(store_fixture, key, other, b"two", message_id="lost")
    assert await store_fixture.store.queues.delete(other)
    transaction = await rolled_back(store_fixture, key)
    assert (transaction.cause, transaction.member) == (
        RollbackCause.QUEUE_GONE,
        MemberName(1, other.name, message_id="lost"),
    )
    assert await waiting(store_fixture, queue) == []


async def test_a_queue_that_needs_a_newer_server_leaves_the_transaction_open(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"one")
    await store_fixture.need_newer_server(queue)
    with pytest.raises(NewerQueue):
        await store_fixture.store.transactions.commit(key)
    assert (await store_fixture.store.transactions.find(key)).state is TransactionState.OPEN


async def test_message_ids_are_taken_at_the_commit(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(duplicate_detection_window=HOUR))
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"joined first", message_id="same")
    await join(store_fixture, key, queue, b"another", message_id="another")
    await store_fixture.send(queue, b"stored first", message_id="same", duplicate_window=HOUR)
    result = (await committed(store_fixture, key)).result
    assert result is not None
    assert [receipt.duplicate for receipt in result.receipts] == [True, False]
    assert await waiting(store_fixture, queue) == [b"stored first", b"another"]


async def test_a_rollback_takes_no_message_id(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(duplicate_detection_window=HOUR))
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"rolled back", message_id="same", duplicate_window=HOUR)
    await store_fixture.store.transactions.roll_back(key, RollbackCause.REQUESTED)
    await store_fixture.send(queue, b"stored", message_id="same", duplicate_window=HOUR)
    assert await waiting(store_fixture, queue) == [b"stored"]


async def test_a_send_enters_its_group_by_the_settings_of_the_commit(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    for body in (b"one", b"two"):
        sent = draft(queue, body)
        sent = replace(sent, envelope=replace(sent.envelope, group_id="g"))
        await store_fixture.store.transactions.join_sends(key, [(queue.name, sent)])
    assert await store_fixture.store.queues.change(queue, replace_settings(queue, group_in_flight=1))
    await committed(store_fixture, key)
    assert await waiting(store_fixture, queue) == [b"one"]
    assert (await store_fixture.store.queues.counts([queue.id]))[queue.id].blocked == 1


def replace_settings(queue: Queue, **changes: Any) -> QueueSettings:
    """The settings of the queue with these changes."""
    return dataclasses.replace(queue.settings, **changes)


@pytest.mark.behaviour("S1.24", "S1.28", "S1.29", "S1.31")
async def test_sends_that_wait_are_counted_as_uncommitted(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    ids = [queue.id, other.id]
    first, second = await opened(store_fixture), await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await store_fixture.send(queue, b"stored")
    await join(store_fixture, first, queue, b"one", b"two")
    await join(store_fixture, second, queue, b"three")
    await join(store_fixture, second, other, b"four")
    await intend(store_fixture, second, queue, completion(queue, message))
    counts = await store_fixture.store.queues.counts(ids)
    assert [counts[queue_id].uncommitted for queue_id in ids] == [3, 1]
    assert [counts[queue_id].total for queue_id in ids] == [2, 0]
    assert [await store_fixture.store.queues.total(queue_id) for queue_id in ids] == [2, 0]
    await committed(store_fixture, first)
    await store_fixture.store.transactions.roll_back(second, RollbackCause.REQUESTED)
    counts = await store_fixture.store.queues.counts(ids)
    assert [(counts[queue_id].uncommitted, counts[queue_id].total) for queue_id in ids] == [(0, 4), (0, 0)]


async def test_a_send_to_a_deleted_queue_is_not_counted_in_the_next_of_its_name(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"body")
    await store_fixture.store.queues.delete(queue)
    successor, _ = await store_fixture.store.queues.create(queue.name, QueueSettings())
    assert (await store_fixture.store.queues.counts([successor.id]))[successor.id].uncommitted == 0


# ---- settlements -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.8", "S1.11", "S1.45", "S1.60", "S1.62")
async def test_settlements_take_effect_at_the_commit(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    done, failed = await store_fixture.locked(queue), await store_fixture.locked(queue)
    results = await intend(store_fixture, key, queue, completion(queue, done), abandonment(failed))
    assert [type(result) for result in results] == [JoinedIntent, JoinedIntent]
    assert await store_fixture.state(done) is await store_fixture.state(failed) is MessageState.LOCKED
    assert await store_fixture.store.tombstones([token(done), token(failed)]) == [None, None]
    result = (await committed(store_fixture, key)).result
    assert result is not None
    assert [settled.outcome for settled in result.settled] == [Outcome.COMPLETED, Outcome.ABANDONED]
    assert await store_fixture.state(done) is None
    assert await store_fixture.archived(done.sequence_number, "outcome") == [("completed",)]
    assert await store_fixture.state(failed) is MessageState.AVAILABLE


@pytest.mark.behaviour("S0.2")
async def test_settlements_and_sends_of_several_queues_are_one(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    await join(store_fixture, key, other, b"result")
    await committed(store_fixture, key)
    assert await store_fixture.state(message) is None
    assert await waiting(store_fixture, other) == [b"result"]


async def test_a_rollback_leaves_locks_with_their_holders(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    await store_fixture.store.transactions.roll_back(key, RollbackCause.REQUESTED)
    (locked,) = await store_fixture.store.locked_messages([token(message)])
    assert locked is not None
    assert locked.is_live
    assert not locked.is_in_transaction
    assert await store_fixture.store.remove([completion(queue, message, fence=fence_above(NO_EXPIRED_GENERATION))])


async def test_the_lock_of_a_settlement_that_waits_outlasts_the_transaction(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    (locked,) = await store_fixture.store.locked_messages([token(message)])
    transaction = await store_fixture.store.transactions.find(key)
    assert locked is not None
    assert locked.locked_until >= transaction.expires_at + LOCK_MARGIN
    assert locked.is_in_transaction
    await store_fixture.advance_time(LOCK_DURATION // SECOND + 1)
    assert await store_fixture.store.expired_locks(10) == []
    await committed(store_fixture, key)


async def test_a_longer_lock_stays_as_long_as_it_is(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue, lock_duration=HOUR)
    await intend(store_fixture, key, queue, completion(queue, message))
    (locked,) = await store_fixture.store.locked_messages([token(message)])
    assert locked is not None
    assert locked.locked_until == message.locked_until


async def test_a_settlement_outside_has_no_effect_on_a_message_that_waits(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    (before,) = await store_fixture.store.locked_messages([token(message)])
    assert before is not None
    await intend(store_fixture, key, queue, completion(queue, message))
    read_before = Fence(NO_EXPIRED_GENERATION, before.lock_generation)
    assert await store_fixture.store.remove([completion(queue, message, fence=NEVER_RENEWED)]) == [False]
    assert await store_fixture.store.move([abandonment(message, fence=read_before)]) == [False]
    await committed(store_fixture, key)


async def test_evidence_of_an_earlier_renewal_frees_no_message_that_waits(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    (renewed,) = await store_fixture.store.extend(
        [Extension(token(message), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)]
    )
    assert renewed is not None
    await intend(store_fixture, key, queue, completion(queue, message))
    assert await store_fixture.store.release([expiry(message, fence=fence_above(renewed.generation))]) == [False]
    await committed(store_fixture, key)


async def test_a_settlement_joins_again_as_a_repeat(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    (again,) = await intend(store_fixture, key, queue, completion(queue, message))
    assert isinstance(again, JoinedIntent)
    assert again.replayed
    assert (await store_fixture.store.transactions.find(key)).member_count == 1


async def test_another_settlement_of_a_message_that_waits_is_refused(store_fixture: StoreFixture, queue: Queue) -> None:
    key, other = await opened(store_fixture), await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    (locked,) = await store_fixture.store.locked_messages([token(message)])
    assert locked is not None
    (another_verb,) = await intend(store_fixture, key, queue, abandonment(message))
    (elsewhere,) = await intend(store_fixture, other, queue, completion(queue, message))
    assert isinstance(another_verb, MessageInTransaction)
    assert isinstance(elsewhere, MessageInTransaction)
    (unchanged,) = await store_fixture.store.locked_messages([token(message)])
    assert unchanged is not None
    assert unchanged == replace(locked, read_at=unchanged.read_at)
    assert await members_of(store_fixture, other) == []


async def test_each_settlement_of_a_request_joins_or_not(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    lost = await store_fixture.locked(queue)
    assert await store_fixture.store.remove([completion(queue, lost)]) == [True]
    held = await store_fixture.locked(queue)
    first, second = await intend(store_fixture, key, queue, completion(queue, lost), completion(queue, held))
    assert first is None
    assert isinstance(second, JoinedIntent)
    assert await members_of(store_fixture, key) == [MemberName(0, queue.name, sequence_number=held.sequence_number)]


async def test_a_settlement_of_a_lock_that_has_ended_does_not_join(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    (renewed,) = await store_fixture.store.extend(
        [Extension(token(message), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)]
    )
    assert renewed is not None
    intent = Intent(completion(queue, message), renewed.generation)
    assert await store_fixture.store.transactions.join_settlements(key, queue.name, [intent]) == [None]
    await store_fixture.advance_time(LOCK_DURATION // SECOND + 1)
    assert await intend(store_fixture, key, queue, completion(queue, message)) == [None]


async def test_a_commit_without_a_lock_has_no_effect(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    kept, taken = await store_fixture.locked(queue), await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, kept), completion(queue, taken))
    await join(store_fixture, key, queue, b"never sent")
    assert await store_fixture.store.remove_locked(
        queue.id, [completion(queue, taken, fence=Fence(-2, MAX_GENERATION))]
    ) == [True]
    with pytest.raises(SettlementsFailed) as failed:
        await store_fixture.store.transactions.commit(key)
    assert failed.value.tokens == {token(taken)}
    assert await store_fixture.state(kept) is MessageState.LOCKED
    assert (await store_fixture.store.transactions.find(key)).state is TransactionState.OPEN
    ended = await store_fixture.store.transactions.roll_back(key, RollbackCause.LOCK_LOST, token(taken))
    assert ended.cause is RollbackCause.LOCK_LOST
    assert ended.member == MemberName(1, queue.name, sequence_number=taken.sequence_number)
    assert await waiting(store_fixture, queue) == []


async def test_a_commit_lets_the_next_messages_of_a_group_follow(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=1))
    for body in (b"one", b"two"):
        sent = draft(queue, body, is_in_group=True)
        await store_fixture.store.send([replace(sent, envelope=replace(sent.envelope, group_id="g"))])
    (first,) = await store_fixture.claim(queue)
    key = await opened(store_fixture)
    await intend(store_fixture, key, queue, completion(queue, first))
    assert await waiting(store_fixture, queue) == []
    await committed(store_fixture, key)
    assert await waiting(store_fixture, queue) == [b"two"]


# ---- the transaction -------------------------------------------------------------------------------------------------


async def test_a_new_transaction_is_open_and_empty(store_fixture: StoreFixture) -> None:
    key = new_key()
    transaction = await store_fixture.store.transactions.open(key, TIMEOUT, 1, 1)
    assert (transaction.state, transaction.member_count, transaction.member_bytes) == (TransactionState.OPEN, 0, 0)
    assert store_fixture.is_close(transaction.expires_at, transaction.opened_at + TIMEOUT)
    assert (transaction.result, transaction.cause, transaction.member) == (None, None, None)


async def test_the_number_of_open_transactions_is_limited(store_fixture: StoreFixture) -> None:
    transactions = store_fixture.store.transactions
    key = await opened(store_fixture)
    with pytest.raises(TooManyTransactions, match="This database has 1 open"):
        await transactions.open(new_key("another"), TIMEOUT, 1, 1)
    await transactions.roll_back(key, RollbackCause.REQUESTED)
    await transactions.open(new_key("another"), TIMEOUT, 1, 1)


async def test_one_principal_leaves_room_for_the_transactions_of_others(store_fixture: StoreFixture) -> None:
    transactions = store_fixture.store.transactions
    first, second = new_key("busy"), new_key("busy")
    await transactions.open(first, TIMEOUT, 1000, 2)
    await transactions.open(second, TIMEOUT, 1000, 2)
    with pytest.raises(TooManyTransactions, match="This client has reached its limit"):
        await transactions.open(new_key("busy"), TIMEOUT, 1000, 2)
    await transactions.open(new_key("quiet"), TIMEOUT, 1000, 2)
    await committed(store_fixture, first)
    await transactions.open(new_key("busy"), TIMEOUT, 1000, 2)


@pytest.mark.fence("principal")
async def test_another_principal_finds_no_transaction(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    foreign = TransactionKey(key.id, "stranger")
    transactions = store_fixture.store.transactions
    for attempt in (
        partial(transactions.find, foreign),
        partial(transactions.commit, foreign),
        partial(transactions.roll_back, foreign, RollbackCause.REQUESTED),
        partial(transactions.join_sends, foreign, [(queue.name, draft(queue))]),
    ):
        with pytest.raises(TransactionNotFound):
            await attempt()
    assert (await transactions.find(key)).state is TransactionState.OPEN


async def test_only_a_commit_reads_the_result_of_a_transaction(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"one")
    await committed(store_fixture, key)
    transactions = store_fixture.store.transactions
    found = await transactions.find(key)
    rolled_back = await transactions.roll_back(key, RollbackCause.REQUESTED)
    assert [one.state for one in (found, rolled_back)] == [TransactionState.COMMITTED] * 2
    assert [one.result for one in (found, rolled_back)] == [None, None], (
        "it may have megabytes, and nobody asked for it"
    )


async def test_a_second_commit_gets_the_same_result(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    await join(store_fixture, key, queue, b"one")
    first = await committed(store_fixture, key)
    again = await store_fixture.store.transactions.commit(key)
    assert again.unit is None
    assert again.transaction.result == first.result
    assert await waiting(store_fixture, queue) == [b"one"]
    ended = await store_fixture.store.transactions.roll_back(key, RollbackCause.REQUESTED)
    assert ended.state is TransactionState.COMMITTED


async def test_nothing_joins_a_transaction_that_has_ended(store_fixture: StoreFixture, queue: Queue) -> None:
    done, undone = await opened(store_fixture), await opened(store_fixture)
    await committed(store_fixture, done)
    await store_fixture.store.transactions.roll_back(undone, RollbackCause.REQUESTED)
    message = await store_fixture.locked(queue)
    for key, refusal in ((done, TransactionEnded), (undone, TransactionRolledBack)):
        with pytest.raises(refusal):
            await join(store_fixture, key, queue, b"late")
        with pytest.raises(refusal):
            await intend(store_fixture, key, queue, completion(queue, message))
        assert await members_of(store_fixture, key) == []


async def test_after_its_deadline_a_transaction_can_only_be_rolled_back(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"one")
    await store_fixture.advance_time(AFTER_TIMEOUT)
    with pytest.raises(TransactionRolledBack) as refused:
        await join(store_fixture, key, queue, b"late")
    assert refused.value.cause is RollbackCause.TIMEOUT
    assert (await rolled_back(store_fixture, key)).cause is RollbackCause.TIMEOUT
    assert await waiting(store_fixture, queue) == []


@pytest.mark.fence("time")
async def test_the_sweep_leaves_transactions_before_their_deadline(store_fixture: StoreFixture) -> None:
    key = await opened(store_fixture)
    assert not await store_fixture.store.transactions.roll_back_overdue()
    assert (await store_fixture.store.transactions.find(key)).state is TransactionState.OPEN


@pytest.mark.fence("state")
async def test_the_sweep_leaves_transactions_that_have_ended(store_fixture: StoreFixture) -> None:
    key = await opened(store_fixture)
    await committed(store_fixture, key)
    await store_fixture.advance_time(AFTER_TIMEOUT)
    assert not await store_fixture.store.transactions.roll_back_overdue()
    assert (await store_fixture.store.transactions.find(key)).state is TransactionState.COMMITTED


async def test_the_sweep_rolls_back_each_transaction_past_its_deadline(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    keys = [await opened(store_fixture) for _ in range(2)]
    for key in keys:
        await join(store_fixture, key, queue, b"one")
    await store_fixture.advance_time(AFTER_TIMEOUT)
    swept = [await store_fixture.store.transactions.roll_back_overdue() for _ in range(3)]
    assert swept == [True, True, False]
    for key in keys:
        assert (await store_fixture.store.transactions.find(key)).cause is RollbackCause.TIMEOUT
        assert await members_of(store_fixture, key) == []


async def test_an_outcome_is_kept_for_an_hour(store_fixture: StoreFixture) -> None:
    key = await opened(store_fixture)
    await committed(store_fixture, key)
    await store_fixture.advance_time(OUTCOME_RETENTION // SECOND - 60)
    await store_fixture.store.delete_expired(10)
    assert (await store_fixture.store.transactions.find(key)).state is TransactionState.COMMITTED
    await store_fixture.advance_time(60)
    await store_fixture.store.delete_expired(10)
    with pytest.raises(TransactionNotFound):
        await store_fixture.store.transactions.find(key)


async def test_outcomes_are_forgotten_in_batches(store_fixture: StoreFixture) -> None:
    for _ in range(3):
        await committed(store_fixture, await opened(store_fixture))
    await store_fixture.advance_time(OUTCOME_RETENTION // SECOND)
    left = []
    for _ in range(2):
        await store_fixture.store.delete_expired(2)
        left.append(len(await store_fixture.execute("SELECT id FROM message_transaction")))
    assert left == [1, 0]


async def test_too_many_members_change_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    await store_fixture.execute(f"UPDATE message_transaction SET member_count = {MAX_MEMBERS - 1}")
    with pytest.raises(TransactionFull):
        await join(store_fixture, key, queue, b"one", b"two")
    message = await store_fixture.locked(queue)
    await join(store_fixture, key, queue, b"the last")
    with pytest.raises(TransactionFull):
        await intend(store_fixture, key, queue, completion(queue, message))
    (locked,) = await store_fixture.store.locked_messages([token(message)])
    assert locked is not None
    assert locked.lock_generation == 0
    assert len(await store_fixture.store.transactions.members(key.id, -1, MAX_MEMBERS)) == 1


async def test_too_many_bytes_change_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    await store_fixture.execute(f"UPDATE message_transaction SET member_bytes = {MAX_TRANSACTION_BYTES - 3000}")
    with pytest.raises(TransactionFull):
        await join(store_fixture, key, queue, bytes(1000))
    await join(store_fixture, key, queue, b"fits")


async def test_a_transaction_counts_its_own_members(store_fixture: StoreFixture, queue: Queue) -> None:
    key, other = await opened(store_fixture), await opened(store_fixture)
    sent = draft(queue, bytes(1000))
    for _ in range(2):
        await store_fixture.store.transactions.join_sends(key, [(queue.name, sent)])
    found = [await store_fixture.store.transactions.find(each) for each in (key, other)]
    assert [each.member_count for each in found] == [2, 0]
    assert [each.member_bytes for each in found] == [2 * send_weight(sent), 0]


async def test_members_are_listed_in_the_order_of_joining(store_fixture: StoreFixture, queue: Queue) -> None:
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await join(store_fixture, key, queue, b"one", message_id="one")
    await intend(store_fixture, key, queue, abandonment(message))
    await join(store_fixture, key, queue, b"two", message_id="two")
    expected = [
        MemberName(0, queue.name, message_id="one"),
        MemberName(1, queue.name, sequence_number=message.sequence_number),
        MemberName(2, queue.name, message_id="two"),
    ]
    assert await members_of(store_fixture, key) == expected
    (second,) = await store_fixture.store.transactions.members(key.id, 0, 1)
    assert (second.name, second.outcome) == (expected[1], Outcome.ABANDONED)


# ---- races -----------------------------------------------------------------------------------------------------------


async def test_either_a_commit_or_a_rollback_takes_effect(stores: list[Store], store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    for _ in range(5):
        key = await opened(store_fixture)
        await join(store_fixture, key, queue, b"one")
        one, other = stores
        result, ended, again = await asyncio.gather(
            one.transactions.commit(key),
            other.transactions.roll_back(key, RollbackCause.REQUESTED),
            other.transactions.commit(key),
        )
        assert isinstance(result, CommitResult)
        assert result.transaction.state is ended.state is again.transaction.state
        is_committed = ended.state is TransactionState.COMMITTED
        assert len(await waiting(store_fixture, queue)) == is_committed
        assert sum(one.unit is not None for one in (result, again)) == is_committed


async def test_one_of_two_transactions_gets_a_settlement(stores: list[Store], store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    for _ in range(5):
        keys = [await opened(store_fixture), await opened(store_fixture)]
        message = await store_fixture.locked(queue)
        intents = [Intent(completion(queue, message))]
        results = await asyncio.gather(
            *(
                store.transactions.join_settlements(key, queue.name, intents)
                for store, key in zip(stores, keys, strict=True)
            )
        )
        assert sum(isinstance(result, JoinedIntent) for (result,) in results) == 1


async def test_a_row_that_another_transaction_holds_leaves_the_transaction_open(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    if not isinstance(store_fixture, ServerFixture):
        return
    key = await opened(store_fixture)
    message = await store_fixture.locked(queue)
    await intend(store_fixture, key, queue, completion(queue, message))
    held = f"SELECT 1 FROM message WHERE sequence_number = {message.sequence_number} FOR UPDATE"
    async with store_fixture.open_transaction(held):
        with pytest.raises(SettlementsFailed):
            await store_fixture.store.transactions.commit(key)
    await committed(store_fixture, key)


async def test_a_commit_waits_for_a_join_that_is_under_way(store_fixture: StoreFixture, queue: Queue) -> None:
    if not isinstance(store_fixture, ServerFixture):
        return
    key = await opened(store_fixture)
    await join(store_fixture, key, queue, b"one")
    held = f"SELECT 1 FROM message_transaction WHERE id = '{key.id}' FOR UPDATE"
    later = (
        f"UPDATE transaction_member SET body = {store_fixture.literal(b'changed')} WHERE transaction_id = '{key.id}'"
    )
    async with store_fixture.open_transaction(held, later, commits=True):
        commit = asyncio.create_task(store_fixture.store.transactions.commit(key))
        await store_fixture.wait_until_blocked()
    await commit
    assert await waiting(store_fixture, queue) == [b"changed"]
