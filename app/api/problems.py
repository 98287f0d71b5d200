"""Refusals as problem documents: the one table from what went wrong to what HTTP says."""

import re

from app.domain.refusals import (
    AlreadySettled,
    Conflict,
    Forbidden,
    InvalidRequest,
    KeyReused,
    LockLost,
    MessageTooLarge,
    NotFound,
    PreconditionFailed,
    QueueFull,
    RateLimited,
    ReceiveDisabled,
    Refusal,
    RoomUnavailable,
    SendDisabled,
    Unauthenticated,
)
from app.wire.problems import Problem, ProblemFault
from app.wire.times import maybe_to_wire

STATUS: dict[type[Refusal], int] = {
    InvalidRequest: 422,
    KeyReused: 422,
    NotFound: 404,
    Conflict: 409,
    LockLost: 410,
    PreconditionFailed: 412,
    MessageTooLarge: 413,
    RateLimited: 429,
    QueueFull: 507,
    SendDisabled: 403,
    ReceiveDisabled: 403,
    Forbidden: 403,
    Unauthenticated: 401,
}
"""The status of a refusal is that of the nearest class above it in this table."""

TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Content too large",
    422: "Unprocessable content",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
    507: "Insufficient storage",
}

RETRY_AFTER_SECONDS = {429: 1, 503: 1}
RETRYABLE = frozenset({429, 500, 503})


def status_of(error: Refusal | RoomUnavailable) -> int:
    """The HTTP status of something the broker said no to."""
    if isinstance(error, RoomUnavailable):
        return 503
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem_of(error: Refusal | RoomUnavailable, tracking_id: str) -> Problem:
    """The problem document of something the broker said no to."""
    status = status_of(error)
    problem = plain_problem(status, error.code, str(error) or (type(error).__doc__ or ""), tracking_id)
    if isinstance(error, Refusal):
        problem.retryable = error.retryable or status in RETRYABLE
    if isinstance(error, InvalidRequest):
        problem.errors = [ProblemFault(fault.pointer, fault.detail) for fault in error.faults] or None
    if isinstance(error, AlreadySettled):
        problem.outcome = error.outcome
    if isinstance(error, LockLost):
        problem.lost_at = maybe_to_wire(error.lost_at)
        problem.cause = error.cause
        problem.delivered_again = error.delivered_again
    return problem


def plain_problem(status: int, code: str, detail: str, tracking_id: str) -> Problem:
    """A problem document of the usual shape."""
    return Problem(
        type=f"urn:peeklock:problem:{code}",
        title=TITLES.get(status, "Error"),
        status=status,
        detail=detail,
        code=code,
        tracking_id=tracking_id,
        retryable=status in RETRYABLE,
    )


WHERE = re.compile(r" - at `(?:key in )?\$(.*)`$")
FIELD = re.compile(r"`(\w+)`$")


def pointer_and_detail(complaint: str) -> tuple[str, str]:
    """A decoder's complaint, split into the JSON pointer of the fault and what is wrong there."""
    found = WHERE.search(complaint)
    detail = complaint[: found.start()] if found else complaint
    pointer = _pointer(found.group(1)) if found else ""
    # A missing or unknown field is named in the sentence, at the object it should be in.
    if (field := FIELD.search(detail)) and "field" in detail:
        pointer += f"/{field.group(1)}"
    return pointer, detail + "."


def _pointer(path: str) -> str:
    """`.messages[3].priority` as `/messages/3/priority`; a key of a map is not told by the decoder."""
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")
