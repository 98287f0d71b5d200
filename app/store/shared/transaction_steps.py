"""What transactions need of an engine, and how they read their row."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.broker.ports import Attempt, Extension
from app.domain.transaction import Transaction, TransactionKey
from app.domain.transaction_refusals import TransactionNotFound
from app.domain.work_unit import WorkUnit
from app.store.shared import transaction_rows
from app.store.shared.database import SqlSession
from app.store.shared.unit_effects import UnitEffects


@dataclass(frozen=True, slots=True)
class TransactionSteps:
    """What an engine does in its own way. The first three steps run in an SQL transaction, with its session.

    `add_members` inserts rows of members. `extend` extends locks as `RenewStore.extend` does, and returns whether each
    fence held. `execute` carries out a work unit, and raises `SettlementsFailed` or `QueueGone`. `run` runs work in one
    SQL transaction, again after a pause if a message id that it needs is in use. `on_executed` is called after the commit
    of a work unit. `begin_attempt` returns the answer of the first try, as `read_attempt` does, and `answer_attempt` keeps
    the answer of this one; both run in an SQL transaction too.
    """

    add_members: Callable[[Any, Sequence[Mapping[str, Any]]], Awaitable[None]]
    extend: Callable[[Any, Sequence[Extension]], Awaitable[list[bool]]]
    execute: Callable[[Any, WorkUnit], Awaitable[UnitEffects]]
    run: Callable[[Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
    on_executed: Callable[[WorkUnit, UnitEffects], None]
    begin_attempt: Callable[[Any, Attempt], Awaitable[str | None]]
    answer_attempt: Callable[[Any, Attempt, str], Awaitable[None]]


async def read_transaction(session: SqlSession, statement: str, key: TransactionKey) -> Transaction:
    """Return the transaction that this statement finds. Refuses with `TransactionNotFound`."""
    found_rows = await session.fetch(statement, id=key.id, principal=key.principal)
    if not found_rows:
        raise TransactionNotFound
    return transaction_rows.transaction(found_rows[0])
