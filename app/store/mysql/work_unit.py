"""Work units on MariaDB and MySQL: the statements of settlements, states and sends, in one transaction."""

from dataclasses import replace

from app.domain.work_unit import WorkUnit
from app.store.mysql import sending, settling
from app.store.mysql.session import MysqlSession
from app.store.shared.groups import admit, entered_groups, with_admitted
from app.store.shared.history import record_unit
from app.store.shared.states import add_versions, lock_states
from app.store.shared.synchronous_sends import add_synchronous_sends
from app.store.shared.unit_effects import UnitEffects


async def execute(session: MysqlSession, unit: WorkUnit) -> UnitEffects:
    """Within a transaction: carry out the unit, and record it. Raises `SettlementsFailed`, and refuses as `lock_states`;
    then the transaction must be undone.
    """
    left = await settling.settle_locked(session, unit.settlements)
    states = await lock_states(session, unit.states)
    drafts = unit.drafts if states.recorded is None else ()
    receipts = await sending.store(session, drafts, session.execute) if drafts else []
    await add_synchronous_sends(session, drafts, receipts)
    admitted = await admit(session, [*left, *entered_groups(drafts, receipts)])
    receipts, admitted = await with_admitted(session, drafts, receipts, admitted)
    await record_unit(session, replace(unit, drafts=drafts), receipts, admitted)
    versions = await add_versions(session, states, unit.states, receipts)
    return UnitEffects(states.recorded or receipts, admitted, versions=versions)
