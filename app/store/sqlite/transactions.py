"""The steps of transactions on SQLite, in the one writer."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.broker.ports import Attempt, Extension
from app.domain.work_unit import WorkUnit
from app.store.shared.transaction_steps import TransactionSteps
from app.store.shared.unit_effects import UnitEffects
from app.store.sqlite import actions, work_unit
from app.store.sqlite.database import SqliteDatabase, Transaction


def steps(database: SqliteDatabase) -> TransactionSteps:
    """Return the steps over a database, which announces the messages that are admitted."""
    return TransactionSteps(
        _add_members, _extend, _execute, database.transaction, _ignore_effects, _begin_attempt, _answer_attempt
    )


async def _add_members(transaction: Transaction, members: Sequence[Mapping[str, Any]]) -> None:
    for member in members:
        transaction.execute("add_member", **member)


async def _extend(transaction: Transaction, extensions: Sequence[Extension]) -> list[bool]:
    return [actions.extend(transaction, extension) is not None for extension in extensions]


async def _execute(transaction: Transaction, unit: WorkUnit) -> UnitEffects:
    if failure := work_unit.failure(transaction, unit):
        raise failure
    return work_unit.execute(transaction, unit)


async def _begin_attempt(transaction: Transaction, attempt: Attempt) -> str | None:
    return actions.earlier_answer(transaction, attempt)


async def _answer_attempt(transaction: Transaction, attempt: Attempt, answer: str) -> None:
    actions.save_answer(transaction, attempt, answer)


def _ignore_effects(_unit: WorkUnit, _effects: UnitEffects) -> None:
    """Do nothing after the commit."""
