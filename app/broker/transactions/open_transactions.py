"""Transactions: open, read, commit and roll back.

All members take effect at the commit, or none does (S0.2, S1.10, S1.11, S1.31). A transaction that cannot be committed
as a whole is rolled back. The refusal names the cause: the deadline has passed, a message has expired, a lock was lost,
or a queue was deleted. Locks stay with their holders.

Crash windows: before the SQL transaction of a commit or rollback ends, the transaction is open, with its members. After
it the outcome is stored, and a repeat gets the same answer for an hour. Wake-ups may be lost: receivers also poll.
"""

from app.broker.ports.sending import QueueGone
from app.broker.ports.transactions import CommitResult, SettlementsFailed
from app.broker.settling.settle import MAX_TRIES, note_settled, pause_before_retry
from app.broker.transactions.ports import TransactionPorts
from app.domain.instant import Duration
from app.domain.refusals import MessageBusy, StoreNotDurable
from app.domain.settlement import MAX_GENERATION, LockToken
from app.domain.transaction import (
    MAX_OPEN_TRANSACTIONS,
    MemberSummary,
    OwnedTransaction,
    Transaction,
    TransactionKey,
    TransactionState,
)
from app.domain.transaction_refusals import RollbackCause, TransactionEnded
from app.domain.work_unit import WorkUnit, WorkUnitResult

MEMBERS_AT_ONCE = 500
"""Members that are read at once: about 500 KB at most."""


async def open_transaction(ports: TransactionPorts, principal: str, duration: Duration) -> Transaction:
    """Open a transaction that must be committed within `duration`. Refuses with `TooManyTransactions`."""
    key = TransactionKey(ports.sending.new_id(), principal)
    return await ports.store.open(key, duration, MAX_OPEN_TRANSACTIONS, ports.principal_limit)


async def read_transaction(
    ports: TransactionPorts, key: TransactionKey, after: int, limit: int
) -> tuple[Transaction, list[MemberSummary]]:
    """Return a transaction, and its members at positions above `after`. Refuses with `TransactionNotFound`."""
    transaction = await ports.store.find(key)
    return transaction, await ports.store.members(key.id, after, limit)


async def list_open_transactions(ports: TransactionPorts, limit: int) -> list[OwnedTransaction]:
    """Return the open transactions of all principals, those whose deadline comes first."""
    return await ports.store.list_open(limit)


async def commit(ports: TransactionPorts, key: TransactionKey) -> Transaction:
    """Carry out all members. A repeat returns the stored outcome.

    Refuses with `TransactionRolledBack`, with the cause and the member, if they cannot all be carried out. Raises
    `MessageBusy` if another request keeps one of the messages locked; then the transaction stays open. So it does when
    this refuses with `StoreNotDurable` because it has sends.
    """
    found = await ports.store.find(key)
    if found.state is TransactionState.OPEN:
        await _check_durability(ports, key)
    async with ports.topics.budget.reserve(found.member_bytes):
        result = await _commit(ports, key)
    if result.unit is not None and result.transaction.result is not None:
        await _finish(ports, result.unit, result.transaction.result)
    if result.transaction.state is TransactionState.ROLLED_BACK:
        raise result.transaction.rolled_back()
    return result.transaction


async def roll_back(ports: TransactionPorts, key: TransactionKey) -> Transaction:
    """Delete all members. A repeat returns the stored outcome. Refuses with `TransactionEnded` if it is committed."""
    transaction = await ports.store.roll_back(key, RollbackCause.REQUESTED)
    if transaction.state is TransactionState.COMMITTED:
        raise TransactionEnded
    return transaction


async def _check_durability(ports: TransactionPorts, key: TransactionKey) -> None:
    """Refuse with `StoreNotDurable` a commit that would store messages."""
    try:
        await ports.sending.durability.check()
    except StoreNotDurable:
        place = -1
        while members := await ports.store.members(key.id, place, MEMBERS_AT_ONCE):
            if any(member.name.message_id is not None for member in members):
                raise
            place = members[-1].name.place


async def _commit(ports: TransactionPorts, key: TransactionKey) -> CommitResult:
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(ports.settling.clock, try_number - 1)
        try:
            return await ports.store.commit(key)
        except SettlementsFailed as failed:
            lost = await _first_lost(ports, failed.tokens)
            if lost is not None:
                return CommitResult(await ports.store.roll_back(key, RollbackCause.LOCK_LOST, lost))
        except QueueGone:
            # The next try finds which queue is gone.
            pass
    raise MessageBusy


async def _first_lost(ports: TransactionPorts, tokens: frozenset[LockToken]) -> LockToken | None:
    """Return the first of these tokens whose lock has ended; None if other requests hold the rows."""
    in_order = sorted(tokens, key=lambda token: token.sequence_number)
    rows = await ports.settling.store.locked_messages(in_order)
    lost = (token for token, row in zip(in_order, rows, strict=True) if row is None or not row.is_live)
    return next(lost, None)


async def _finish(ports: TransactionPorts, unit: WorkUnit, result: WorkUnitResult) -> None:
    """Notify receivers, and delete the lock records of the deliveries that have ended."""
    ports.settling.receivers.notify_sent(unit.drafts, result.receipts)
    note_settled(ports.settling, unit.settlements, result.settled)
    if unit.settlements:
        ended = [(settlement.token, MAX_GENERATION) for settlement in unit.settlements]
        await ports.settling.lock_store.delete_records(ended)
