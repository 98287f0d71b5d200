"""The errors of a push."""

from __future__ import annotations

from peeklock_client.errors import PeeklockError
from peeklock_client.worker.handlers import ServiceFailed


class InvalidPush(PeeklockError):
    """The options of a push cannot be obeyed, or its secret is missing or invalid. The text never has the secret."""


class TargetFailed(PeeklockError):
    """A target gave no answer. `reason` is a short word for it, such as `timeout`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class NotConnected(TargetFailed):
    """No connection to a target was made, so nothing of a message was sent."""


class PushFailed(ServiceFailed):
    """A target did not accept a message, so the retry policy of the queue decides about it."""
