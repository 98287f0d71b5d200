"""The handlers of a push: each message in a request of its own, or several as a batch of CloudEvents.

Both are handlers of an ordinary worker, which receives, renews locks, retries and settles.
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from typing import Any

from peeklock_client.messages import NewMessage
from peeklock_client.push.answers import DeadLetter, Decision, Fail, NotSent, Release, RetryLater
from peeklock_client.push.batches import Batches
from peeklock_client.push.delivery import Delivery
from peeklock_client.push.errors import PushFailed
from peeklock_client.push.events import event_of
from peeklock_client.push.headers import message_headers
from peeklock_client.push.raw_messages import content_of
from peeklock_client.push.signing import webhook_id
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.tracing import current_traceparent

log = logging.getLogger("peeklock.worker")


class PushHandler:
    """Sends each message of one queue in a request of its own."""

    def __init__(self, delivery: Delivery, queue: str) -> None:
        self.name = delivery.target.name
        self.flow_control = delivery.circuit
        self._delivery = delivery
        self._queue = queue

    async def call(self, context: ReceiveContext[Any], threads: Executor) -> list[NewMessage]:
        """Send the message, and settle it by the answer; a message that is accepted is left to the worker to complete.

        Raises `PushFailed` after a failure. The message is then abandoned, and the retry policy of its queue decides.
        """
        message = context.message
        body, content_type = content_of(message)
        headers = message_headers(self._queue, message)
        if content_type is not None:
            headers.append((b"content-type", content_type.encode()))
        if traceparent := current_traceparent():
            headers.append((b"traceparent", traceparent.encode()))
        request_id = webhook_id("msg", self._queue, message.sequence_number, message.message_id)
        await settle(context, await self._delivery.deliver(request_id, headers, body))
        return []


class BatchHandler:
    """Sends messages of one queue together. The answer settles all messages of its batch."""

    def __init__(self, delivery: Delivery, queue: str, batches: Batches) -> None:
        self.name = delivery.target.name
        self.flow_control = delivery.circuit
        self._queue = queue
        self._batches = batches

    async def call(self, context: ReceiveContext[Any], threads: Executor) -> list[NewMessage]:
        """Send the message with others, and settle it by their answer. Raises as `PushHandler` does."""
        message = context.message
        message_id = webhook_id("msg", self._queue, message.sequence_number, message.message_id)
        await settle(context, await self._batches.send(message_id, event_of(self._queue, message)))
        return []


async def settle(context: ReceiveContext[Any], decision: Decision) -> None:
    """Settle a message as its target has decided, unless it is to be completed. Raises `PushFailed` after a failure."""
    match decision:
        case RetryLater(delay_seconds):
            await context.abandon(delay_seconds=delay_seconds, count=False)
        case DeadLetter(reason, description):
            await context.dead_letter(reason, description)
        case NotSent(detail):
            log.warning("message %d is returned uncounted: %s", context.message.sequence_number, detail)
            await context.release()
        case Release():
            await context.release()
        case Fail(reason, detail):
            await context.abandon(reason=reason)
            raise PushFailed(detail)
        case _:
            pass
