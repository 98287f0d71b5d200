"""Errors on the wire: RFC 9457 problem documents with a stable code."""

import msgspec

from app.domain.refusals import LossCause
from app.wire.field_types import Timestamp


class ProblemFault(msgspec.Struct):
    """One thing wrong with the request: where it is and what is the matter there.

    In the body a JSON pointer (RFC 6901) says where; elsewhere `#/query/`, `#/header/` or `#/path/` and the name.
    """

    pointer: str
    detail: str


class Problem(msgspec.Struct, omit_defaults=True):
    """Why a request had no effect. `code` is stable; `retryable` says whether repeating it as it is can help."""

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
