"""What a work unit has changed, as its store needs it after the commit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

from app.broker.ports import Admitted, SettlementsFailed
from app.domain.message import Receipt
from app.domain.settlement import Settlement, settled_by
from app.domain.state import AddedVersion
from app.domain.work_unit import WorkUnit, WorkUnitResult


@dataclass(frozen=True, slots=True)
class UnitEffects:
    """The receipts of the drafts, other messages that were admitted, and the versions of the states.

    `returned` are the messages that moves have made available, if the engine reports them.
    """

    receipts: Sequence[Receipt]
    admitted: Sequence[Admitted]
    returned: Sequence[Admitted] = ()
    versions: Sequence[AddedVersion] = ()

    def result(self, unit: WorkUnit) -> WorkUnitResult:
        """Return the result of the unit that had these effects."""
        settled = [settled_by(settlement) for settlement in unit.settlements]
        return WorkUnitResult(settled, list(self.receipts), list(self.versions))


def check_effective(settlements: Sequence[Settlement], effective: Iterable[bool]) -> None:
    """Raise `SettlementsFailed`, so that the transaction is undone, unless all settlements took effect."""
    failed = compress(settlements, (not one for one in effective))
    if tokens := frozenset(settlement.token for settlement in failed):
        raise SettlementsFailed(tokens)
