"""Work units on SQLite: the actions of settlements, states and sends, in one step of the writer."""

from app.domain.settlement import Removal
from app.domain.work_unit import WorkUnit
from app.store.shared.states import add_versions, lock_states
from app.store.shared.synchronous_sends import add_synchronous_sends
from app.store.shared.unit_effects import UnitEffects, check_effective
from app.store.sqlite import actions
from app.store.sqlite.database import Transaction


async def execute(transaction: Transaction, unit: WorkUnit) -> UnitEffects:
    """Carry out a unit. Raises `SettlementsFailed`, and refuses as `lock_states`, before anything is changed."""
    check_effective(unit.settlements, [actions.is_effective(transaction, one) for one in unit.settlements])
    states = await lock_states(transaction, unit.states)
    for settlement in unit.settlements:
        if isinstance(settlement, Removal):
            actions.remove(transaction, settlement)
        else:
            actions.move(transaction, settlement)
    drafts = unit.drafts if states.recorded is None else ()
    receipts = actions.send(transaction, drafts)
    await add_synchronous_sends(transaction, drafts, receipts)
    versions = await add_versions(transaction, states, unit.states, receipts)
    return UnitEffects(states.recorded or receipts, transaction.admitted, versions=versions)
