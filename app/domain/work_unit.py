"""Work units: settlements, changes of states and sends that take effect together, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.domain.message import Draft, Receipt
from app.domain.settlement import Move, Removal, Settled, Settlement
from app.domain.state import AddedVersion, StateChange


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Changes that a store makes in one transaction: first settlements, then states, then sends in their order.

    No two settlements have the same token, and no two changes of states the same key. The drafts may belong to different
    queues. If a change of a state is a duplicate, nothing is sent: the result has the receipts of the first processing.
    """

    settlements: Sequence[Settlement] = ()
    drafts: Sequence[Draft] = ()
    states: Sequence[StateChange] = ()

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
    """What a work unit has done: a result for each settlement, a receipt for each draft, and a version for each state."""

    settled: list[Settled]
    receipts: list[Receipt]
    versions: list[AddedVersion] = field(default_factory=list[AddedVersion])

    @property
    def is_duplicate(self) -> bool:
        """Whether the receipts are those of an earlier processing."""
        return any(version.duplicate for version in self.versions)
