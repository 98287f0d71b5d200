"""Transactions in SQL: their members are rows until the commit carries them out, the same on every engine.

Every SQL transaction locks the row of the transaction first, so joins, commits and rollbacks of one transaction follow
each other. Messages come after it, in the order that groups and settlements use.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, TypeAlias, TypeVar

from app.broker.ports import CommitResult, Extension, JoinResult
from app.domain.instant import Duration
from app.domain.message import Draft
from app.domain.queue import Queue, check_known
from app.domain.settlement import LockToken, Outcome, Settlement
from app.domain.transaction import (
    OUTCOME_RETENTION,
    Intent,
    JoinedIntent,
    Member,
    NotedMember,
    Rollback,
    SettlementMember,
    Transaction,
    TransactionKey,
    TransactionState,
    lock_extension,
    noted_send,
    plan_commit,
    send_weight,
    settlement_weight,
)
from app.domain.transaction_refusals import (
    MemberName,
    MessageInTransaction,
    RollbackCause,
    TooManyTransactions,
    TransactionNotFound,
)
from app.domain.work_unit import WorkUnit
from app.store.records import rows, transaction_rows
from app.store.records.database import Database, SqlSession, unavailable_when_closed
from app.store.records.json_columns import write_unit_result
from app.store.records.unit_effects import UnitEffects

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TransactionSteps:
    """What an engine does in its own way. The first three steps run in an SQL transaction, with its session.

    `add_members` inserts rows of members. `extend` extends locks as `RenewStore.extend` does, and returns whether each
    fence held. `execute` carries out a work unit, and raises `SettlementsFailed` or `QueueGone`. `run` runs work in one
    SQL transaction, again after a pause if a message id that it needs is in use. `on_executed` is called after the commit
    of a work unit.
    """

    add_members: Callable[[Any, Sequence[Mapping[str, Any]]], Awaitable[None]]
    extend: Callable[[Any, Sequence[Extension]], Awaitable[list[bool]]]
    execute: Callable[[Any, WorkUnit], Awaitable[UnitEffects]]
    run: Callable[[Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
    on_executed: Callable[[WorkUnit, UnitEffects], None]


class TransactionRecords:
    """`TransactionStore` over an SQL database."""

    def __init__(self, database: Database, steps: TransactionSteps) -> None:
        self._database = database
        self._steps = steps

    async def open(self, key: TransactionKey, duration: Duration, limit: int) -> Transaction:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> Transaction:
            ((count,),) = await session.fetch("count_open_transactions", limit=limit)
            if count >= limit:
                raise TooManyTransactions
            await session.change("open_transaction", id=key.id, principal=key.principal, duration=duration)
            return await _read(session, "find_transaction", key)

        return await self._run(work)

    async def find(self, key: TransactionKey) -> Transaction:
        """See `TransactionStore`."""
        return await _read(self._database, "find_transaction", key)

    async def members(self, transaction_id: str, after: int, limit: int) -> list[NotedMember]:
        """See `TransactionStore`."""
        found_rows = await self._database.fetch("page_of_members", id=transaction_id, after=after, limit=limit)
        return [transaction_rows.noted_member(row) for row in found_rows]

    async def join_sends(self, key: TransactionKey, queue: str, drafts: Sequence[Draft]) -> None:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> None:
            transaction = await _lock_joinable(session, key)
            weights = [send_weight(draft) for draft in drafts]
            transaction.check_room(weights)
            await self._steps.add_members(
                session,
                [
                    transaction_rows.send_row(key.id, noted_send(place, queue, draft, transaction.read_at))
                    for place, draft in enumerate(drafts, transaction.member_count)
                ],
            )
            await session.change("count_members", id=key.id, count=len(weights), member_bytes=sum(weights))

        await self._run(work)

    async def join_settlements(self, key: TransactionKey, queue: str, intents: Sequence[Intent]) -> list[JoinResult]:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> list[JoinResult]:
            transaction = await _lock_joinable(session, key)
            noted = await _find_noted(session, intents)
            new = [intent for intent in intents if intent.settlement.token not in noted]
            transaction.check_room([settlement_weight(intent.settlement) for intent in new])
            extended = await self._extend_locks(session, transaction, new)
            # A message may have joined another transaction before this one had its row.
            noted |= await _find_noted(session, extended)
            joined = [intent.settlement for intent in extended if intent.settlement.token not in noted]
            await self._note_settlements(session, transaction, queue, joined)
            return [_join_result(intent.settlement, key.id, noted, joined) for intent in intents]

        return await self._run(work) if intents else []

    async def _extend_locks(
        self, session: SqlSession, transaction: Transaction, intents: Sequence[Intent]
    ) -> list[Intent]:
        """Extend the locks of these settlements beyond the deadline. Return those whose fence holds."""
        duration = lock_extension(transaction)
        extensions = [
            Extension(
                intent.settlement.token,
                intent.settlement.queue_id,
                duration,
                intent.expired_generation,
                intent.settlement.keeps_history,
            )
            for intent in intents
        ]
        extended = await self._steps.extend(session, extensions) if extensions else []
        return list(compress(intents, extended))

    async def _note_settlements(
        self, session: SqlSession, transaction: Transaction, queue: str, settlements: Sequence[Settlement]
    ) -> None:
        if not settlements:
            return
        members = [
            SettlementMember(place, queue, settlement)
            for place, settlement in enumerate(settlements, transaction.member_count)
        ]
        await self._steps.add_members(
            session, [transaction_rows.settlement_row(transaction.id, member) for member in members]
        )
        size = sum(map(settlement_weight, settlements))
        await session.change("count_members", id=transaction.id, count=len(members), member_bytes=size)

    async def commit(self, key: TransactionKey) -> CommitResult:
        """See `TransactionStore`."""
        result, effects = await self._run(partial(self._commit, key=key))
        if result.unit is not None and effects is not None:
            self._steps.on_executed(result.unit, effects)
        return result

    async def _commit(self, session: SqlSession, key: TransactionKey) -> tuple[CommitResult, UnitEffects | None]:
        transaction = await _read(session, "transaction_for_update", key)
        if transaction.state is not TransactionState.OPEN:
            return CommitResult(transaction), None
        if transaction.is_late:
            return CommitResult(await _end_rolled_back(session, key, Rollback(RollbackCause.TIMEOUT))), None
        members = [transaction_rows.member(row) for row in await session.fetch("transaction_members", id=key.id)]
        plan = plan_commit(members, await _queues_of(session, members), transaction.read_at)
        if isinstance(plan, Rollback):
            return CommitResult(await _end_rolled_back(session, key, plan)), None
        effects = await self._steps.execute(session, plan)
        answer = write_unit_result(effects.result(plan))
        committed = await _end(session, key, TransactionState.COMMITTED, answer=answer)
        return CommitResult(committed, plan), effects

    async def roll_back(self, key: TransactionKey, cause: RollbackCause, token: LockToken | None = None) -> Transaction:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> Transaction:
            transaction = await _read(session, "transaction_for_update", key)
            if transaction.state is not TransactionState.OPEN:
                return transaction
            if transaction.is_late:
                return await _end_rolled_back(session, key, Rollback(RollbackCause.TIMEOUT))
            member = None if token is None else await _member_with(session, key.id, token)
            return await _end_rolled_back(session, key, Rollback(cause, member))

        return await self._run(work)

    async def roll_back_overdue(self) -> bool:
        """See `TransactionStore`."""

        async def work(session: SqlSession) -> bool:
            found_rows = await session.fetch("overdue_transaction")
            for transaction_id, principal in found_rows:
                key = TransactionKey(transaction_id, principal)
                await _end_rolled_back(session, key, Rollback(RollbackCause.TIMEOUT))
            return bool(found_rows)

        return await self._run(work)

    async def _run(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        with unavailable_when_closed:
            return await self._steps.run(work)


async def _read(session: SqlSession, statement: str, key: TransactionKey) -> Transaction:
    found_rows = await session.fetch(statement, id=key.id, principal=key.principal)
    if not found_rows:
        raise TransactionNotFound
    return transaction_rows.transaction(found_rows[0])


async def _queues_of(session: SqlSession, members: Sequence[Member]) -> Mapping[int, Queue]:
    """Return the queues of these members that exist, by id. Refuses with `NewerQueue`."""
    queue_ids = sorted({member.queue_id for member in members})
    queues = [rows.queue(row) for queue_id in queue_ids for row in await session.fetch("queue_by_id", id=queue_id)]
    for queue in queues:
        check_known(queue)
    return {queue.id: queue for queue in queues}


async def _lock_joinable(session: SqlSession, key: TransactionKey) -> Transaction:
    """Return the transaction, locked until this SQL transaction ends. Refuses if it has ended."""
    transaction = await _read(session, "transaction_for_update", key)
    transaction.check_joinable()
    return transaction


NotedSettlements: TypeAlias = dict[LockToken, tuple[str, Outcome]]
"""The transaction and the outcome of settlements that were noted, by token."""


async def _find_noted(session: SqlSession, intents: Sequence[Intent]) -> NotedSettlements:
    """Return those of these deliveries that have a settlement in an open transaction."""
    numbers = sorted({intent.settlement.token.sequence_number for intent in intents})
    found_rows = await session.fetch("noted_settlements", numbers=numbers) if numbers else ()
    return {
        LockToken(number, secret): (transaction_id, Outcome(outcome))
        for number, secret, transaction_id, outcome, *_ in found_rows
    }


def _join_result(
    settlement: Settlement, transaction_id: str, noted: NotedSettlements, joined: Sequence[Settlement]
) -> JoinResult:
    if (earlier := noted.get(settlement.token)) is not None:
        is_repeat = earlier == (transaction_id, settlement.outcome)
        return JoinedIntent(settlement, replayed=True) if is_repeat else MessageInTransaction()
    return JoinedIntent(settlement) if settlement in joined else None


async def _member_with(session: SqlSession, transaction_id: str, token: LockToken) -> MemberName | None:
    """Return the name of the settlement with this token in this transaction."""
    for _, secret, in_transaction, _, place, queue in await session.fetch(
        "noted_settlements", numbers=[token.sequence_number]
    ):
        if (secret, in_transaction) == (token.secret, transaction_id):
            return MemberName(place, queue, sequence_number=token.sequence_number)
    return None


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
    """Forget the members of a transaction that this SQL transaction has locked, and store how it has ended."""
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
    return await _read(session, "find_transaction", key)
