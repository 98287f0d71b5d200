"""Settlements and renewals in requests and responses."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec

from app.domain.message import MAX_BATCH_COUNT
from app.domain.settlement import Outcome, Settled, settled_by
from app.domain.transaction import JoinedIntent
from app.wire.field_types import (
    STATE_NAMES,
    AnyJson,
    DelaySeconds,
    Description,
    LockSeconds,
    LockTokenText,
    Reason,
    StateName,
    Timestamp,
    TransactionId,
)
from app.wire.problems import Problem
from app.wire.properties import RawProperties


class CompleteAction(msgspec.Struct, forbid_unknown_fields=True):
    """Complete the message. `reply` is for a sender that waits for the settlement; otherwise it is discarded."""

    reply: AnyJson | msgspec.UnsetType = msgspec.UNSET


class AbandonAction(msgspec.Struct, forbid_unknown_fields=True):
    """Return the message after `delay_seconds` or the queue's retry delay.

    It counts as a failure unless `count` is false.
    """

    delay_seconds: DelaySeconds | None = None
    count: bool = True
    reason: Reason | None = None
    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class DeadLetterAction(msgspec.Struct, forbid_unknown_fields=True):
    """Move the message to the dead-letter queue, because it cannot be processed."""

    reason: Reason | None = None
    description: Description | None = None
    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class DeferAction(msgspec.Struct, forbid_unknown_fields=True):
    """Set the message aside, to be received later by its sequence number."""

    properties: RawProperties | msgspec.UnsetType = msgspec.UNSET


class ReleaseAction(msgspec.Struct, forbid_unknown_fields=True):
    """Return the message unprocessed, as if it had not been delivered."""


class CompleteLock(CompleteAction, kw_only=True):
    """Complete, at once or with a transaction."""

    transaction_id: TransactionId | None = None


class AbandonLock(AbandonAction, kw_only=True):
    """Abandon, at once or with a transaction."""

    transaction_id: TransactionId | None = None


class DeadLetterLock(DeadLetterAction, kw_only=True):
    """Dead-letter, at once or with a transaction."""

    transaction_id: TransactionId | None = None


class DeferLock(DeferAction, kw_only=True):
    """Defer, at once or with a transaction."""

    transaction_id: TransactionId | None = None


class ReleaseLock(ReleaseAction, kw_only=True):
    """Release, at once or with a transaction."""

    transaction_id: TransactionId | None = None


SettleLock: TypeAlias = CompleteLock | AbandonLock | DeadLetterLock | DeferLock | ReleaseLock
"""A settlement of one lock, in a request of its own."""


class RenewLock(msgspec.Struct, forbid_unknown_fields=True):
    """Extend the lock to `lock_seconds` from now (default: the queue's lock duration). With `exact` it ends exactly then."""

    lock_seconds: LockSeconds | None = None
    exact: bool = False


SettleAction: TypeAlias = CompleteAction | AbandonAction | DeadLetterAction | DeferAction | ReleaseAction
"""What the holder of a lock asks for to end its delivery."""


class CompleteSettlement(CompleteAction, tag_field="action", tag="complete", kw_only=True):
    """Complete one delivery."""

    lock_token: LockTokenText


class AbandonSettlement(AbandonAction, tag_field="action", tag="abandon", kw_only=True):
    """Abandon one delivery."""

    lock_token: LockTokenText


class DeadLetterSettlement(DeadLetterAction, tag_field="action", tag="dead_letter", kw_only=True):
    """Dead-letter one delivery."""

    lock_token: LockTokenText


class DeferSettlement(DeferAction, tag_field="action", tag="defer", kw_only=True):
    """Defer one delivery."""

    lock_token: LockTokenText


class ReleaseSettlement(ReleaseAction, tag_field="action", tag="release", kw_only=True):
    """Release one delivery."""

    lock_token: LockTokenText


class RenewSettlement(RenewLock, tag_field="action", tag="renew", kw_only=True):
    """Renew one lock."""

    lock_token: LockTokenText


Settlement: TypeAlias = (
    CompleteSettlement
    | AbandonSettlement
    | DeadLetterSettlement
    | DeferSettlement
    | ReleaseSettlement
    | RenewSettlement
)


RawSettlement: TypeAlias = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/Settlement"})
]
"""A settlement of a batch, not decoded at first, because each may be refused separately."""


class SettleMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Settlements in one request, each with its own result. Of two with the same token, the second is refused.

    In a transaction, renewals take effect at once, and all others with the commit.
    """

    settlements: Annotated[list[RawSettlement], msgspec.Meta(min_length=1, max_length=MAX_BATCH_COUNT)]
    transaction_id: TransactionId | None = None


SettledOutcome: TypeAlias = Literal["completed", "abandoned", "dead_lettered", "deferred", "released"]


class SettlementDone(msgspec.Struct, omit_defaults=True):
    """A settlement that took effect, or that waits for the commit of a transaction."""

    outcome: SettledOutcome
    sequence_number: int
    replayed: bool
    state: StateName | None = None
    pending: bool = False


class LockRenewed(msgspec.Struct):
    """How long the lock now lasts."""

    locked_until: Timestamp
    lock_remaining_ms: int


class SettledResult(SettlementDone, tag_field="result", tag="settled", kw_only=True):
    """One settlement of a batch that took effect."""

    lock_token: str


class RenewedResult(LockRenewed, tag_field="result", tag="renewed", kw_only=True):
    """One renewal of a batch that took effect."""

    lock_token: str


class RefusedResult(msgspec.Struct, tag_field="result", tag="refused"):
    """One settlement or renewal of a batch that had no effect, and why."""

    lock_token: str | None
    problem: Problem


SettlementResult: TypeAlias = SettledResult | RenewedResult | RefusedResult


class SettlementResults(msgspec.Struct):
    """The result of each settlement, in order."""

    results: list[SettlementResult]


OUTCOME_NAMES: Mapping[Outcome, SettledOutcome] = {
    Outcome.COMPLETED: "completed",
    Outcome.ABANDONED: "abandoned",
    Outcome.DEAD_LETTERED: "dead_lettered",
    Outcome.DEFERRED: "deferred",
    Outcome.RELEASED: "released",
}
"""The outcomes that holders ask for. No settlement of a holder has another one."""


def settlement_done(settled: Settled) -> SettlementDone:
    """Build the JSON of a settlement that took effect."""
    state = None if settled.state is None else STATE_NAMES[settled.state]
    return SettlementDone(OUTCOME_NAMES[settled.outcome], settled.sequence_number, settled.replayed, state)


def settlement_pending(joined: JoinedIntent) -> SettlementDone:
    """Build the JSON of a settlement that waits for the commit of its transaction."""
    done = settlement_done(settled_by(joined.settlement))
    return SettlementDone(done.outcome, done.sequence_number, joined.replayed, done.state, pending=True)
