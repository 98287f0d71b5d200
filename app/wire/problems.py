"""Errors in responses: RFC 9457 problem documents with a stable code."""

from typing import Annotated, TypeAlias

import msgspec

from app.domain.refusals import LossCause
from app.domain.transaction_refusals import MemberName, RollbackCause
from app.wire.field_types import Timestamp

ProblemCause: TypeAlias = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": [cause.value for cause in (*LossCause, *RollbackCause)]})
]
"""Why a lock was lost, or a transaction was rolled back."""


class ProblemFault(msgspec.Struct):
    """One fault of the request."""

    pointer: str
    detail: str


class TransactionMember(msgspec.Struct, omit_defaults=True):
    """A member of a transaction."""

    place: int
    queue: str
    message_id: str | None = None
    sequence_number: int | None = None


class Problem(msgspec.Struct, omit_defaults=True):
    """Why a request had no effect."""

    type: str
    title: str
    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    detail: str
    code: str
    tracking_id: str
    retryable: bool
    retry_after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    errors: list[ProblemFault] | None = None
    outcome: str | None = None
    lost_at: Timestamp | None = None
    cause: ProblemCause | None = None
    delivered_again: bool | None = None
    member: TransactionMember | None = None
    current_version: int | None = None


def transaction_member(name: MemberName | None) -> TransactionMember | None:
    """Build the JSON of the name of a member."""
    return None if name is None else TransactionMember(name.place, name.queue, name.message_id, name.sequence_number)
