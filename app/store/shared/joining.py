"""Joins: sends and settlements become members of an open transaction, in the SQL transaction that this work runs in."""

from collections.abc import Sequence
from itertools import compress
from typing import TypeAlias

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.settling import Extension
from app.broker.ports.transactions import JoinResult
from app.domain.message import Draft
from app.domain.settlement import LockToken, Outcome, Settlement
from app.domain.transaction import (
    Intent,
    JoinedIntent,
    SettlementMember,
    Transaction,
    TransactionKey,
    lock_extension,
    send_member,
    send_weight,
    settlement_weight,
)
from app.domain.transaction_refusals import MessageInTransaction, TransactionNotFound
from app.store.shared import transaction_rows
from app.store.shared.attempts import Answers, once
from app.store.shared.database import SqlSession
from app.store.shared.engine import Engine, Session
from app.store.shared.json_columns import read_ids, write_ids


async def _read_ids(_session: SqlSession, answer: str) -> list[str]:
    return read_ids(answer)


IDS: Answers[SqlSession, list[str]] = Answers(write_ids, _read_ids)
"""The ids of the messages that a join has added."""


async def join_sends(
    session: Session,
    engine: Engine[Session],
    key: TransactionKey,
    sends: Sequence[tuple[str, Draft]],
    attempt: Attempt | None,
) -> AttemptResult[list[str]]:
    """Add all drafts as members. A repeat of an attempt adds none and returns the ids of the first try."""

    async def join(session: Session) -> list[str]:
        transaction = await _lock_joinable(session, key)
        await _add_sends(session, engine, transaction, sends)
        return [draft.envelope.message_id for _, draft in sends]

    return await once(session, engine, attempt, IDS, join)


async def join_settlements(
    session: Session, engine: Engine[Session], key: TransactionKey, queue: str, intents: Sequence[Intent]
) -> list[JoinResult]:
    """Add the settlements whose locks can be extended beyond the deadline. Return a result for each."""
    transaction = await _lock_joinable(session, key)
    already_joined = await _find_joined(session, intents)
    new = [intent for intent in intents if intent.settlement.token not in already_joined]
    transaction.check_room([settlement_weight(intent.settlement) for intent in new])
    extended = await _extend_locks(session, engine, transaction, new)
    # A message may have joined another transaction before this one had its row.
    already_joined |= await _find_joined(session, extended)
    joined = [intent.settlement for intent in extended if intent.settlement.token not in already_joined]
    await _add_settlements(session, engine, transaction, queue, joined)
    return [_join_result(intent.settlement, key.id, already_joined, joined) for intent in intents]


async def read_transaction(session: SqlSession, statement: str, key: TransactionKey) -> Transaction:
    """Return the transaction that this statement finds. Refuses with `TransactionNotFound`."""
    found_rows = await session.fetch(statement, id=key.id, principal=key.principal)
    if not found_rows:
        raise TransactionNotFound
    return transaction_rows.transaction(found_rows[0])


async def _lock_joinable(session: SqlSession, key: TransactionKey) -> Transaction:
    """Return the transaction, locked until this SQL transaction ends. Refuses if it has ended."""
    transaction = await read_transaction(session, "transaction_for_update", key)
    transaction.check_joinable()
    return transaction


async def _add_sends(
    session: Session, engine: Engine[Session], transaction: Transaction, sends: Sequence[tuple[str, Draft]]
) -> None:
    if not sends:
        return
    weights = [send_weight(draft) for _, draft in sends]
    transaction.check_room(weights)
    members = [
        send_member(place, queue, draft, transaction.read_at)
        for place, (queue, draft) in enumerate(sends, transaction.member_count)
    ]
    await engine.add_members(session, [transaction_rows.send_row(transaction.id, member) for member in members])
    await session.change("count_members", id=transaction.id, count=len(weights), member_bytes=sum(weights))
    ends = [member.expires_at for member in members if member.expires_at is not None]
    if ends and min(ends) < transaction.expires_at:
        await session.change("bring_deadline_forward", id=transaction.id, expires_at=min(ends))


async def _extend_locks(
    session: Session, engine: Engine[Session], transaction: Transaction, intents: Sequence[Intent]
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
    extended = await engine.extend_within(session, extensions) if extensions else []
    return list(compress(intents, extended))


async def _add_settlements(
    session: Session,
    engine: Engine[Session],
    transaction: Transaction,
    queue: str,
    settlements: Sequence[Settlement],
) -> None:
    if not settlements:
        return
    members = [
        SettlementMember(place, queue, settlement)
        for place, settlement in enumerate(settlements, transaction.member_count)
    ]
    await engine.add_members(session, [transaction_rows.settlement_row(transaction.id, member) for member in members])
    size = sum(map(settlement_weight, settlements))
    await session.change("count_members", id=transaction.id, count=len(members), member_bytes=size)


JoinedSettlements: TypeAlias = dict[LockToken, tuple[str, Outcome]]
"""The transaction and the outcome of settlements that have joined, by token."""


async def _find_joined(session: SqlSession, intents: Sequence[Intent]) -> JoinedSettlements:
    """Return those of these deliveries that have a settlement in an open transaction."""
    numbers = sorted({intent.settlement.token.sequence_number for intent in intents})
    found_rows = await session.fetch("joined_settlements", numbers=numbers) if numbers else ()
    return {
        LockToken(number, secret): (transaction_id, Outcome(outcome))
        for number, secret, transaction_id, outcome, *_ in found_rows
    }


def _join_result(
    settlement: Settlement, transaction_id: str, already_joined: JoinedSettlements, joined: Sequence[Settlement]
) -> JoinResult:
    if (earlier := already_joined.get(settlement.token)) is not None:
        is_repeat = earlier == (transaction_id, settlement.outcome)
        return JoinedIntent(settlement, replayed=True) if is_repeat else MessageInTransaction()
    return JoinedIntent(settlement) if settlement in joined else None
