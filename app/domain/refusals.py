"""The errors of the broker, as one tree.

A `Refusal` means that the request was understood and is not carried out. `BackendUnavailable` means that a backend cannot
answer now and that the same request may succeed later. The docstring of a class is the default detail that the caller
reads. Any other exception is a bug.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from app.domain.instant import Instant


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in a request: a JSON pointer and a description."""

    pointer: str
    detail: str


class Refusal(Exception):
    """The request was understood and is not carried out."""

    code: ClassVar[str] = "refused"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str | None = None, field_errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail or (field_errors[0].detail if field_errors else (type(self).__doc__ or "").strip()))
        self.field_errors = tuple(field_errors)

    @property
    def detail(self) -> str:
        """The sentence for the caller."""
        return str(self.args[0])

    def located_at(self, pointer: str) -> Self:
        """Return this refusal as that of the entry at this JSON pointer. Its own pointers are within the entry."""
        self.field_errors = tuple(FieldError(pointer + fault.pointer, fault.detail) for fault in self.field_errors) or (
            FieldError(pointer, self.detail),
        )
        return self

    def as_result(self) -> Self:
        """Return this refusal as the result of one entry, without the frames in which it was raised.

        They hold the whole request and, in a cycle, this result.
        """
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class InvalidRequest(Refusal):
    """The request does not have the form that this operation needs."""

    code = "invalid-request"


class MissingField(InvalidRequest):
    """The request lacks a field that this operation needs."""


def invalid_at(pointer: str, detail: str) -> InvalidRequest:
    """Build the refusal of the value at this JSON pointer."""
    return InvalidRequest(field_errors=[FieldError(pointer, detail)])


class NotFound(Refusal):
    """The resource does not exist."""

    code = "not-found"


class QueueNotFound(NotFound):
    """No queue has this name."""

    code = "queue-not-found"


class TopicNotFound(NotFound):
    """No topic has this name."""

    code = "topic-not-found"


class SubscriptionNotFound(NotFound):
    """The topic has no subscription of this name."""

    code = "subscription-not-found"


class MessageNotFound(NotFound):
    """This queue does not hold this message."""

    code = "message-not-found"


class KeyNotFound(NotFound):
    """No API key has this id."""

    code = "key-not-found"


class Conflict(Refusal):
    """The request contradicts what has already happened."""

    code = "conflict"


class AlreadySettled(Conflict):
    """This delivery was already settled, in another way."""

    code = "already-settled"

    def __init__(self, outcome: str) -> None:
        super().__init__(f"This delivery was already settled: {outcome}.")
        self.outcome = outcome


class MessageLocked(Conflict):
    """The message is locked by a receiver; settle it or wait until the lock ends."""

    code = "message-locked"
    retryable = True


class RequestInProgress(Conflict):
    """A request with this Idempotency-Key is still being answered."""

    code = "request-in-progress"
    retryable = True


class TooManyKeys(Conflict):
    """This principal already has two live API keys; revoke one first."""

    code = "too-many-keys"


class TooManyQueues(Conflict):
    """This server has reached its limit of queues (PEEKLOCK_MAX_QUEUES)."""

    code = "too-many-queues"


class TooManyTopics(Conflict):
    """The server has reached its limit of topics; delete topics first."""

    code = "too-many-topics"


class TooManySubscriptions(Conflict):
    """The topic has reached its limit of subscriptions; delete subscriptions first."""

    code = "too-many-subscriptions"


class ForwardingCycle(Conflict):
    """With this setting, a queue would forward messages to itself."""

    code = "forwarding-cycle"


class ForwardingTooLong(Conflict):
    """A message would be forwarded too many times; forward it to the last queue directly."""

    code = "forwarding-too-long"


class TargetQueueTaken(Conflict):
    """Another subscription of the topic has this target queue."""

    code = "target-queue-taken"


class QueueIsTarget(Conflict):
    """A subscription sends to this queue; delete the subscription first."""

    code = "queue-is-target"


class NoReceiver(Conflict):
    """No receiver took the message while its sender waited. Nothing is stored."""

    code = "no-receiver"


class NotAccepted(Conflict):
    """The receiver did not complete the message. Nothing is stored."""

    code = "not-accepted"


class SynchronousMessage(Conflict):
    """The sender of this message waits for its settlement, so only its receiver can settle it, and in a request of its own."""

    code = "synchronous-message"


class LossCause(StrEnum):
    """Why a lock ended before its holder settled the message."""

    EXPIRED = "expired"
    ADMINISTRATOR = "settled_by_administrator"
    ENTITY_CHANGED = "entity_changed"
    RECOVERED = "recovered"
    WITHDRAWN = "withdrawn"


class LockLost(Refusal):
    """The lock has ended, so repeating this request cannot succeed."""

    code = "lock-lost"

    def __init__(
        self,
        cause: LossCause = LossCause.EXPIRED,
        lost_at: Instant | None = None,
        delivered_again: bool | None = None,
    ) -> None:
        super().__init__()
        self.cause = cause
        self.lost_at = lost_at
        self.delivered_again = delivered_again


class PreconditionFailed(Refusal):
    """The resource has changed since the version named in If-Match."""

    code = "precondition-failed"


class MessageTooLarge(Refusal):
    """The message is larger than this queue allows."""

    code = "message-too-large"


class ReplyTooLarge(MessageTooLarge):
    """The reply is larger than the limit of replies."""

    code = "reply-too-large"


class NoAnswer(Refusal):
    """A receiver took the message and did not settle it while its sender waited. Nothing is stored."""

    code = "no-answer"


class UnsupportedContentEncoding(Refusal):
    """Only the Content-Encoding identity is accepted: send the body uncompressed."""

    code = "unsupported-content-encoding"


class KeyReused(Refusal):
    """This Idempotency-Key was already used with another request."""

    code = "idempotency-key-reused"


class RateLimited(Refusal):
    """Too many requests; try again after the time in Retry-After."""

    code = "rate-limited"
    retryable = True


class QueueFull(Refusal):
    """The queue holds as many messages as its settings allow."""

    code = "queue-full"
    retryable = True


class StoreNotDurable(Refusal):
    """The database may lose acknowledged messages, so this server accepts only volatile ones (PEEKLOCK_REQUIRE_DURABLE_STORE)."""

    code = "store-not-durable"
    retryable = True


class SendDisabled(Refusal):
    """This queue does not accept sends at present."""

    code = "send-disabled"


class ReceiveDisabled(Refusal):
    """This queue does not accept receives at present."""

    code = "receive-disabled"


class Forbidden(Refusal):
    """This API key does not have the right that the request needs."""

    code = "forbidden"


class Unauthenticated(Refusal):
    """The request needs a valid API key: Authorization: Bearer <key>."""

    code = "unauthenticated"


class BackendUnavailable(Exception):
    """A backend of the broker cannot answer now; the request may be repeated unchanged."""

    code: ClassVar[str] = "unavailable"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or (type(self).__doc__ or "").strip())


class StoreUnavailable(BackendUnavailable):
    """The message store cannot be reached at present. It is not known whether this request took effect."""

    code = "store-unavailable"


class Overloaded(BackendUnavailable):
    """This server has reached its memory limit. The request had no effect; try again after the time in Retry-After."""

    code = "overloaded"


class MessageBusy(StoreUnavailable):
    """Another request holds this message. This request had no effect; repeat it."""


class LockStoreUnavailable(StoreUnavailable):
    """The lock store does not answer, and without it this lock cannot end earlier. It is not known whether this request took
    effect; repeat it."""


class NewerQueue(BackendUnavailable):
    """This queue uses a setting that this server does not know yet; send the request to a newer server."""

    code = "queue-needs-newer-server"


class ShuttingDown(BackendUnavailable):
    """This server is stopping; send the request to another server."""

    code = "shutting-down"
