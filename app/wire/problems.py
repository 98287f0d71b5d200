"""Errors in responses: RFC 9457 problem documents with a stable code."""

import msgspec

from app.domain.refusals import LossCause
from app.wire.field_types import Timestamp


class ProblemFault(msgspec.Struct):
    """One error in the request: its position and a description.

    `pointer` is a JSON pointer (RFC 6901) into the body, or `#/query/`, `#/header/` or `#/path/` and the name.
    """

    pointer: str
    detail: str


class Problem(msgspec.Struct, omit_defaults=True):
    """Why a request had no effect. `code` is stable; `retryable` says whether an unchanged repeat may succeed."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    tracking_id: str
    retryable: bool
    errors: list[ProblemFault] | None = None
    outcome: str | None = None
    lost_at: Timestamp | None = None
    cause: LossCause | None = None
    delivered_again: bool | None = None
