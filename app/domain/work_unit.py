"""Work units: settlements and sends that take effect together, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.message import Draft, Receipt
from app.domain.settlement import Move, Removal, Settled, Settlement


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Changes that a store makes in one transaction: first the settlements, then the sends in their order.

    No two settlements have the same token. The drafts may belong to different queues.
    """

    settlements: Sequence[Settlement] = ()
    drafts: Sequence[Draft] = ()

    @property
    def removals(self) -> list[Removal]:
        """The settlements that remove a message from its queue."""
        return [settlement for settlement in self.settlements if isinstance(settlement, Removal)]

    @property
    def moves(self) -> list[Move]:
        """The settlements that keep a message in its queue."""
        return [settlement for settlement in self.settlements if isinstance(settlement, Move)]


@dataclass(frozen=True, slots=True)
class WorkUnitResult:
    """What a work unit has done: a result for each settlement and a receipt for each draft, in order."""

    settled: list[Settled]
    receipts: list[Receipt]
