"""What happens to the messages of an open transaction between two steps of a request."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from app.broker.complete import complete
from app.broker.join import join_sends, join_settlements
from app.broker.ports import SettlementsFailed
from app.broker.receive import ReceiveRequest, receive
from app.broker.renew import renew
from app.broker.send import send
from app.broker.settle import MAX_TRIES, settle_one
from app.broker.transactions import commit, open_transaction, roll_back
from app.domain.instant import MINUTE
from app.domain.message import Envelope
from app.domain.queue import Queue
from app.domain.refusals import AlreadySettled, MessageBusy
from app.domain.sending import NewMessage
from app.domain.settlement import ANY_LOCK, LockToken, token_of
from app.domain.transaction import JoinedIntent, TransactionKey, TransactionState
from app.domain.transaction_refusals import MessageInTransaction, RollbackCause, TransactionRolledBack
from tests.brokers import ChangedStore, OpenBroker
from tests.virtual_clock import VirtualClock, run_advancing


async def locked(broker: OpenBroker, queue: Queue) -> LockToken:
    """Send a message and receive it."""
    await send(broker.sending, queue, [NewMessage(Envelope(""))])
    (message,) = await receive(broker.receiving, queue, ReceiveRequest())
    return token_of(message)


async def opened(broker: OpenBroker) -> TransactionKey:
    """Open a transaction."""
    return TransactionKey((await open_transaction(broker.transactions, "client", MINUTE)).id, "client")


async def joined(broker: OpenBroker, key: TransactionKey, queue: Queue, token: LockToken) -> object:
    """Let a complete join, and return its result."""
    (result,) = await join_settlements(broker.joining, key, queue, [complete(queue, token)])
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
    await renew(broker.renewing, queue, token)
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
    await join_sends(broker.joining, key, "results", [NewMessage(Envelope(""))])
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
