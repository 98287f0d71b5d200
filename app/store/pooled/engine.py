"""What each engine on a database server implements itself, in addition to `Engine`."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from app.broker.ports.settling import Admitted, Extended, Extension
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, Receipt
from app.domain.settlement import Move, Removal
from app.domain.work_unit import WorkUnit
from app.store.pooled.pool import AnySession
from app.store.shared.engine import Engine, UnitEffects
from app.store.shared.groups import GroupKey, admit, entered_groups, with_admitted
from app.store.shared.history import record_sent, record_unit
from app.store.shared.states import add_versions, lock_states
from app.store.shared.synchronous_sends import add_synchronous_sends


class PooledEngine(Engine[AnySession]):
    """An `Engine` on a database server. Each `run_` method runs a batch: the requests of callers that arrived together.

    A batch returns one result per entry, in order. It takes effect as a whole or raises. It announces what it has admitted.
    """

    unsafe_settings: ClassVar[Mapping[str, str]]
    """Warnings about server settings that can lose an acknowledged commit."""

    @abstractmethod
    async def run_sends(self, drafts: list[Draft]) -> list[Receipt]:
        """Store drafts. Return their receipts."""

    @abstractmethod
    async def run_claims(self, claims: list[Claim]) -> list[list[Message] | Exception]:
        """Lock the next messages for each claim. A claim gets `RequeueEntryError` if others used up the budget of bytes."""

    @abstractmethod
    async def run_claim_by_number(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """Lock those of these messages that are in the source state of one claim, in this order."""

    @abstractmethod
    async def run_removals(self, removals: list[Removal]) -> list[bool]:
        """Remove locked messages. Return whether each fence held."""

    @abstractmethod
    async def run_moves(self, moves: list[Move]) -> list[bool]:
        """End locks and move their messages. Return whether each fence held."""

    @abstractmethod
    async def run_releases(self, moves: list[Move]) -> list[bool]:
        """Move messages whose locks have ended. Return whether each fence held."""

    @abstractmethod
    async def run_extensions(self, extensions: list[Extension]) -> list[Extended | None]:
        """Extend locks that have not ended. Return None for each lock that has."""

    @abstractmethod
    async def store_within(self, session: AnySession, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store drafts. One that repeats a recent message id gets the first one's receipt. Raises `MessageIdInUse`."""

    @abstractmethod
    async def settle_within(self, session: AnySession, unit: WorkUnit) -> tuple[list[GroupKey], list[Admitted]]:
        """Carry out the settlements of a unit. Raises `SettlementsFailed`.

        Return the groups that messages have left, and the messages that are available again, if the engine reports them.
        """

    async def send_within(self, session: AnySession, drafts: Sequence[Draft]) -> tuple[list[Receipt], list[Admitted]]:
        """Store drafts, admit those whose groups have free places, and record it.

        Return the receipts, and other messages that were admitted.
        """
        receipts = await self.store_within(session, drafts)
        admitted = await admit(session, entered_groups(drafts, receipts))
        receipts, others = await with_admitted(session, drafts, receipts, admitted)
        await record_sent(session, drafts, receipts, others)
        return receipts, others

    async def execute_within(self, session: AnySession, unit: WorkUnit) -> UnitEffects:
        """See `Engine`."""
        left, returned = await self.settle_within(session, unit)
        states = await lock_states(session, unit.states)
        drafts = unit.drafts if states.recorded is None else ()
        receipts = await self.store_within(session, drafts) if drafts else []
        await add_synchronous_sends(session, drafts, receipts)
        admitted = await admit(session, [*left, *entered_groups(drafts, receipts)])
        receipts, admitted = await with_admitted(session, drafts, receipts, admitted)
        await record_unit(session, replace(unit, drafts=drafts), receipts, admitted)
        versions = await add_versions(session, states, unit.states, receipts)
        return UnitEffects(states.recorded or receipts, admitted, returned, versions)
