"""What each engine implements itself. All engines share the rest of a store."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar, Generic, TypeVar

from app.broker.ports.attempts import Attempt
from app.broker.ports.settling import Admitted, Extension
from app.broker.ports.transactions import SettlementsFailed
from app.domain.delivery import Claim
from app.domain.message import Message, Receipt
from app.domain.settlement import LockToken, Removal, Settlement, settled_by
from app.domain.state import AddedVersion
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.store.shared.database import SqlSession
from app.store.shared.statements import Dialect

Session = TypeVar("Session", bound=SqlSession)
Result = TypeVar("Result")


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


class Engine(ABC, Generic[Session]):
    """What an engine does in its own way. Its `dialect` has its syntax and its own statements.

    Each method with a session runs within an SQL transaction. The transaction is undone if the method raises.
    """

    dialect: ClassVar[Dialect]

    @abstractmethod
    async def run(self, work: Callable[[Session], Awaitable[Result]], weight: int = 0) -> Result:
        """Run the work in one SQL transaction, again after a pause if another one uses a message id or attempt that it needs.

        `weight` is the bytes that the work writes or may read. An engine may run light work together.
        """

    @abstractmethod
    async def begin_attempt(self, session: Session, attempt: Attempt) -> str | None:
        """Return the answer of the first try, or None if this is the first. Then no other transaction can begin the attempt
        until this one ends.

        Refuses with `KeyReused`.
        """

    @abstractmethod
    async def answer_attempt(self, session: Session, attempt: Attempt, answer: str) -> None:
        """Keep the answer of an attempt that this transaction has begun. The transaction does nothing more."""

    @abstractmethod
    async def forget_attempt(self, session: Session) -> None:
        """Undo the beginning of an attempt, so that a repeat is a first try. The transaction has changed nothing else."""

    @abstractmethod
    async def execute_within(self, session: Session, unit: WorkUnit) -> UnitEffects:
        """Carry out a work unit, and record it. Raises `SettlementsFailed` and `QueueGone`, and refuses as `lock_states` does."""

    @abstractmethod
    def on_executed(self, unit: WorkUnit, effects: UnitEffects) -> None:
        """Announce what a work unit has changed, after its commit."""

    @abstractmethod
    async def claim_within(self, session: Session, claim: Claim) -> list[Message]:
        """Lock the next messages of a queue for a receiver."""

    @abstractmethod
    async def still_locked_within(self, session: Session, tokens: Sequence[LockToken]) -> list[Message]:
        """Return the messages that these tokens still lock, in the order of the tokens."""

    @abstractmethod
    async def remove_within(self, session: Session, removals: Sequence[Removal]) -> tuple[list[bool], list[Admitted]]:
        """Remove locked messages. Return whether each fence held, and the messages that are announced after the commit."""

    @abstractmethod
    async def extend_within(self, session: Session, extensions: Sequence[Extension]) -> list[bool]:
        """Extend locks, and record it. Return whether each fence held."""

    @abstractmethod
    async def add_members(self, session: Session, members: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows of members of a transaction. Refuses with `MessageTooLarge` if the database accepts no row as large."""
