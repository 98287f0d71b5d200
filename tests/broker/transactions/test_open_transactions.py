"""What happens to the messages of an open transaction between two steps of a request."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from app.broker.ports.transactions import SettlementsFailed
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon, complete
from app.broker.settling.renew import renew
from app.broker.settling.settle import _FIRST_PAUSE_SECONDS, MAX_TRIES, settle_one
from app.broker.transactions.join import join_sends, join_settlements
from app.broker.transactions.open_transactions import commit, open_transaction, roll_back
from app.domain.instant import MINUTE, SECOND
from app.domain.message import Envelope
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import AlreadySettled, LockLost, MessageBusy
from app.domain.sending import NewMessage
from app.domain.settlement import ANY_LOCK, MAX_GENERATION, NO_EXPIRED_GENERATION, LockToken, token_of
from app.domain.transaction import JoinedIntent, TransactionKey, TransactionState
from app.domain.transaction_refusals import MessageInTransaction, RollbackCause, TransactionEnded, TransactionRolledBack
from tests.broker.recorders import RecordingLockStore
from tests.brokers import ChangedStore, OpenBroker, result_of
from tests.virtual_clock import VirtualClock, run_advancing, run_ready_tasks


async def locked(broker: OpenBroker, queue: Queue) -> LockToken:
    """Send a message and receive it."""
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    return token_of(message)


async def opened(broker: OpenBroker) -> TransactionKey:
    """Open a transaction."""
    return TransactionKey((await open_transaction(broker.transactions, "client", MINUTE)).id, "client")


async def joined(broker: OpenBroker, key: TransactionKey, queue: Queue, token: LockToken) -> object:
    """Let a complete join, and return its result."""
    (result,) = await join_settlements(broker.transactions, key, queue, [complete(queue, token)])
    return result


def after_look(broker: OpenBroker, happen: Callable[[], Awaitable[object]]) -> OpenBroker:
    """Return the broker with a store in which something happens once, just after a locked row was read."""
    has_happened = False

    async def look(tokens: Sequence[LockToken]) -> Any:
        nonlocal has_happened
        rows = await broker.store.locked_messages(tokens)
        if not has_happened:
            has_happened = True
            await happen()
        return rows

    store: Any = ChangedStore(broker.store, locked_messages=look)
    return replace(broker, store=store)


async def test_a_settlement_that_joins_after_the_look_of_another_keeps_it_out(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    # Only the second try of a renewed lock looks at the row.
    await renew(broker.settling, queue, token)
    overtaken = after_look(broker, lambda: joined(broker, key, queue, token))
    with pytest.raises(MessageInTransaction):
        await run_advancing(clock, settle_one(overtaken.settling, queue, complete(queue, token)))
    assert (await commit(broker.transactions, key)).state is TransactionState.COMMITTED


async def test_a_delivery_that_ends_after_the_look_does_not_join(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    overtaken = after_look(broker, lambda: settle_one(broker.settling, queue, complete(queue, token)))
    assert isinstance(await run_advancing(clock, joined(overtaken, key, queue, token)), AlreadySettled)
    assert (await commit(broker.transactions, key)).state is TransactionState.COMMITTED


async def test_a_message_that_is_busy_leaves_the_transaction_open(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    await joined(broker, key, queue, token)
    tries = 0

    async def fail(_key: TransactionKey) -> Any:
        nonlocal tries
        tries += 1
        raise SettlementsFailed(frozenset({token}))

    transactions: Any = ChangedStore(broker.store.transactions, commit=fail)
    store: Any = ChangedStore(broker.store, transactions=transactions)
    with pytest.raises(MessageBusy):
        await run_advancing(clock, commit(replace(broker, store=store).transactions, key))
    assert tries == MAX_TRIES
    assert (await commit(broker.transactions, key)).state is TransactionState.COMMITTED


async def test_a_lost_lock_is_told_to_every_commit(broker: OpenBroker, queue: Queue) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    assert isinstance(await joined(broker, key, queue, token), JoinedIntent)
    await join_sends(broker.transactions, key, "results", [NewMessage(Envelope(""))])
    # As an administrator removes it: the fence needs the token alone.
    removal = msgspec.structs.replace(complete(queue, token), fence=ANY_LOCK)
    assert await broker.store.remove_locked(queue.id, [removal]) == [True]
    for _ in range(2):
        with pytest.raises(TransactionRolledBack) as refused:
            await commit(broker.transactions, key)
        assert refused.value.cause is RollbackCause.LOCK_LOST
        assert refused.value.member is not None
        assert refused.value.member.sequence_number == token.sequence_number
    assert (await roll_back(broker.transactions, key)).state is TransactionState.ROLLED_BACK


# ---- what a commit does besides ---------------------------------------------------------------------------------------


async def test_a_commit_wakes_the_receivers_of_its_sends_and_releases(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    results, _ = await broker.store.queues.create("results", QueueSettings())
    await join_sends(broker.transactions, key, "results", [NewMessage(Envelope("result"))])
    await join_settlements(broker.transactions, key, queue, [abandon(queue, token, Abandonment())])
    waiting = [
        asyncio.create_task(result_of(receive(broker.receiving, read_queue, ReceiveRequest(wait_seconds=5))))
        for read_queue in (results, queue)
    ]
    await run_ready_tasks()
    await commit(broker.transactions, key)
    await run_ready_tasks()
    assert [task.done() for task in waiting] == [True, True]
    assert [(await task)[0].envelope.message_id for task in waiting] == ["result", "made-1"]


async def test_a_commit_deletes_the_records_of_the_locks_that_it_ends(broker: OpenBroker, queue: Queue) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    await joined(broker, key, queue, token)
    locks: Any = RecordingLockStore(broker.lock_store)
    recorded = replace(broker, lock_store=locks)
    await commit(recorded.transactions, key)
    await commit(recorded.transactions, key)
    assert locks.dropped == [(token, MAX_GENERATION)]


async def test_a_commit_without_settlements_does_not_ask_the_lock_store(broker: OpenBroker) -> None:
    key = await opened(broker)
    await join_sends(broker.transactions, key, "results", [NewMessage(Envelope(""))])

    async def fail(_ended: object) -> None:
        raise AssertionError

    locks: Any = ChangedStore(broker.lock_store, delete_records=fail)
    assert (await commit(replace(broker, lock_store=locks).transactions, key)).state is TransactionState.COMMITTED


async def test_a_commit_is_tried_again_after_a_pause_while_a_message_is_busy(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    await joined(broker, key, queue, token)
    tried_at: list[float] = []

    async def fail_twice(tried: TransactionKey) -> Any:
        tried_at.append(clock.monotonic())
        if len(tried_at) <= 2:
            raise SettlementsFailed(frozenset({token}))
        return await broker.store.transactions.commit(tried)

    transactions: Any = ChangedStore(broker.store.transactions, commit=fail_twice)
    store: Any = ChangedStore(broker.store, transactions=transactions)
    committed = await run_advancing(clock, commit(replace(broker, store=store).transactions, key))
    assert committed.state is TransactionState.COMMITTED
    first, second, third = tried_at
    assert (second - first, third - second) == (0, pytest.approx(_FIRST_PAUSE_SECONDS))


async def test_a_committed_transaction_is_not_rolled_back(broker: OpenBroker, queue: Queue) -> None:
    key = await opened(broker)
    await commit(broker.transactions, key)
    with pytest.raises(TransactionEnded):
        await roll_back(broker.transactions, key)


# ---- what joins ------------------------------------------------------------------------------------------------------


async def test_a_join_returns_its_ids_and_the_commit_stores_them(broker: OpenBroker, queue: Queue) -> None:
    key = await opened(broker)
    joined = await join_sends(
        broker.transactions, key, "orders", [NewMessage(Envelope("1")), NewMessage(Envelope("2"))]
    )
    assert joined.result == ["1", "2"]
    await commit(broker.transactions, key)
    messages = (await receive(broker.receiving, queue, ReceiveRequest(max_messages=2))).result
    assert [message.envelope.message_id for message in messages] == ["1", "2"]


async def test_a_join_after_the_end_neither_makes_a_queue_nor_reads_a_lock(broker: OpenBroker, queue: Queue) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    await commit(broker.transactions, key)
    with pytest.raises(TransactionEnded):
        await join_sends(broker.transactions, key, "new", [NewMessage(Envelope(""))])
    assert await broker.store.queues.by_name("new") is None

    async def fail(_tokens: object) -> None:
        raise AssertionError

    store: Any = ChangedStore(broker.store, locked_messages=fail)
    with pytest.raises(TransactionEnded):
        await joined(replace(broker, store=store), key, queue, token)


async def test_a_delivery_that_has_ended_does_not_join(broker: OpenBroker, queue: Queue) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    await settle_one(broker.settling, queue, complete(queue, token))
    for request in (complete(queue, token), abandon(queue, token, Abandonment())):
        (result,) = await join_settlements(broker.transactions, key, queue, [request])
        assert isinstance(result, AlreadySettled)


@pytest.mark.parametrize("is_renewed", [False, True])
async def test_an_expired_lock_does_not_join(
    broker: OpenBroker, queue: Queue, clock: VirtualClock, is_renewed: bool
) -> None:
    lost = await locked(broker, queue)
    if is_renewed:
        await renew(broker.settling, queue, lost)
    await clock.advance(queue.settings.lock_duration / SECOND + 1)
    held, key = await locked(broker, queue), await opened(broker)
    results = await join_settlements(broker.transactions, key, queue, [complete(queue, lost), complete(queue, held)])
    assert [type(result) for result in results] == [LockLost, JoinedIntent]


async def test_a_lock_that_the_lock_store_knows_to_have_expired_does_not_join(broker: OpenBroker, queue: Queue) -> None:
    lost, held = await locked(broker, queue), await locked(broker, queue)
    key = await opened(broker)
    for token in (lost, held):
        await renew(broker.settling, queue, token)

    async def expired_generations(tokens: Sequence[LockToken]) -> list[int]:
        return [1 if token == lost else NO_EXPIRED_GENERATION for token in tokens]

    locks: Any = ChangedStore(broker.lock_store, expired_generations=expired_generations)
    ports = replace(broker, lock_store=locks).transactions
    results = await join_settlements(ports, key, queue, [complete(queue, held), complete(queue, lost)])
    assert [type(result) for result in results] == [JoinedIntent, LockLost]


async def test_a_renewed_and_a_plain_lock_join_together(broker: OpenBroker, queue: Queue) -> None:
    tokens, key = [await locked(broker, queue) for _ in range(3)], await opened(broker)
    await renew(broker.settling, queue, tokens[1])
    results = await join_settlements(broker.transactions, key, queue, [complete(queue, token) for token in tokens])
    assert [type(result) for result in results] == [JoinedIntent] * 3
    await commit(broker.transactions, key)
    assert await broker.store.queues.total(queue.id) == 0


async def test_a_join_is_tried_again_after_a_pause_while_a_message_is_busy(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token, key = await locked(broker, queue), await opened(broker)
    tried_at: list[float] = []

    def busy_for(tries: int) -> OpenBroker:
        tried_at.clear()

        async def join(*arguments: Any) -> Any:
            tried_at.append(clock.monotonic())
            if len(tried_at) <= tries:
                return [None]
            return await broker.store.transactions.join_settlements(*arguments)

        transactions: Any = ChangedStore(broker.store.transactions, join_settlements=join)
        store: Any = ChangedStore(broker.store, transactions=transactions)
        return replace(broker, store=store)

    assert isinstance(await run_advancing(clock, joined(busy_for(MAX_TRIES), key, queue, token)), MessageBusy)
    assert len(tried_at) == MAX_TRIES
    assert isinstance(await run_advancing(clock, joined(busy_for(2), key, queue, token)), JoinedIntent)
    first, second, third = tried_at
    assert (second - first, third - second) == (0, pytest.approx(_FIRST_PAUSE_SECONDS))
