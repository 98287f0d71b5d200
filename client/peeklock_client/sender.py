"""Sends many messages to one queue or topic, in batches, with a limit of messages in flight. Each has an outcome (S3.6 to S3.8)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from peeklock_client.client import Queue, Topic
from peeklock_client.encoding import encoded
from peeklock_client.errors import InDoubt, NotSent, NotSerializable, PeeklockError, Refusal, WrongEventLoop
from peeklock_client.generated import answers
from peeklock_client.http_pools import running_loop
from peeklock_client.messages import MessageFields, NewMessage, new_message
from peeklock_client.receive_state import JoinableTransaction
from peeklock_client.tracing import current_traceparent

log = logging.getLogger("peeklock.sender")

MAX_BATCH = 1000
"""Messages in one request."""

MAX_BATCH_BYTES = 4 << 20
"""Bytes of the messages in one request. A server takes 16 MiB unless it is set otherwise."""

MAX_REPORTED = 100
"""The largest number of errors in the exception group of a sender."""


if TYPE_CHECKING:
    import typing_extensions  # as in messages.py

    Result = typing_extensions.TypeVar(
        "Result", answers.SentMessage, answers.PublishedMessage, default=answers.SentMessage
    )
else:
    Result = TypeVar("Result", answers.SentMessage, answers.PublishedMessage)


class PendingSend(Generic[Result]):
    """A message in flight. Await it for its outcome: the result, or the error."""

    def __init__(self, message: NewMessage, weight: int, when_awaited: Callable[[PendingSend[Result]], None]) -> None:
        self.message = message
        self.weight = weight
        self.is_awaited = False
        self._when_awaited = when_awaited
        self.outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Result]:
        if not self.is_awaited:
            self.is_awaited = True
            self._when_awaited(self)
        return asyncio.shield(self.outcome).__await__()


class Sender(Generic[Result]):
    """Sends messages to a queue, or publishes them to a topic, in the order of the calls. Use it with `async with`.

    To a type checker, `Sender` alone is one that sends to a queue. One for a topic is a `Sender[answers.PublishedMessage]`.

    At most `max_in_flight` messages with `max_bytes` of bodies are in flight; further calls wait (S3.7). One request is sent at
    a time, with all messages that were posted during the last one. The end of the block waits for all messages, and raises
    the errors whose outcome was not awaited. If the end is cancelled, the outcome of a message that is being sent is
    `InDoubt`, and that of a message that waits is `NotSent`. With `transaction`, the commit of the transaction stores the
    messages. End the block before the commit.
    """

    @overload
    def __init__(
        self: Sender[answers.SentMessage],
        target: Queue,
        *,
        transaction: JoinableTransaction | None = None,
        max_in_flight: int = 1000,
        max_bytes: int = 16 << 20,
    ) -> None: ...

    @overload
    def __init__(
        self: Sender[answers.PublishedMessage],
        target: Topic,
        *,
        transaction: JoinableTransaction | None = None,
        max_in_flight: int = 1000,
        max_bytes: int = 16 << 20,
    ) -> None: ...

    def __init__(
        self,
        target: Queue | Topic,
        *,
        transaction: JoinableTransaction | None = None,
        max_in_flight: int = 1000,
        max_bytes: int = 16 << 20,
    ) -> None:
        self._name = target.name
        self._store: Callable[..., Awaitable[Sequence[Any]]] = (
            target.publish_batch if isinstance(target, Topic) else target.send_batch
        )
        self._transaction = transaction
        self._max_in_flight = max_in_flight
        self._max_bytes = max_bytes
        self._waiting: deque[PendingSend[Result]] = deque()
        self._count = self._bytes = 0
        self._changed = asyncio.Condition()
        self._under_way: list[PendingSend[Result]] = []
        self._failed: dict[PendingSend[Result], Exception] = {}
        self._more_failed = 0
        self._loop: asyncio.Task[None] | None = None

    async def send(self, body: Any, **fields: Unpack[MessageFields]) -> Result:
        """Send a message, and return once it is stored. Raises as `Queue.send` does."""
        return await (await self.post(body, **fields))

    async def post(self, body: Any, **fields: Unpack[MessageFields]) -> PendingSend[Result]:
        """Wait until the message is within the limits, and return it as pending. Await the `PendingSend` for its outcome.

        The message belongs to the trace of this call, even if its batch carries messages of others. Raises `NotSent` if the
        sender ends before or has no block, and `WrongEventLoop` in another event loop than that of its block.
        """
        self._check_usable()
        message = new_message(body, fields)
        if message.traceparent is None and (traceparent := current_traceparent()) is not None:
            message = replace(message, traceparent=traceparent)
        pending = PendingSend[Result](message, weight_of(message), self._note_awaited)
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_ended or self._has_room(pending.weight))
            if self._has_ended:
                raise NotSent("The sender ended before the message was within the limits.")
            self._count += 1
            self._bytes += pending.weight
            self._waiting.append(pending)
            self._changed.notify_all()
        return pending

    async def __aenter__(self) -> Self:
        self._loop = asyncio.create_task(self._send_loop(), name=f"peeklock sender of {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._count)
        finally:
            await self._end(self._loop)
        failed = len(self._failed) + self._more_failed
        if not failed:
            return
        causes = [*self._failed.values()]
        summary = f"{failed} {'message was' if failed == 1 else 'messages were'} not sent"
        if causes:
            summary += f"; the first because: {causes[0]}"
        if error is None:
            raise ExceptionGroup(summary, causes)
        error.add_note(summary)

    def _check_usable(self) -> None:
        if self._loop is None:
            raise NotSent("Use a Sender inside its `async with` block.")
        if self._loop.get_loop() is not running_loop():
            raise WrongEventLoop("A Sender belongs to the event loop of its `async with` block. Nothing was sent.")

    @property
    def _has_ended(self) -> bool:
        return self._loop is None

    async def _end(self, loop: asyncio.Task[None]) -> None:
        """End the loop. Each message gets an outcome, and each waiting `post` raises."""
        self._loop = None
        loop.cancel()
        self._fail(self._under_way, InDoubt("The sender ended before the answer came."))
        self._fail(self._waiting, NotSent("The sender ended before the message was sent."))
        self._waiting.clear()
        self._under_way = []
        self._count = self._bytes = 0
        await asyncio.wait([loop])
        async with self._changed:
            self._changed.notify_all()

    def _has_room(self, weight: int) -> bool:
        """A message that is larger than `max_bytes` is sent alone."""
        return self._count < self._max_in_flight and (not self._count or self._bytes + weight <= self._max_bytes)

    async def _send_loop(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._waiting))
                batch = self._under_way = self._take()
            await self._send(batch)
            async with self._changed:
                self._under_way = []
                self._count -= len(batch)
                self._bytes -= sum(one.weight for one in batch)
                self._changed.notify_all()

    def _take(self) -> list[PendingSend[Result]]:
        batch = [self._waiting.popleft()]
        weight = batch[0].weight
        while self._waiting and len(batch) < MAX_BATCH and weight + self._waiting[0].weight <= MAX_BATCH_BYTES:
            batch.append(self._waiting.popleft())
            weight += batch[-1].weight
        return batch

    async def _send(self, batch: Sequence[PendingSend[Result]]) -> None:
        """Send a batch. A refused batch is not stored, so send its messages one by one to find the refused ones."""
        try:
            results = await self._store([one.message for one in batch], transaction=self._transaction)
        except (Refusal, NotSerializable) as error:
            if len(batch) == 1 or (isinstance(error, Refusal) and error.retryable):
                self._fail(batch, error)
            else:
                for one in batch:
                    await self._send([one])
        except PeeklockError as error:
            self._fail(batch, error)
        except Exception as error:
            log.exception("the sender of %s failed", self._name)
            self._fail(batch, InDoubt(f"The request failed: {error!r}"))
        else:
            for one, result in zip(batch, results, strict=False):
                one.outcome.set_result(result)
            self._fail(batch, InDoubt(f"{len(batch)} messages got {len(results)} results."))

    def _fail(self, batch: Iterable[PendingSend[Result]], error: Exception) -> None:
        """Set an error for the messages that have no outcome yet."""
        for one in [one for one in batch if not one.outcome.done()]:
            one.outcome.set_exception(error)
            one.outcome.exception()  # it is raised where the outcome is awaited, or at the end of the sender
            if one.is_awaited:
                continue
            if len(self._failed) < MAX_REPORTED:
                self._failed[one] = error
            else:
                self._more_failed += 1

    def _note_awaited(self, pending: PendingSend[Result]) -> None:
        """Leave the error of a message to the task that awaits its outcome, even if the error came first."""
        if not pending.outcome.done() or pending.outcome.exception() is None:
            return
        if self._failed.pop(pending, None) is None:
            self._more_failed -= 1


def weight_of(message: NewMessage) -> int:
    """Return the approximate size of a message in a request, in bytes."""
    body = message.body
    size = len(body) * 4 // 3 if isinstance(body, bytes | bytearray) else len(encoded(body))
    return size + len(encoded(message.properties))
