"""Convert refusals to problem documents, and map each to its HTTP status."""

from collections.abc import Mapping
from typing import TypeVar

from app.domain.refusals import (
    AlreadySettled,
    BackendUnavailable,
    Conflict,
    Forbidden,
    InvalidRequest,
    KeyReused,
    LockLost,
    MessageTooLarge,
    NoAnswer,
    NotFound,
    PreconditionFailed,
    QueueFull,
    RateLimited,
    ReceiveDisabled,
    Refusal,
    SendDisabled,
    StoreNotDurable,
    Unauthenticated,
    UnsupportedContentEncoding,
)
from app.domain.state_refusals import VersionConflict
from app.domain.transaction_refusals import TransactionRolledBack
from app.http.asgi import Headers
from app.wire.problems import Problem, ProblemFault, transaction_member
from app.wire.times import maybe_to_wire

Kind = TypeVar("Kind")

STATUS: dict[type[Refusal], int] = {
    InvalidRequest: 422,
    KeyReused: 422,
    NotFound: 404,
    Conflict: 409,
    LockLost: 410,
    PreconditionFailed: 412,
    MessageTooLarge: 413,
    UnsupportedContentEncoding: 415,
    RateLimited: 429,
    QueueFull: 507,
    StoreNotDurable: 503,
    NoAnswer: 504,
    SendDisabled: 403,
    ReceiveDisabled: 403,
    Forbidden: 403,
    Unauthenticated: 401,
}
"""The status of a refusal is that of its nearest base class in this table."""

TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Content too large",
    414: "URI too long",
    415: "Unsupported media type",
    422: "Unprocessable content",
    429: "Too many requests",
    431: "Request header fields too large",
    500: "Internal server error",
    501: "Not implemented",
    503: "Service unavailable",
    504: "Gateway timeout",
    507: "Insufficient storage",
}

PARSE_ERROR_CODES = {
    400: "malformed-request",
    408: "request-timeout",
    414: "url-too-long",
    431: "headers-too-large",
    501: "unknown-transfer-coding",
}
"""The codes of problems that the parser finds before an operation is known."""

COMMON_CODES = frozenset(
    (
        *PARSE_ERROR_CODES.values(),
        "unauthenticated",
        "forbidden",
        "not-found",
        "method-not-allowed",
        "message-too-large",
        "unsupported-content-encoding",
        "invalid-request",
        "internal-error",
        "overloaded",
        "queue-needs-newer-server",
        "store-unavailable",
    )
)
"""The codes of problems that any operation may answer, because of its request, its key, its queue or the server."""

MAX_DETAIL_LENGTH = 500
"""Characters. Texts without quoted input are shorter."""

RETRYABLE = frozenset({429, 500, 503})

RETRY_AFTER: Mapping[int, int] = {429: 1, 503: 1}
"""Seconds after which a client may try again, by the status of the problem."""

HEADERS_OF_STATUS: Mapping[int, Headers] = {
    401: ((b"www-authenticate", b'Bearer realm="peeklock"'),),
    415: ((b"accept-encoding", b"identity"),),
}
"""The headers that tell a client how to mend its request, by the status of the problem."""


def status_of(kind: type[Refusal | BackendUnavailable]) -> int:
    """Return the HTTP status of a class of refusals."""
    if issubclass(kind, BackendUnavailable):
        return 503
    for base in kind.__mro__:
        if base in STATUS:
            return STATUS[base]
    raise LookupError(f"{kind.__name__} has no status: add it or a base class to STATUS.")


def codes_of_status(status: int) -> list[str]:
    """Return the codes of all problems with this status."""
    if status in PARSE_ERROR_CODES:
        return [PARSE_ERROR_CODES[status]]
    if status == 500:
        return ["internal-error"]
    kinds: list[type[Refusal | BackendUnavailable]] = [*_subclasses(Refusal), *_subclasses(BackendUnavailable)]
    return sorted({kind.code for kind in kinds if status_of(kind) == status})


def problem_of(error: Refusal | BackendUnavailable, tracking_id: str, entry: str = "") -> Problem:
    """Return the problem document of a refusal or of an unavailable backend.

    `entry` is the pointer to the entry of the body that was refused, if it was not the whole request.
    """
    status = status_of(type(error))
    problem = make_problem(status, error.code, str(error), tracking_id)
    if isinstance(error, Refusal):
        problem.retryable = error.retryable
        problem.errors = [
            ProblemFault(_pointer(entry, fault.pointer), _truncate(fault.detail)) for fault in error.field_errors
        ] or None
    if isinstance(error, AlreadySettled):
        problem.outcome = error.outcome
    if isinstance(error, VersionConflict):
        problem.current_version = error.current_version
    if isinstance(error, LockLost):
        problem.lost_at = maybe_to_wire(error.lost_at)
        problem.cause = error.cause
        problem.delivered_again = error.delivered_again
    if isinstance(error, TransactionRolledBack):
        problem.cause = error.cause
        problem.member = transaction_member(error.member)
    return problem


def make_problem(status: int, code: str, detail: str, tracking_id: str) -> Problem:
    """Return a problem document without faults of fields."""
    return Problem(
        type=f"urn:peeklock:problem:{code}",
        title=TITLES.get(status, "Error"),
        status=status,
        detail=_truncate(detail),
        code=code,
        tracking_id=tracking_id,
        retryable=status in RETRYABLE,
        retry_after=RETRY_AFTER.get(status),
    )


def problem_headers(problem: Problem) -> Headers:
    """Return the headers that the answer of a problem has. `Retry-After` is what the document says."""
    retry_after = () if problem.retry_after is None else ((b"retry-after", b"%d" % problem.retry_after),)
    return (*HEADERS_OF_STATUS.get(problem.status, ()), *retry_after)


def _truncate(detail: str) -> str:
    """Shorten a detail that quotes a long part of its request."""
    return detail if len(detail) <= MAX_DETAIL_LENGTH else f"{detail[:MAX_DETAIL_LENGTH]} [...]"


def _pointer(entry: str, pointer: str) -> str:
    """Return the pointer from the whole request: that of a fault in the body begins in its entry.

    A long pointer is shortened to one of an enclosing object.
    """
    whole = pointer if pointer.startswith("#") else f"#/body{entry}{pointer}"
    return whole if len(whole) <= MAX_DETAIL_LENGTH else whole[:MAX_DETAIL_LENGTH].rpartition("/")[0]


def _subclasses(kind: type[Kind]) -> list[type[Kind]]:
    """Return all direct and indirect subclasses."""
    return [found for subclass in kind.__subclasses__() for found in (subclass, *_subclasses(subclass))]
