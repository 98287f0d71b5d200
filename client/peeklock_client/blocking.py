"""The client for programs without an event loop. It runs an event loop in a thread, and each call waits for its result."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from peeklock_client.blocking_receive import BlockingReceive, Call
from peeklock_client.client import Client, Plan, Queue, Source, StateName, Topic
from peeklock_client.connection import Connection, RetryLimits
from peeklock_client.generated import answers, requests
from peeklock_client.loop_thread import LoopThread
from peeklock_client.messages import Message, MessageFields
from peeklock_client.receive_state import JoinableTransaction, Receive
from peeklock_client.transaction import Transaction

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class BlockingClient:
    """A `Client` whose calls block. It works in any number of threads and in forked processes. `close` or `with` ends its
    thread.

    A forked process has a thread and connections of its own.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, retries: RetryLimits | None = None
    ) -> None:
        self._client = Client(url, api_key, retries=retries)
        self._threads: dict[int, LoopThread] = {}

    @property
    def api(self) -> Connection:
        """An asynchronous method for every operation of the server, for `call`."""
        return self._client.api

    def call(
        self,
        function: Callable[Parameters, Awaitable[Result]],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Result:
        """Call an asynchronous function, and return its result: `client.call(client.api.list_queues)`."""
        return self._thread.call(partial(function, *arguments, **named))

    def queue(self, name: str) -> BlockingQueue:
        """Return the queue of this name. Sends no request, so the queue need not exist."""
        return BlockingQueue(self._client.queue(name), self.call)

    def topic(self, name: str) -> BlockingTopic:
        """Return the topic of this name. Sends no request, so the topic need not exist."""
        return BlockingTopic(self._client.topic(name), self.call)

    def transaction(self, timeout_seconds: float | None = None) -> BlockingTransaction:
        """Open a transaction: `with client.transaction() as transaction`. It is rolled back at its deadline."""
        return BlockingTransaction(self.call(self._client.transaction, timeout_seconds), self.call)

    def close(self) -> None:
        """Close all connections of this process, and end its thread. Later calls raise `ClientClosed`."""
        self._thread.stop()

    @property
    def _thread(self) -> LoopThread:
        process = os.getpid()
        return self._threads.get(process) or self._threads.setdefault(process, LoopThread(self._client.close))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
        self,
        max_messages: int = 1,
        *,
        wait_seconds: float | None = 0.0,
        lock_seconds: float | None = None,
        source: Source = "queue",
        sequence_numbers: Sequence[int] | None = None,
        receiver_id: str | None = None,
        filter: str | None = None,
        group_id: str | None = None,
    ) -> list[BlockingReceive[Any]]:
        """Receive messages under lock. Returns an empty list if none comes in time."""
        received = self._call(
            self._queue.receive,
            max_messages,
            wait_seconds=wait_seconds,
            lock_seconds=lock_seconds,
            source=source,
            sequence_numbers=sequence_numbers,
            receiver_id=receiver_id,
            filter=filter,
            group_id=group_id,
        )
        return [BlockingReceive(context, self._call) for context in received]

    def receive_and_delete(self, max_messages: int = 1, *, wait_seconds: float | None = 0.0) -> list[Message[Any]]:
        """Receive messages and remove them from the queue at once. If the answer is lost, the messages are lost."""
        return self._call(self._queue.receive_and_delete, max_messages, wait_seconds=wait_seconds)

    def recover(self, receiver_id: str, max_messages: int = 1000) -> list[BlockingReceive[Any]]:
        """Receive again the messages that this receiver has locked and not settled, under new locks."""
        recovered = self._call(self._queue.recover, receiver_id, max_messages)
        return [BlockingReceive(context, self._call) for context in recovered]

    def browse(self, *, filter: str | None = None, states: Sequence[str] | None = None) -> Iterator[Message[Any]]:
        """Yield the messages in the order of their sequence numbers, without locking or changing them."""
        messages = self._queue.browse(filter=filter, states=states)
        while (message := self._call(anext, messages, None)) is not None:
            yield message

    def create(self, settings: requests.QueueSettingsBody | None = None) -> bool:
        """Create the queue if it does not exist, and return whether it was created."""
        return self._call(self._queue.create, settings)

    def status(self) -> answers.QueueStatusView:
        """Return the settings of the queue, and the number of its messages in each state."""
        return self._call(self._queue.status)

    def update(self, settings: requests.QueuePatch, *, keep_locks: bool = False) -> answers.QueueView:
        """Change these settings of the queue, and keep the others. Return all of them."""
        return self._call(self._queue.update, settings, keep_locks=keep_locks)

    def explain(self) -> answers.QueueExplanationView:
        """Say why the queue is stalled, or that it is not."""
        return self._call(self._queue.explain)

    def explain_message(self, sequence_number: int) -> answers.MessageExplanationView:
        """Say why a message is not delivered, or how it ended."""
        return self._call(self._queue.explain_message, sequence_number)

    def purge(
        self, *, states: Sequence[StateName] | None = None, filter: str | None = None, limit: int | None = None
    ) -> int:
        """Remove the messages in these states that match a filter, by default all that are not locked. Return their number."""
        return self._call(self._queue.purge, states=states, filter=filter, limit=limit)

    def plan_purge(self, *, states: Sequence[StateName] | None = None, filter: str | None = None) -> Plan:
        """Say which messages such a `purge` would remove now. Change nothing."""
        return self._call(self._queue.plan_purge, states=states, filter=filter)

    def redrive(
        self,
        *,
        to_queue: str | None = None,
        filter: str | None = None,
        limit: int | None = None,
        rate_per_second: float | None = None,
    ) -> int:
        """Make the dead-lettered messages that match a filter available again, here or in another queue."""
        return self._call(
            self._queue.redrive, to_queue=to_queue, filter=filter, limit=limit, rate_per_second=rate_per_second
        )

    def plan_redrive(self, *, to_queue: str | None = None, filter: str | None = None) -> Plan:
        """Say which messages such a `redrive` would move now. Change nothing."""
        return self._call(self._queue.plan_redrive, to_queue=to_queue, filter=filter)

    def move(self, to_queue: str | None = None, *, rate_per_second: float | None = None) -> answers.MoveView:
        """Start a task of the servers that moves the messages of this queue. See `Queue.move`."""
        return self._call(self._queue.move, to_queue, rate_per_second=rate_per_second)

    def plan_move(self, to_queue: str | None = None) -> Plan:
        """Say which messages such a `move` would move now. Change nothing."""
        return self._call(self._queue.plan_move, to_queue)

    def move_tasks(self) -> Sequence[answers.MoveView]:
        """Return the last ten move tasks of this queue, the newest first."""
        return self._call(self._queue.move_tasks)

    def move_task(self, move_id: str) -> answers.MoveView:
        """Return a move task and its progress."""
        return self._call(self._queue.move_task, move_id)

    def cancel_move(self, move_id: str) -> answers.MoveView:
        """Cancel a move task. What it has moved stays where it is."""
        return self._call(self._queue.cancel_move, move_id)

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

    def subscribe(self, name: str, settings: requests.SubscriptionSettingsBody | None = None) -> BlockingQueue:
        """Create a subscription, or replace the settings of an existing one. Return the queue that gets the copies."""
        return BlockingQueue(self._call(self._topic.subscribe, name, settings), self._call)


class BlockingTransaction:
    """An open transaction. With `with` it is committed at the end of the block, or rolled back if the block raises."""

    def __init__(self, transaction: Transaction, call: Call) -> None:
        self.id = transaction.id
        self.expires_at: datetime = transaction.expires_at
        self._transaction = transaction
        self._call = call

    def join(self, receive: Receive) -> None:
        """Add a receive whose settlement has joined: it ends with the transaction."""
        self._transaction.join(receive)

    @property
    def committed(self) -> answers.CommittedTransaction | None:
        """The result of the commit, None before it."""
        return self._transaction.committed

    def commit(self) -> answers.CommittedTransaction:
        """Carry out every member. Raises `TransactionRolledBack` if that is impossible; then none is carried out."""
        return self._call(self._transaction.commit)

    def rollback(self) -> None:
        """Discard every member. Messages stay locked by their receivers, who can settle them."""
        self._call(self._transaction.rollback)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._transaction.__aexit__, kind, error, trace)
