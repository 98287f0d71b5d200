"""The client of a server: queues, topics, states and transactions by name."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, Unpack
from uuid import uuid4

import httpx
from msgspec import UNSET, Struct, UnsetType

from peeklock_client.connection import Connection, RetryLimits
from peeklock_client.errors import PreconditionFailed
from peeklock_client.generated import answers, requests
from peeklock_client.messages import Message, MessageFields, NewMessage, entry, given, message_of, new_message
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.receive_state import JoinableTransaction
from peeklock_client.settling import DirectSettler, Settler
from peeklock_client.tracing import sending
from peeklock_client.transaction import Transaction

DEFAULT_URL = "http://localhost:8080"
BATCH_SIZE = 1000
"""Messages of one request that changes many, so that no request takes long."""

Source = Literal["queue", "dead_letter"]
StateName = Literal["available", "scheduled", "locked", "deferred", "dead_lettered", "blocked"]


class Plan(Struct, frozen=True):
    """What a change of many messages would do now: to how many, of how many bytes, and some of them.

    If it is not `complete`, the filter was tried on a part of the messages, and `count` and `bytes` are at least these.
    """

    count: int
    bytes: int
    complete: bool
    sample: Sequence[answers.SampleMessage]


class Client:
    """A client of one server. Use it with `async with`, and share it: it is safe in many tasks of one event loop.

    `url` and `api_key` default to the environment variables `PEEKLOCK_URL` and `PEEKLOCK_API_KEY`. `api` has a typed method
    for every operation of the server.
    """

    connection_type: ClassVar[type[Connection]] = Connection

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        retries: RetryLimits | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        address = url or os.environ.get("PEEKLOCK_URL") or DEFAULT_URL
        key = api_key or os.environ.get("PEEKLOCK_API_KEY")
        self.api = self.connection_type(address, key, retries or RetryLimits(), http)

    def queue(self, name: str) -> Queue:
        """Return the queue of this name. Sends no request, so the queue need not exist."""
        return Queue(self.api, name)

    def topic(self, name: str) -> Topic:
        """Return the topic of this name. Sends no request, so the topic need not exist."""
        return Topic(self.api, name)

    async def transaction(self, timeout_seconds: float | None = None) -> Transaction:
        """Open a transaction: `async with await client.transaction() as transaction`. It is rolled back at its deadline."""
        body = requests.OpenTransaction(UNSET if timeout_seconds is None else timeout_seconds)
        return Transaction(self.api, await self.api.start_transaction(body))

    async def close(self) -> None:
        """Close all connections."""
        await self.api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Queue:
    """One queue of a server."""

    def __init__(self, api: Connection, name: str) -> None:
        self.name = name
        self._api = api
        self._settler = DirectSettler(api, name)

    # ---- send --------------------------------------------------------------------------------------------------------

    async def send(
        self, body: Any, *, transaction: JoinableTransaction | None = None, **fields: Unpack[MessageFields]
    ) -> answers.SentMessage:
        """Send a message, and return once it is stored (S3.1). `body` is a value or a `NewMessage`; `fields` are its fields.

        The request has an Idempotency-Key, so retries store the message once. Raises `Refusal` if the server refuses the
        message, and `InDoubt` if its answer is lost and retries do not bring it.
        """
        message = new_message(body, fields)
        with sending(self.name, message_id=message.message_id) as traceparent:
            sent = await self._api.send_message(
                self.name,
                entry(requests.SendMessage, message, transaction_id=_id_of(transaction)),
                idempotency_key=new_key(),
                traceparent=traceparent,
            )
        return _stored(sent)

    async def send_batch(
        self, messages: Sequence[Any], *, transaction: JoinableTransaction | None = None
    ) -> list[answers.SentMessage]:
        """Send up to 1000 messages: all are stored, or none. Each is a value or a `NewMessage`. Raises as `send` does."""
        entries = [entry(requests.MessageToSend, new_message(one, {})) for one in messages]
        with sending(self.name, count=len(entries)) as traceparent:
            sent = await self._api.send_batch(
                self.name,
                requests.SendBatch(entries, transaction_id=_id_of(transaction)),
                idempotency_key=new_key(),
                traceparent=traceparent,
            )
        return [_sent(result) for result in sent.results]

    async def request(self, body: Any, *, wait_seconds: float = 20.0, **fields: Unpack[MessageFields]) -> Any:
        """Send a message, wait until a receiver has completed it, and return the receiver's reply.

        Raises `NoReceiver`, `NotAccepted` or `NoReply`; the message is not stored then.
        """
        message = entry(
            requests.SendMessage, new_message(body, fields), delivery="synchronous", wait_seconds=wait_seconds
        )
        with sending(self.name, message_id=given(message.message_id)) as traceparent:
            delivered = await self._api.send_message(
                self.name, message, idempotency_key=new_key(), traceparent=traceparent
            )
        return given(delivered.reply)

    # ---- receive -----------------------------------------------------------------------------------------------------

    async def receive(
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
    ) -> list[ReceiveContext[Any]]:
        """Receive up to 1000 messages under lock, or none if none comes within `wait_seconds` (S3.13).

        By default it does not wait. None waits for the `default_wait_seconds` of the queue.
        Settle each with the methods of its `ReceiveContext` before its lock ends, or renew it.
        """
        body = requests.ReceiveMessages(
            max_messages,
            _or_unset(wait_seconds),
            _or_unset(lock_seconds),
            source=source,
            sequence_numbers=_or_unset(None if sequence_numbers is None else list(sequence_numbers)),
            receiver_id=_or_unset(receiver_id),
            filter=_or_unset(filter),
            group_id=_or_unset(group_id),
        )
        has_key = filter is None and sequence_numbers is None
        received = await self._api.receive_messages(self.name, body, idempotency_key=new_key() if has_key else None)
        return [receive_context(view, self._settler) for view in received.messages]

    async def receive_and_delete(
        self, max_messages: int = 1, *, wait_seconds: float | None = 0.0
    ) -> list[Message[Any]]:
        """Receive messages and remove them from the queue at once (S3.11). If the answer is lost, the messages are lost."""
        body = requests.ReceiveMessages(max_messages, _or_unset(wait_seconds), mode="receive_and_delete")
        received = await self._api.receive_messages(self.name, body)
        return [message_of(view) for view in received.messages]

    async def recover(self, receiver_id: str, max_messages: int = 1000) -> list[ReceiveContext[Any]]:
        """Receive again the messages that this receiver has locked and not settled, under new locks (S1.66)."""
        body = requests.RecoverMessages(receiver_id, max_messages)
        recovered = await self._api.recover_messages(self.name, body)
        return [receive_context(view, self._settler) for view in recovered.messages]

    async def browse(
        self, *, filter: str | None = None, states: Sequence[str] | None = None
    ) -> AsyncIterator[Message[Any]]:
        """Yield the messages in the order of their sequence numbers, without locking or changing them (S1.71)."""
        cursor: str | None = None
        while True:
            page = await self._api.browse_messages(
                self.name, cursor=cursor, state=None if states is None else list(states), filter=filter
            )
            for view in page.items:
                yield message_of(view)
            cursor = page.next_cursor
            if cursor is None:
                return

    # ---- the queue itself --------------------------------------------------------------------------------------------

    async def create(self, settings: requests.QueueSettingsBody | None = None) -> bool:
        """Create the queue if it does not exist, and return whether it was created. An existing queue keeps its settings."""
        try:
            await self._api.put_queue(self.name, settings or requests.QueueSettingsBody(), if_none_match="*")
        except PreconditionFailed:
            return False
        return True

    async def status(self) -> answers.QueueStatusView:
        """Return the settings of the queue, and the number of its messages in each state."""
        return await self._api.get_queue(self.name)

    async def update(self, settings: requests.QueuePatch, *, keep_locks: bool = False) -> answers.QueueView:
        """Change these settings of the queue, and keep the others. Return all of them.

        A change of the lock duration, the delivery limit, the status or the redelivery ends the locks that receivers hold.
        `keep_locks` keeps them, and then a change of the redelivery is refused.
        """
        return await self._api.patch_queue(self.name, settings, keep_locks=keep_locks or None)

    async def explain(self) -> answers.QueueExplanationView:
        """Say why the queue is stalled, or that it is not."""
        return await self._api.explain_queue(self.name)

    async def explain_message(self, sequence_number: int) -> answers.MessageExplanationView:
        """Say why a message is not delivered, or how it ended."""
        return await self._api.explain_message(self.name, sequence_number)

    async def purge(
        self, *, states: Sequence[StateName] | None = None, filter: str | None = None, limit: int | None = None
    ) -> int:
        """Remove the messages in these states that match a filter, by default all that are not locked. Return their number."""
        return await _in_batches(limit, lambda size: self._purge(states, filter, size))

    async def plan_purge(self, *, states: Sequence[StateName] | None = None, filter: str | None = None) -> Plan:
        """Say which messages such a `purge` would remove now. Change nothing."""
        body = requests.PurgeQueue(_list(states), _or_unset(filter), dry_run=True)
        return _plan(await self._api.purge_queue(self.name, body))

    async def redrive(
        self,
        *,
        to_queue: str | None = None,
        filter: str | None = None,
        limit: int | None = None,
        rate_per_second: float | None = None,
    ) -> int:
        """Make the dead-lettered messages that match a filter available again, here or in another queue (S3.26).

        Their counts are reset. Return their number.
        """
        return await _in_batches(limit, lambda size: self._redrive(to_queue, filter, size, rate_per_second))

    async def plan_redrive(self, *, to_queue: str | None = None, filter: str | None = None) -> Plan:
        """Say which messages such a `redrive` would move now. Change nothing."""
        body = requests.RedriveDeadLetters(_or_unset(to_queue), _or_unset(filter), dry_run=True)
        return _plan(await self._api.redrive_dead_letters(self.name, body))

    async def move(self, to_queue: str | None = None, *, rate_per_second: float | None = None) -> answers.MoveView:
        """Start a task of the servers that moves the messages of this queue to another one, with their counts reset.

        Without `to_queue`, each message goes back to the queue that dead-lettered it. `move_task` reads its progress.
        """
        body = requests.StartMove(_or_unset(to_queue), _or_unset(rate_per_second))
        started = await self._api.start_move(self.name, body)
        if isinstance(started.move, UnsetType):
            raise TypeError("only a dry run has no task")
        return started.move

    async def plan_move(self, to_queue: str | None = None) -> Plan:
        """Say which messages such a `move` would move now. Change nothing."""
        return _plan(await self._api.start_move(self.name, requests.StartMove(_or_unset(to_queue), dry_run=True)))

    async def move_tasks(self) -> Sequence[answers.MoveView]:
        """Return the last ten move tasks of this queue, the newest first."""
        return (await self._api.list_moves(self.name)).items

    async def move_task(self, move_id: str) -> answers.MoveView:
        """Return a move task and its progress."""
        return await self._api.get_move(self.name, move_id)

    async def cancel_move(self, move_id: str) -> answers.MoveView:
        """Cancel a move task. What it has moved stays where it is."""
        return await self._api.cancel_move(self.name, move_id, requests.CancelMove())

    async def delete(self) -> None:
        """Delete the queue and its messages."""
        await self._api.delete_queue(self.name)

    async def _purge(self, states: Sequence[StateName] | None, filter: str | None, limit: int) -> int:
        body = requests.PurgeQueue(_list(states), _or_unset(filter), limit)
        return (await self._api.purge_queue(self.name, body)).removed

    async def _redrive(self, to_queue: str | None, filter: str | None, limit: int, rate: float | None) -> int:
        body = requests.RedriveDeadLetters(_or_unset(to_queue), _or_unset(filter), limit, _or_unset(rate))
        return (await self._api.redrive_dead_letters(self.name, body)).moved


class Topic:
    """One topic of a server."""

    def __init__(self, api: Connection, name: str) -> None:
        self.name = name
        self._api = api

    async def publish(
        self, body: Any, *, transaction: JoinableTransaction | None = None, **fields: Unpack[MessageFields]
    ) -> answers.PublishedMessage:
        """Publish a message to the queues of all subscriptions that match, and return once all copies are stored."""
        message = entry(requests.PublishMessage, new_message(body, fields), transaction_id=_id_of(transaction))
        with sending(self.name, message_id=given(message.message_id)) as traceparent:
            return await self._api.publish_message(
                self.name, message, idempotency_key=new_key(), traceparent=traceparent
            )

    async def publish_batch(
        self, messages: Sequence[Any], *, transaction: JoinableTransaction | None = None
    ) -> list[answers.PublishedMessage]:
        """Publish several messages: all are stored, or none."""
        entries = [entry(requests.MessageToSend, new_message(one, {})) for one in messages]
        with sending(self.name, count=len(entries)) as traceparent:
            published = await self._api.publish_batch(
                self.name,
                requests.PublishBatch(entries, transaction_id=_id_of(transaction)),
                idempotency_key=new_key(),
                traceparent=traceparent,
            )
        return published.results

    async def subscribe(self, name: str, settings: requests.SubscriptionSettingsBody | None = None) -> Queue:
        """Create a subscription, or replace the settings of an existing one. Return the queue that gets the copies."""
        made = await self._api.put_subscription(self.name, name, settings or requests.SubscriptionSettingsBody())
        return Queue(self._api, made.target_queue)


async def _in_batches(limit: int | None, change: Callable[[int], Awaitable[int]]) -> int:
    """Change up to `limit` messages, a batch in each request, until none is left. Return their number."""
    done = 0
    while limit is None or done < limit:
        size = BATCH_SIZE if limit is None else min(BATCH_SIZE, limit - done)
        if not (changed := await change(size)):
            break
        done += changed
    return done


def _plan(planned: answers.PurgedMessages | answers.RedrivenMessages | answers.StartedMove) -> Plan:
    sample = planned.sample
    return Plan(
        given(planned.count) or 0,
        given(planned.bytes) or 0,
        given(planned.complete) is True,
        [] if isinstance(sample, UnsetType) else sample,
    )


def receive_context(view: answers.ReceivedMessage, settler: Settler) -> ReceiveContext[Any]:
    """Return the receive context of a message that a receive has just locked."""
    assert isinstance(view.lock_token, str)
    assert isinstance(view.lock_remaining_ms, int)
    return ReceiveContext(message_of(view), view.lock_token, view.lock_remaining_ms / 1000, settler)


def new_key() -> str:
    """Return a new Idempotency-Key, for one call and its repeats."""
    return uuid4().hex


def _stored(answer: answers.SendAnswer) -> answers.SentMessage:
    """Return the answer to a send that waits neither for a receiver nor is volatile."""
    assert isinstance(answer.state, str)
    assert isinstance(answer.duplicate, bool)
    return answers.SentMessage(
        given(answer.sequence_number), answer.message_id, given(answer.enqueued_at), answer.state, answer.duplicate
    )


def _sent(result: answers.SentResult | answers.RefusedSend) -> answers.SentMessage:
    """Return the result of a message in a batch that stores all or none, so that none of it is refused alone."""
    assert isinstance(result, answers.SentResult)
    return answers.SentMessage(
        result.sequence_number, result.message_id, result.enqueued_at, result.state, result.duplicate
    )


def _id_of(transaction: JoinableTransaction | None) -> Any:
    return UNSET if transaction is None else transaction.id


def _list(values: Sequence[Any] | None) -> Any:
    return UNSET if values is None else list(values)


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


__all__ = ["Client", "NewMessage", "Plan", "Queue", "Topic"]
