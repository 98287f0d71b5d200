"""The exceptions. After a `Refusal` a request had no effect; after `InDoubt` its effect is unknown.

`error_of` makes the exception of a problem document (RFC 9457). Each code that a program may want to catch has a class;
every other code is a `Refusal`. docs/reference/problems.md lists all codes.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET

from peeklock_client.generated.answers import Problem


class PeeklockError(Exception):
    """The base class of all exceptions of this package. Wrong arguments raise `TypeError` or `ValueError`."""


class NotSerializable(PeeklockError, TypeError):
    """A body, a reply or a property cannot be encoded as JSON. Nothing was sent."""


class NotConnected(PeeklockError):
    """No connection could be made, so the request had no effect."""


class NotSent(PeeklockError):
    """The message was not sent, because its `Sender` has ended."""


class ClientClosed(NotConnected):
    """The client is closed. Nothing was sent."""


class WrongEventLoop(PeeklockError):
    """An object that belongs to one event loop is used in another, or where no event loop runs. Nothing was sent."""


class InDoubt(PeeklockError):
    """The request may have taken effect: its answer was lost, or the server does not know (S3.27).

    `problem` is the problem document of the answer, None if there was no answer.
    """

    def __init__(self, detail: str, problem: Problem | None = None, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.problem = problem
        self.retry_after = retry_after


class UnexpectedAnswer(PeeklockError):
    """The answer reports success, but this version of the client cannot decode its body."""


class Refusal(PeeklockError):
    """The server refused a request, which had no effect.

    `problem` is the problem document of the answer. `retry_after` is how many seconds to wait before a retry, None if the
    answer does not say.
    """

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.detail} (code {problem.code}, tracking id {problem.tracking_id})")
        self.problem = problem
        self.retry_after = retry_after

    @property
    def code(self) -> str:
        """The code of the problem, which does not change between versions."""
        return self.problem.code

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.problem.retryable


# ---- access and requests ---------------------------------------------------------------------------------------------


class Unauthenticated(Refusal):
    """The API key is missing, unknown, expired or revoked."""


class Forbidden(Refusal):
    """The API key lacks the right, or the queue refuses sends or receives."""


class InvalidRequest(Refusal):
    """The request is invalid; `problem.errors` says where."""


class MessageTooLarge(Refusal):
    """The message is larger than its queue or the server accepts."""


# ---- not found -------------------------------------------------------------------------------------------------------


class NotFound(Refusal):
    """What the request names does not exist."""


class QueueNotFound(NotFound):
    """The queue does not exist."""


class TopicNotFound(NotFound):
    """The topic does not exist."""


class MessageNotFound(NotFound):
    """The queue has no message with this sequence number, or no delivery with this lock token."""


class StateNotFound(NotFound):
    """The state does not exist, or does not have this version."""


class TransactionNotFound(NotFound):
    """The caller has no transaction with this id, or it ended more than an hour ago."""


# ---- settlements -----------------------------------------------------------------------------------------------------


class SettlementRefused(Refusal):
    """The delivery cannot be settled any more. Its message was settled, or is delivered again."""


class LockLost(SettlementRefused):
    """The lock ended before the settlement (S3.26, S3.34)."""

    @property
    def cause(self) -> str | None:
        """Why it ended: `expired`, `entity_changed`, `settled_by_administrator` or `recovered`."""
        return self.problem.cause or None

    @property
    def lost_at(self) -> datetime | None:
        """When it ended, by the clock of the store."""
        return self.problem.lost_at or None

    @property
    def delivered_again(self) -> bool:
        """Whether the message has been delivered to a receiver since (S3.29)."""
        return self.problem.delivered_again is True


class AlreadySettled(SettlementRefused):
    """The delivery was settled in another way."""

    @property
    def outcome(self) -> str | None:
        """How it was settled."""
        return self.problem.outcome or None


# ---- conflicts -------------------------------------------------------------------------------------------------------


class Conflict(Refusal):
    """The request conflicts with what is stored."""


class PreconditionFailed(Conflict):
    """The resource has changed since the ETag in `If-Match`, or exists although `If-None-Match` forbids it."""


class VersionConflict(Conflict):
    """The state has a newer version than the one that the request is based on."""

    @property
    def current_version(self) -> int | None:
        """The newest version of the state."""
        return self.problem.current_version or None


class ResultDiffers(Conflict):
    """The second processing of a message had a different result than the first."""


class TransactionRolledBack(Conflict):
    """The transaction was rolled back, so none of its members took effect."""

    @property
    def cause(self) -> str | None:
        """Why it was rolled back."""
        return self.problem.cause or None


class NotDelivered(Conflict):
    """The message of a synchronous send was not completed by a receiver, and is not stored."""


class NoReceiver(NotDelivered):
    """No receiver took the message in time."""


class NotAccepted(NotDelivered):
    """The receiver abandoned, dead-lettered or deferred the message."""


class NoReply(NotDelivered):
    """A receiver took the message and did not settle it in time. It may have processed it."""


# ---- retry later -----------------------------------------------------------------------------------------------------


class Unavailable(Refusal):
    """The server cannot take the request now. A retry may succeed later."""


class QueueFull(Unavailable):
    """The queue has reached its `max_messages`."""


CLASSES: dict[str, type[Refusal]] = {
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "receive-disabled": Forbidden,
    "send-disabled": Forbidden,
    "malformed-request": InvalidRequest,
    "invalid-request": InvalidRequest,
    "idempotency-key-reused": InvalidRequest,
    "method-not-allowed": InvalidRequest,
    "message-too-large": MessageTooLarge,
    "reply-too-large": MessageTooLarge,
    "not-found": NotFound,
    "key-not-found": NotFound,
    "subscription-not-found": NotFound,
    "queue-not-found": QueueNotFound,
    "topic-not-found": TopicNotFound,
    "message-not-found": MessageNotFound,
    "state-not-found": StateNotFound,
    "transaction-not-found": TransactionNotFound,
    "lock-lost": LockLost,
    "already-settled": AlreadySettled,
    "precondition-failed": PreconditionFailed,
    "version-conflict": VersionConflict,
    "result-differs": ResultDiffers,
    "transaction-rolled-back": TransactionRolledBack,
    "no-receiver": NoReceiver,
    "not-accepted": NotAccepted,
    "no-answer": NoReply,
    "queue-full": QueueFull,
    "overloaded": Unavailable,
    "rate-limited": Unavailable,
    "queue-needs-newer-server": Unavailable,
    "shutting-down": Unavailable,
}
DOUBTFUL = frozenset(("store-unavailable", "internal-error"))
"""The codes of answers after which the effect of the request is unknown (docs/http/errors.md)."""


def error_of(problem: Problem, retry_after: float | None = None) -> Refusal | InDoubt:
    """Return the exception of a problem document. `retry_after` is what the header says, if the document says nothing."""
    if problem.retry_after is not UNSET:
        retry_after = problem.retry_after
    if problem.code in DOUBTFUL:
        return InDoubt(f"{problem.detail} (tracking id {problem.tracking_id})", problem, retry_after)
    default = Conflict if problem.status == 409 else Refusal
    return CLASSES.get(problem.code, default)(problem, retry_after)


def problem_of(status: int, detail: str, code: str) -> Problem:
    """Return a problem for an answer that has none, such as that of a proxy."""
    return Problem(
        type="about:blank",
        title="",
        status=status,
        detail=detail,
        code=code,
        tracking_id="",
        retryable=False,
        errors=UNSET,
    )
