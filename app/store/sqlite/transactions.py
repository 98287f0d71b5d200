"""The steps of transactions on SQLite, in the one writer."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.broker.ports import Extension
from app.domain.work_unit import WorkUnit
from app.store.records.transactions import TransactionSteps
from app.store.records.unit_effects import UnitEffects
from app.store.sqlite import actions, work_unit
from app.store.sqlite.database import SqliteDatabase, Transaction


def steps(database: SqliteDatabase) -> TransactionSteps:
    """Return the steps over a database, which announces the messages that are admitted."""
    return TransactionSteps(_add_members, _extend, _execute, database.transaction, _ignore_effects)


async def _add_members(transaction: Transaction, members: Sequence[Mapping[str, Any]]) -> None:
    for member in members:
        transaction.execute("add_member", **member)


async def _extend(transaction: Transaction, extensions: Sequence[Extension]) -> list[bool]:
    return [actions.extend(transaction, extension) is not None for extension in extensions]


async def _execute(transaction: Transaction, unit: WorkUnit) -> UnitEffects:
    if failure := work_unit.failure(transaction, unit):
        raise failure
    return work_unit.execute(transaction, unit)


def _ignore_effects(_unit: WorkUnit, _effects: UnitEffects) -> None:
    """Do nothing after the commit."""
