"""Work units on SQLite: the actions of settlements and sends, in one step of the writer."""

from app.broker.ports import SettlementsFailed
from app.domain.settlement import Removal, Settlement
from app.domain.work_unit import WorkUnit
from app.store.records.unit_effects import UnitEffects, check_effective
from app.store.sqlite import actions
from app.store.sqlite.database import Transaction


def failure(transaction: Transaction, unit: WorkUnit) -> SettlementsFailed | None:
    """Return why the unit would fail, before it changes anything: an exception would undo the steps of others too."""
    try:
        check_effective(unit.settlements, [actions.is_effective(transaction, one) for one in unit.settlements])
    except SettlementsFailed as failed:
        return failed.with_traceback(None)
    return None


def execute(transaction: Transaction, unit: WorkUnit) -> UnitEffects:
    """Carry out a unit without a `failure`. The transaction announces the messages that are admitted."""
    for settlement in unit.settlements:
        _settle(transaction, settlement)
    return UnitEffects(actions.send(transaction, unit.drafts), admitted=())


def _settle(transaction: Transaction, settlement: Settlement) -> bool:
    if isinstance(settlement, Removal):
        return actions.remove(transaction, settlement)
    return actions.move(transaction, settlement)
