"""Work units on SQLite: the actions of settlements, states and sends, in one step of the writer."""

from functools import partial

from app.broker.ports import SettlementsFailed
from app.domain.settlement import Removal, Settlement
from app.domain.work_unit import WorkUnit
from app.store.shared.states import add_versions, lock_states
from app.store.shared.synchronous_sends import add_synchronous_sends
from app.store.shared.unit_effects import UnitEffects, check_effective
from app.store.sqlite import actions
from app.store.sqlite.database import Transaction, run_to_completion


def failure(transaction: Transaction, unit: WorkUnit) -> SettlementsFailed | None:
    """Return why the unit would fail, before it changes anything: an exception would undo the steps of others too."""
    try:
        check_effective(unit.settlements, [actions.is_effective(transaction, one) for one in unit.settlements])
    except SettlementsFailed as failed:
        return failed.with_traceback(None)
    return None


def execute(transaction: Transaction, unit: WorkUnit) -> UnitEffects:
    """Carry out a unit without a `failure`. The transaction announces the messages that are admitted.

    Refuses as `lock_states`, before anything is changed.
    """
    states = run_to_completion(partial(lock_states, changes=unit.states), transaction)
    for settlement in unit.settlements:
        _settle(transaction, settlement)
    drafts = unit.drafts if states.recorded is None else ()
    receipts = actions.send(transaction, drafts)
    run_to_completion(partial(add_synchronous_sends, drafts=drafts, receipts=receipts), transaction)
    add = partial(add_versions, locked=states, changes=unit.states, receipts=receipts)
    versions = run_to_completion(add, transaction)
    return UnitEffects(states.recorded or receipts, admitted=(), versions=versions)


def _settle(transaction: Transaction, settlement: Settlement) -> bool:
    if isinstance(settlement, Removal):
        return actions.remove(transaction, settlement)
    return actions.move(transaction, settlement)
