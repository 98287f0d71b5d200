"""The client for programs without an event loop. It runs an event loop in a thread, and each call waits for its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import UNSET

from peeklock_client.client import Client, Queue, Topic
from peeklock_client.connection import RetryLimits
from peeklock_client.generated import answers, requests
from peeklock_client.messages import BodyType, Message, MessageFields
from peeklock_client.receive_context import JoinableTransaction, ReceiveContext, ReceiveState, reason_of
from peeklock_client.transaction import Transaction

Result = TypeVar("Result")


class BlockingClient:
    """A `Client` whose calls block. Use it with `with`, in any number of threads."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, retries: RetryLimits | None = None
    ) -> None:
        self._make = partial(Client, url, api_key, retries=retries)
        self._thread: ExitStack | None = None
        self._portal: BlockingPortal | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        with ExitStack() as thread:
            portal = thread.enter_context(start_blocking_portal())
            self._client = portal.call(self._make)
            self._portal = portal
            self._thread = thread.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._call(self._opened().close)
        finally:
            self._thread.__exit__(kind, error, trace)
            self._client = self._portal = self._thread = None

    def queue(self, name: str) -> BlockingQueue:
        """Return the queue of this name. Sends no request, so the queue need not exist."""
        return BlockingQueue(self._opened().queue(name), self._call)

    def topic(self, name: str) -> BlockingTopic:
        """Return the topic of this name. Sends no request, so the topic need not exist."""
        return BlockingTopic(self._opened().topic(name), self._call)

    @contextmanager
    def transaction(self, timeout_seconds: float | None = None) -> Generator[Transaction]:
        """Open a transaction, and commit it at the end of the block, or roll it back if the block raises."""
        transaction = self._call(self._opened().transaction, timeout_seconds)
        try:
            yield transaction
        except BaseException as error:
            self._call(transaction.__aexit__, type(error), error, None)
            raise
        self._call(transaction.__aexit__, None, None, None)

    def _opened(self) -> Client:
        if self._client is None:
            raise RuntimeError("Use a BlockingClient inside its `with` block.")
        return self._client

    def _call(self, function: Callable[..., Awaitable[Result]], *arguments: Any, **named: Any) -> Result:
        if self._portal is None:
            raise RuntimeError("Use a BlockingClient inside its `with` block.")
        return self._portal.call(partial(function, *arguments, **named))


Call = Callable[..., Any]


class BlockingQueue:
    """A queue of a server. Its methods are those of `Queue`, and block."""

    def __init__(self, queue: Queue, call: Call) -> None:
        self.name = queue.name
        self._queue = queue
        self._call = call

    def send(
        self, body: Any, *, transaction: JoinableTransaction | None = None, **fields: Unpack[MessageFields]
    ) -> answers.SentMessage:
        """Send a message, and return once it is stored."""
        return self._call(self._queue.send, body, transaction=transaction, **fields)

    def send_batch(
        self, messages: Sequence[Any], *, transaction: JoinableTransaction | None = None
    ) -> list[answers.SentMessage]:
        """Send up to 1000 messages: all are stored, or none."""
        return self._call(self._queue.send_batch, messages, transaction=transaction)

    def request(self, body: Any, *, wait_seconds: float = 20.0, **fields: Unpack[MessageFields]) -> Any:
        """Send a message, wait until a receiver has completed it, and return the receiver's reply."""
        return self._call(self._queue.request, body, wait_seconds=wait_seconds, **fields)

    def receive(
        self, max_messages: int = 1, *, wait_seconds: float = 0.0, **options: Any
    ) -> list[BlockingReceive[Any]]:
        """Receive messages under lock. Returns an empty list if none comes in time. `options` are those of `Queue.receive`."""
        received = self._call(self._queue.receive, max_messages, wait_seconds=wait_seconds, **options)
        return [BlockingReceive(context, self._call) for context in received]

    def receive_and_delete(self, max_messages: int = 1, *, wait_seconds: float = 0.0) -> list[Message[Any]]:
        """Receive messages and remove them from the queue at once. If the answer is lost, the messages are lost."""
        return self._call(self._queue.receive_and_delete, max_messages, wait_seconds=wait_seconds)

    def create(self, settings: requests.QueueSettingsBody | None = None) -> bool:
        """Create the queue if it does not exist, and return whether it was created."""
        return self._call(self._queue.create, settings)

    def status(self) -> answers.QueueStatusView:
        """Return the settings of the queue, and the number of its messages in each state."""
        return self._call(self._queue.status)

    def purge(self) -> int:
        """Remove all messages that are not locked, and return their number."""
        return self._call(self._queue.purge)

    def delete(self) -> None:
        """Delete the queue and its messages."""
        self._call(self._queue.delete)


class BlockingTopic:
    """A topic of a server. Its methods are those of `Topic`, and block."""

    def __init__(self, topic: Topic, call: Call) -> None:
        self.name = topic.name
        self._topic = topic
        self._call = call

    def publish(
        self, body: Any, *, transaction: JoinableTransaction | None = None, **fields: Unpack[MessageFields]
    ) -> answers.PublishedMessage:
        """Publish a message, and return once all copies are stored."""
        return self._call(self._topic.publish, body, transaction=transaction, **fields)

    def publish_batch(
        self, messages: Sequence[Any], *, transaction: JoinableTransaction | None = None
    ) -> list[answers.PublishedMessage]:
        """Publish several messages: all are stored, or none."""
        return self._call(self._topic.publish_batch, messages, transaction=transaction)


class BlockingReceive(Generic[BodyType]):
    """A message under lock. Its methods are those of `ReceiveContext`, and block.

    With `with`, the message is completed at the end of the block, or abandoned if the block raises.
    """

    def __init__(self, context: ReceiveContext[BodyType], call: Call) -> None:
        self.context = context
        self._call = call

    @property
    def message(self) -> Message[BodyType]:
        """The message under lock."""
        return self.context.message

    @property
    def state(self) -> ReceiveState:
        """The state of the receive."""
        return self.context.state

    def complete(self, reply: Any = UNSET, transaction: JoinableTransaction | None = None) -> None:
        """Complete the message."""
        self._call(self.context.complete, reply, transaction)

    def abandon(self, *, delay_seconds: float | None = None, count: bool = True, reason: str | None = None) -> None:
        """Return the message to its queue, to be received again."""
        self._call(self.context.abandon, delay_seconds=delay_seconds, count=count, reason=reason)

    def dead_letter(
        self, reason: str | None = None, description: str | None = None, properties: Mapping[str, Any] | None = None
    ) -> None:
        """Move the message to the dead-letter queue."""
        self._call(self.context.dead_letter, reason, description, properties)

    def defer(self) -> None:
        """Set the message aside. It can only be received by its sequence number."""
        self._call(self.context.defer)

    def renew(self, lock_seconds: float | None = None) -> None:
        """Prolong the lock."""
        self._call(self.context.renew, lock_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.context.is_active:
            if error is None:
                self.complete()
            else:
                self.abandon(reason=reason_of(error))
