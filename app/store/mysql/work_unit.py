"""Work units on MariaDB and MySQL: the statements of settlements and sends, in one transaction."""

from app.domain.work_unit import WorkUnit
from app.store.mysql import sending, settling
from app.store.mysql.session import MysqlSession
from app.store.records.groups import admit, entered_groups, with_admitted
from app.store.records.history import record_unit
from app.store.records.unit_effects import UnitEffects


async def execute(session: MysqlSession, unit: WorkUnit) -> UnitEffects:
    """Within a transaction: carry out the unit, and record it. Raises `SettlementsFailed`; then the transaction must be undone."""
    left = await settling.settle_locked(session, unit.settlements)
    receipts = await sending.store(session, unit.drafts, session.execute) if unit.drafts else []
    receipts, admitted = with_admitted(receipts, await admit(session, [*left, *entered_groups(unit.drafts, receipts)]))
    await record_unit(session, unit, receipts, admitted)
    return UnitEffects(receipts, admitted)
