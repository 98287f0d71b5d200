"""Settlements and renewals in requests and responses."""

from typing import Annotated, Literal, TypeAlias, assert_never

import msgspec

from app.domain.message import MAX_BATCH_COUNT
from app.domain.settlement import Outcome, Settled
from app.wire.field_types import (
    STATE_NAMES,
    DelaySeconds,
    Description,
    LockSeconds,
    LockTokenText,
    Reason,
    StateName,
    Timestamp,
)
from app.wire.problems import Problem
from app.wire.properties import RawProperties


class CompleteLock(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a complete: none."""


class AbandonLock(msgspec.Struct, forbid_unknown_fields=True):
    """Return the message after `delay_seconds` or the queue's retry delay.

    It counts as a failure unless `count` is false.
    """

    delay_seconds: DelaySeconds | None = None
    count: bool = True
    reason: Reason | None = None
    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class DeadLetterLock(msgspec.Struct, forbid_unknown_fields=True):
    """Move the message to the dead-letter queue, because it cannot be processed."""

    reason: Reason | None = None
    description: Description | None = None
    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class DeferLock(msgspec.Struct, forbid_unknown_fields=True):
    """Set the message aside, to be received later by its sequence number."""

    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class RenewLock(msgspec.Struct, forbid_unknown_fields=True):
    """Extend the lock to `lock_seconds` from now (default: the queue's lock duration)."""

    lock_seconds: LockSeconds | None = None


SettleLock: TypeAlias = CompleteLock | AbandonLock | DeadLetterLock | DeferLock
"""What the holder of a lock asks for to end its delivery."""


class CompleteSettlement(CompleteLock, tag_field="action", tag="complete", kw_only=True):
    """Complete one delivery."""

    lock_token: LockTokenText


class AbandonSettlement(AbandonLock, tag_field="action", tag="abandon", kw_only=True):
    """Abandon one delivery."""

    lock_token: LockTokenText


class DeadLetterSettlement(DeadLetterLock, tag_field="action", tag="dead_letter", kw_only=True):
    """Dead-letter one delivery."""

    lock_token: LockTokenText


class DeferSettlement(DeferLock, tag_field="action", tag="defer", kw_only=True):
    """Defer one delivery."""

    lock_token: LockTokenText


class RenewSettlement(RenewLock, tag_field="action", tag="renew", kw_only=True):
    """Renew one lock."""

    lock_token: LockTokenText


Settlement: TypeAlias = (
    CompleteSettlement | AbandonSettlement | DeadLetterSettlement | DeferSettlement | RenewSettlement
)


RawSettlement: TypeAlias = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/Settlement"})
]
"""A settlement of a batch, not decoded at first, because each may be refused separately."""


class SettleMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Settlements in one request, each with its own result. Of two with the same token, the second is refused."""

    settlements: Annotated[list[RawSettlement], msgspec.Meta(min_length=1, max_length=MAX_BATCH_COUNT)]


SettledOutcome: TypeAlias = Literal["completed", "abandoned", "dead_lettered", "deferred"]


class SettlementDone(msgspec.Struct, omit_defaults=True):
    """A settlement that took effect; `replayed` is true if an earlier request had settled the message.

    `state` is the new state of a message that stays in the queue.
    """

    outcome: SettledOutcome
    sequence_number: int
    replayed: bool
    state: StateName | None = None


class LockRenewed(msgspec.Struct):
    """How long the lock now lasts. Use `lock_remaining_ms`, because clocks differ."""

    locked_until: Timestamp
    lock_remaining_ms: int


class SettledResult(SettlementDone, tag_field="result", tag="settled", kw_only=True):
    """One settlement of a batch that took effect."""

    lock_token: str


class RenewedResult(LockRenewed, tag_field="result", tag="renewed", kw_only=True):
    """One renewal of a batch that took effect."""

    lock_token: str


class RefusedResult(msgspec.Struct, tag_field="result", tag="refused"):
    """One settlement or renewal of a batch that had no effect, and why; `lock_token` is null if the entry has none."""

    lock_token: str | None
    problem: Problem


SettlementResult: TypeAlias = SettledResult | RenewedResult | RefusedResult


class SettlementResults(msgspec.Struct):
    """The result of each settlement, in order."""

    results: list[SettlementResult]


def settlement_done(settled: Settled) -> SettlementDone:
    """Build the JSON of a settlement that took effect."""
    state = None if settled.state is None else STATE_NAMES[settled.state]
    return SettlementDone(outcome_name(settled.outcome), settled.sequence_number, settled.replayed, state)


def outcome_name(outcome: Outcome) -> SettledOutcome:
    """Return the outcome in responses. Raises `ValueError` for one that no holder asks for."""
    match outcome:
        case Outcome.COMPLETED:
            return "completed"
        case Outcome.ABANDONED:
            return "abandoned"
        case Outcome.DEAD_LETTERED:
            return "dead_lettered"
        case Outcome.DEFERRED:
            return "deferred"
        case (
            Outcome.RECEIVED
            | Outcome.RELEASED
            | Outcome.RECOVERED
            | Outcome.LOCK_EXPIRED
            | Outcome.ENTITY_CHANGED
            | Outcome.EXPIRED
            | Outcome.PURGED
            | Outcome.CANCELLED
        ):
            raise ValueError(f"no settlement of a holder ends as {outcome.value}")
        case _:
            assert_never(outcome)
