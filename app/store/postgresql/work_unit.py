"""Work units on PostgreSQL: the statements of settlements, states and sends, in one transaction."""

from collections.abc import Sequence
from dataclasses import replace

from app.broker.ports import Admitted
from app.domain.message import MessageState
from app.domain.settlement import Move
from app.domain.work_unit import WorkUnit
from app.store.postgresql import sending
from app.store.postgresql.settling import IN_GROUPS, MOVE, REMOVE, left_groups, settle
from app.store.shared.database import SqlSession
from app.store.shared.groups import admit, entered_groups, with_admitted
from app.store.shared.history import record_unit
from app.store.shared.rows import Row
from app.store.shared.states import add_versions, lock_states
from app.store.shared.synchronous_sends import add_synchronous_sends
from app.store.shared.unit_effects import UnitEffects, check_effective


async def execute(session: SqlSession, unit: WorkUnit) -> UnitEffects:
    """Within a transaction: carry out the unit, and record it. Raises `SettlementsFailed`, and refuses as `lock_states`;
    then the transaction must be undone.
    """
    removals, moves = unit.removals, unit.moves
    removed = await settle(session, REMOVE, removals, **IN_GROUPS)
    moved = await settle(session, MOVE, moves, **IN_GROUPS)
    check_effective([*removals, *moves], (row is not None for row in (*removed, *moved)))
    states = await lock_states(session, unit.states)
    drafts = unit.drafts if states.recorded is None else ()
    receipts = await sending.send(session, drafts) if drafts else []
    await add_synchronous_sends(session, drafts, receipts)
    groups = [*left_groups(removed), *left_groups(moved), *entered_groups(drafts, receipts)]
    receipts, admitted = await with_admitted(session, drafts, receipts, await admit(session, groups))
    await record_unit(session, replace(unit, drafts=drafts), receipts, admitted)
    versions = await add_versions(session, states, unit.states, receipts)
    return UnitEffects(states.recorded or receipts, admitted, _returned(moves, moved), versions)


def _returned(moves: Sequence[Move], moved: Sequence[Row | None]) -> list[Admitted]:
    """Return the messages that moves have made available, from the rows that report them."""
    returned: list[Admitted] = []
    for move, row in zip(moves, moved, strict=True):
        if row is not None and move.state is MessageState.AVAILABLE:
            *_, priority, available_at = row
            returned.append(Admitted(move.queue_id, move.token.sequence_number, priority, available_at))
    return returned
