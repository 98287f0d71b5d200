"""Settlements as holders ask for them and as they are answered."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from app.domain.message import MAX_BATCH_COUNT
from app.domain.settlement import Outcome
from app.wire.field_types import DelaySeconds, Description, LockSeconds, LockTokenText, Reason, StateName, Timestamp
from app.wire.problems import Problem
from app.wire.properties import RawProperties


class CompleteLock(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing more to say: the message is done."""


class AbandonLock(msgspec.Struct, forbid_unknown_fields=True):
    """Give the message back: after `delay_seconds` or the queue's retry delay, counted unless `count` is false."""

    delay_seconds: DelaySeconds | None = None
    count: bool = True
    reason: Reason | None = None
    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class DeadLetterLock(msgspec.Struct, forbid_unknown_fields=True):
    """Set the message aside as one that cannot be processed."""

    reason: Reason | None = None
    description: Description | None = None
    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class DeferLock(msgspec.Struct, forbid_unknown_fields=True):
    """Set the message aside, to be received by its sequence number."""

    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class RenewLock(msgspec.Struct, forbid_unknown_fields=True):
    """Hold the lock for `lock_seconds` from now, or for the queue's lock duration."""

    lock_seconds: LockSeconds | None = None


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
"""A settlement of a batch, unread at first, because each may be refused alone."""


class SettleMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Settlements carried out in one call, each with its own result; of two with one token the second is refused."""

    settlements: Annotated[list[RawSettlement], msgspec.Meta(min_length=1, max_length=MAX_BATCH_COUNT)]


SettledOutcome: TypeAlias = Literal["completed", "abandoned", "dead_lettered", "deferred"]
OUTCOME_NAMES: Final[Mapping[Outcome, SettledOutcome]] = {
    Outcome.COMPLETED: "completed",
    Outcome.ABANDONED: "abandoned",
    Outcome.DEAD_LETTERED: "dead_lettered",
    Outcome.DEFERRED: "deferred",
}


class SettlementDone(msgspec.Struct, omit_defaults=True):
    """A settlement that took effect; `replayed` when it had done so before.

    `state` is where the message went, for those that stay in the queue.
    """

    outcome: SettledOutcome
    sequence_number: int
    replayed: bool
    state: StateName | None = None


class LockRenewed(msgspec.Struct):
    """How long the lock now lasts; measure by `lock_remaining_ms`, clocks differ."""

    locked_until: Timestamp
    lock_remaining_ms: int


class SettledResult(SettlementDone, tag_field="result", tag="settled", kw_only=True):
    """One settlement of a batch that took effect."""

    lock_token: str


class RenewedResult(LockRenewed, tag_field="result", tag="renewed", kw_only=True):
    """One renewal of a batch that took effect."""

    lock_token: str


class RefusedResult(msgspec.Struct, tag_field="result", tag="refused"):
    """One settlement or renewal of a batch that had no effect, and why; `lock_token` is null where it has none."""

    lock_token: str | None
    problem: Problem


SettlementResult: TypeAlias = SettledResult | RenewedResult | RefusedResult


class SettlementResults(msgspec.Struct):
    """What became of each settlement, in order."""

    results: list[SettlementResult]
