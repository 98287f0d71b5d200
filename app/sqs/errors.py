"""The refusals of this interface alone, and the table of what a client is told of each refusal."""

from collections.abc import Mapping
from typing import NamedTuple

from app.domain.move_task import MoveEnded, MoveNotFound, MoveRunning
from app.domain.refusals import (
    AlreadySettled,
    BackendUnavailable,
    Conflict,
    Forbidden,
    InvalidRequest,
    LockLost,
    MessageNotFound,
    MissingField,
    NotFound,
    QueueFull,
    QueueIsTarget,
    QueueNotFound,
    RateLimited,
    ReceiveDisabled,
    Refusal,
    SendDisabled,
    TooManyQueues,
    TooManySubscriptions,
    TooManyTopics,
    Unauthenticated,
)


class MissingParameter(InvalidRequest):
    """The request lacks a parameter that its action requires."""


class InvalidAttributeName(InvalidRequest):
    """A queue has no attribute of this name."""


class InvalidAttributeValue(InvalidRequest):
    """An attribute has a value that this server does not accept."""


class InvalidMessageContents(InvalidRequest):
    """The body has characters that XML does not allow."""


class EmptyBatchRequest(InvalidRequest):
    """The batch has no entries."""


class TooManyEntriesInBatchRequest(InvalidRequest):
    """A batch has at most 10 entries."""


class BatchEntryIdsNotDistinct(InvalidRequest):
    """Two entries of the batch have the same Id."""


class InvalidBatchEntryId(InvalidRequest):
    """The Id of an entry has 1 to 80 letters, digits, dashes or underscores."""


class BatchRequestTooLong(InvalidRequest):
    """The messages of a batch have at most 1,048,576 bytes together."""


class QueueNameExists(Conflict):
    """A queue of this name exists, with other attributes."""


class UnsupportedOperation(InvalidRequest):
    """This server does not support the operation."""


class ReceiptHandleIsInvalid(LockLost):
    """The receipt handle holds no message. Metrics count this refusal as the API counts that of a lock token."""

    def __init__(self, detail: str) -> None:
        super().__init__()
        self.args = (detail,)


class ResourceNotFound(InvalidRequest):
    """The resource does not exist."""


class UnknownAction(InvalidRequest):
    """This server does not know the action."""


class MissingAuthenticationToken(Unauthenticated):
    """The request is not signed. Sign it with the id of an API key and its SQS secret."""


class IncompleteSignature(Unauthenticated):
    """The signature lacks a part, or a part is malformed."""


class InvalidClientTokenId(Unauthenticated):
    """The access key is not the id of a live API key. `peeklock key sqs ID` prints what a client needs."""


class SignatureDoesNotMatch(Unauthenticated):
    """The signature does not match the request."""


class MissingAction(InvalidRequest):
    """The request names no action."""


class FilterPolicyLimitExceeded(InvalidRequest):
    """A filter policy is longer, or has more parts, than a filter of this server can have."""


class AwsError(NamedTuple):
    """What a client is told: the name of the exception in JSON, the code of the query protocol, and the HTTP status."""

    name: str
    code: str
    status: int = 400

    @property
    def is_of_sender(self) -> bool:
        """Whether the request is at fault, and not the server."""
        return self.status < 500

    @property
    def fault(self) -> str:
        """Which side has caused the error, in the words of AWS."""
        return "Sender" if self.is_of_sender else "Receiver"


def _alike(name: str, status: int = 400) -> AwsError:
    return AwsError(name, name, status)


def _of_service(name: str) -> AwsError:
    return AwsError(name, f"AWS.SimpleQueueService.{name}")


ERRORS: Mapping[type[Refusal | BackendUnavailable], AwsError] = {
    QueueNotFound: AwsError("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
    QueueNameExists: AwsError("QueueNameExists", "QueueAlreadyExists"),
    LockLost: _alike("ReceiptHandleIsInvalid"),
    AlreadySettled: _alike("ReceiptHandleIsInvalid"),
    MessageNotFound: _alike("ReceiptHandleIsInvalid"),
    ReceiptHandleIsInvalid: _alike("ReceiptHandleIsInvalid"),
    EmptyBatchRequest: _of_service("EmptyBatchRequest"),
    TooManyEntriesInBatchRequest: _of_service("TooManyEntriesInBatchRequest"),
    BatchEntryIdsNotDistinct: _of_service("BatchEntryIdsNotDistinct"),
    InvalidBatchEntryId: _of_service("InvalidBatchEntryId"),
    BatchRequestTooLong: _of_service("BatchRequestTooLong"),
    MissingField: _alike("MissingParameter"),
    MissingParameter: _alike("MissingParameter"),
    InvalidAttributeName: _alike("InvalidAttributeName"),
    InvalidAttributeValue: _alike("InvalidAttributeValue"),
    InvalidMessageContents: _alike("InvalidMessageContents"),
    MoveNotFound: _alike("ResourceNotFoundException"),
    MoveEnded: _alike("ResourceNotFoundException"),
    ResourceNotFound: _alike("ResourceNotFoundException"),
    SendDisabled: _of_service("UnsupportedOperation"),
    QueueIsTarget: _of_service("UnsupportedOperation"),
    MoveRunning: _of_service("UnsupportedOperation"),
    UnsupportedOperation: _of_service("UnsupportedOperation"),
    RateLimited: _alike("RequestThrottled", 403),
    QueueFull: _alike("RequestThrottled", 403),
    ReceiveDisabled: _alike("RequestThrottled", 403),
    MissingAuthenticationToken: _alike("MissingAuthenticationToken", 403),
    IncompleteSignature: _alike("IncompleteSignature"),
    InvalidClientTokenId: _alike("InvalidClientTokenId", 403),
    SignatureDoesNotMatch: _alike("SignatureDoesNotMatch", 403),
    Unauthenticated: _alike("InvalidClientTokenId", 403),
    Forbidden: AwsError("AccessDeniedException", "AccessDenied", 403),
    TooManyQueues: _alike("OverLimit", 403),
    UnknownAction: AwsError("UnknownOperationException", "InvalidAction"),
    MissingAction: _alike("MissingAction"),
    Refusal: _alike("InvalidParameterValue"),
    BackendUnavailable: _alike("ServiceUnavailable", 503),
}
"""What a client is told of a refusal is the entry of its nearest base class."""

INTERNAL_ERROR = _alike("InternalFailure", 500)


TOPIC_ERRORS: Mapping[type[Refusal | BackendUnavailable], AwsError] = {
    NotFound: _alike("NotFound", 404),
    EmptyBatchRequest: _alike("EmptyBatchRequest"),
    TooManyEntriesInBatchRequest: _alike("TooManyEntriesInBatchRequest"),
    BatchEntryIdsNotDistinct: _alike("BatchEntryIdsNotDistinct"),
    InvalidBatchEntryId: _alike("InvalidBatchEntryId"),
    BatchRequestTooLong: _alike("BatchRequestTooLong"),
    FilterPolicyLimitExceeded: _alike("FilterPolicyLimitExceeded", 403),
    TooManyTopics: _alike("TopicLimitExceeded", 403),
    TooManySubscriptions: _alike("SubscriptionLimitExceeded", 403),
    RateLimited: _alike("Throttled", 429),
    QueueFull: _alike("Throttled", 429),
    MissingAuthenticationToken: ERRORS[MissingAuthenticationToken],
    IncompleteSignature: ERRORS[IncompleteSignature],
    InvalidClientTokenId: ERRORS[InvalidClientTokenId],
    SignatureDoesNotMatch: ERRORS[SignatureDoesNotMatch],
    Unauthenticated: ERRORS[Unauthenticated],
    Forbidden: _alike("AuthorizationError", 403),
    UnknownAction: _alike("InvalidAction"),
    MissingAction: _alike("MissingAction"),
    Refusal: _alike("InvalidParameter"),
    BackendUnavailable: _alike("ServiceUnavailable", 503),
}
"""What a client of SNS is told of a refusal."""

TOPIC_INTERNAL_ERROR = _alike("InternalError", 500)


def aws_error(error: Exception) -> AwsError:
    """Return what a client of SQS is told of an error."""
    return _nearest(error, ERRORS, INTERNAL_ERROR)


def topic_error(error: Exception) -> AwsError:
    """Return what a client of SNS is told of an error."""
    return _nearest(error, TOPIC_ERRORS, TOPIC_INTERNAL_ERROR)


def _nearest(
    error: Exception, errors: Mapping[type[Refusal | BackendUnavailable], AwsError], unknown: AwsError
) -> AwsError:
    for base in type(error).__mro__:
        if base in errors:
            return errors[base]
    return unknown
