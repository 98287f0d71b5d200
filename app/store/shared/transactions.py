"""Transactions in SQL: their members are rows until the commit carries them out, the same on every engine.

Every SQL transaction locks the row of the transaction first, so joins, commits and rollbacks of one transaction follow
each other. Messages come after it, in the order that groups and settlements use.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Generic

from msgspec.structs import replace

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.transactions import CommitResult, JoinResult
from app.domain.instant import Duration, Instant
from app.domain.message import Draft
from app.domain.queue import Queue, check_known
from app.domain.settlement import LockToken
from app.domain.transaction import (
    OUTCOME_RETENTION,
    Intent,
    Member,
    MemberSummary,
    OwnedTransaction,
    Rollback,
    Transaction,
    TransactionKey,
    TransactionState,
    plan_commit,
)
from app.domain.transaction_refusals import MemberName, RollbackCause, TooManyTransactions
from app.store.shared import joining, rows, transaction_rows
from app.store.shared.attempts import stored_answer, stored_unit_result
from app.store.shared.database import Database, SqlSession
from app.store.shared.engine import Engine, Session, UnitEffects
from app.store.shared.joining import read_transaction
from app.store.shared.json_columns import read_ids, write_unit_result


class TransactionRecords(Generic[Session]):
    """`TransactionStore` over an SQL database."""

    def __init__(self, database: Database, engine: Engine[Session]) -> None:
        self._database = database
        self._engine = engine

    async def open(self, key: TransactionKey, duration: Duration, limit: int, principal_limit: int) -> Transaction:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> Transaction:
            counts = await session.fetch("count_open_transactions", principal=key.principal, limit=limit)
            ((count, of_principal),) = counts
            if of_principal >= principal_limit:
                raise TooManyTransactions(
                    "This client has reached its limit of open transactions (PEEKLOCK_MAX_TRANSACTIONS_PER_PRINCIPAL): "
                    f"{principal_limit}. Commit or roll back others, or try again later."
                )
            if count >= limit:
                raise TooManyTransactions(
                    f"This database has {limit} open transactions, which is its limit. Try again later."
                )
            await session.change("open_transaction", id=key.id, principal=key.principal, duration=duration)
            return await read_transaction(session, "find_transaction", key)

        return await self._engine.run(work)

    async def find(self, key: TransactionKey) -> Transaction:
        """See `TransactionStore`."""
        return await read_transaction(self._database, "find_transaction", key)

    async def list_open(self, limit: int) -> list[OwnedTransaction]:
        """See `TransactionStore`."""
        found_rows = await self._database.fetch("open_transactions", limit=limit)
        return [OwnedTransaction(principal, transaction_rows.transaction(row)) for principal, *row in found_rows]

    async def members(self, transaction_id: str, after: int, limit: int) -> list[MemberSummary]:
        """See `TransactionStore`."""
        found_rows = await self._database.fetch("page_of_members", id=transaction_id, after=after, limit=limit)
        return [transaction_rows.member_summary(row) for row in found_rows]

    async def join_sends(
        self, key: TransactionKey, sends: Sequence[tuple[str, Draft]], attempt: Attempt | None = None
    ) -> AttemptResult[list[str]]:
        """See `TransactionStore`."""
        return await self._engine.run(
            partial(joining.join_sends, engine=self._engine, key=key, sends=sends, attempt=attempt)
        )

    async def find_join_result(self, attempt: Attempt) -> list[str] | None:
        """See `TransactionStore`."""
        found_rows = await self._database.fetch("answered_attempt", attempt_key=attempt.key)
        answer = stored_answer(found_rows, attempt)
        return None if answer is None else read_ids(answer)

    async def join_settlements(self, key: TransactionKey, queue: str, intents: Sequence[Intent]) -> list[JoinResult]:
        """See `TransactionStore`."""
        if not intents:
            return []
        join = partial(joining.join_settlements, engine=self._engine, key=key, queue=queue, intents=intents)
        return await self._engine.run(join)

    async def commit(self, key: TransactionKey) -> CommitResult:
        """See `TransactionStore`."""
        result, effects = await self._engine.run(partial(self._commit, key=key))
        if result.unit is not None and effects is not None:
            self._engine.on_executed(result.unit, effects)
        return result

    async def _commit(self, session: Session, key: TransactionKey) -> tuple[CommitResult, UnitEffects | None]:
        transaction = await read_transaction(session, "transaction_for_update", key)
        if transaction.state is TransactionState.COMMITTED:
            return CommitResult(await _with_result(session, transaction)), None
        if transaction.state is TransactionState.ROLLED_BACK:
            return CommitResult(transaction), None
        if transaction.is_overdue:
            return CommitResult(await _end_overdue(session, key, transaction.expires_at)), None
        members = [transaction_rows.member(row) for row in await session.fetch("transaction_members", id=key.id)]
        plan = plan_commit(members, await _queues_of(session, members), transaction.read_at)
        if isinstance(plan, Rollback):
            return CommitResult(await _end_rolled_back(session, key, plan)), None
        effects = await self._engine.execute_within(session, plan)
        result = effects.result(plan)
        committed = await _end(session, key, TransactionState.COMMITTED, answer=write_unit_result(result))
        return CommitResult(replace(committed, result=result), plan), effects

    async def roll_back(self, key: TransactionKey, cause: RollbackCause, token: LockToken | None = None) -> Transaction:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> Transaction:
            transaction = await read_transaction(session, "transaction_for_update", key)
            if transaction.state is not TransactionState.OPEN:
                return transaction
            if transaction.is_overdue:
                return await _end_overdue(session, key, transaction.expires_at)
            member = None if token is None else await _member_with(session, key.id, token)
            return await _end_rolled_back(session, key, Rollback(cause, member))

        return await self._engine.run(work)

    async def roll_back_overdue(self) -> bool:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> bool:
            found_rows = await session.fetch("overdue_transaction")
            for transaction_id, principal, expires_at in found_rows:
                await _end_overdue(session, TransactionKey(transaction_id, principal), expires_at)
            return bool(found_rows)

        return await self._engine.run(work)


async def _queues_of(session: SqlSession, members: Sequence[Member]) -> Mapping[int, Queue]:
    """Return the queues of these members that exist, by id. Refuses with `NewerQueue`."""
    queue_ids = sorted({member.queue_id for member in members})
    queues = [rows.queue(row) for queue_id in queue_ids for row in await session.fetch("queue_by_id", id=queue_id)]
    for queue in queues:
        check_known(queue)
    return {queue.id: queue for queue in queues}


async def _with_result(session: SqlSession, transaction: Transaction) -> Transaction:
    """Return a committed transaction with the result of its commit."""
    ((answer,),) = await session.fetch("transaction_answer", id=transaction.id)
    return replace(transaction, result=await stored_unit_result(session, answer))


async def _member_with(session: SqlSession, transaction_id: str, token: LockToken) -> MemberName | None:
    """Return the name of the settlement with this token in this transaction."""
    for _, secret, in_transaction, _, place, queue in await session.fetch(
        "joined_settlements", numbers=[token.sequence_number]
    ):
        if (secret, in_transaction) == (token.secret, transaction_id):
            return MemberName(place, queue, sequence_number=token.sequence_number)
    return None


async def _end_overdue(session: SqlSession, key: TransactionKey, deadline: Instant) -> Transaction:
    """Roll back a transaction past its deadline: its own, or the end of a send's time to live (S1.30)."""
    for row in await session.fetch("expired_member", id=key.id, deadline=deadline):
        expired = Rollback(RollbackCause.MESSAGE_EXPIRED, transaction_rows.member_summary(row).name)
        return await _end_rolled_back(session, key, expired)
    return await _end_rolled_back(session, key, Rollback(RollbackCause.TIMEOUT))


async def _end_rolled_back(session: SqlSession, key: TransactionKey, rollback: Rollback) -> Transaction:
    member = transaction_rows.write_name(rollback.member)
    return await _end(session, key, TransactionState.ROLLED_BACK, cause=rollback.cause.value, member=member)


async def _end(
    session: SqlSession,
    key: TransactionKey,
    state: TransactionState,
    answer: str | None = None,
    cause: str | None = None,
    member: str | None = None,
) -> Transaction:
    """Delete the members of a transaction that this SQL transaction has locked, and store its outcome."""
    await session.change("delete_members", id=key.id)
    await session.change(
        "end_transaction",
        id=key.id,
        state=state.value,
        answer=answer,
        cause=cause,
        member=member,
        retention=OUTCOME_RETENTION,
    )
    return await read_transaction(session, "find_transaction", key)
