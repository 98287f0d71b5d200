"""Receive: the next messages, each under a lock that only its token can end.

Crash windows: before the claim's commit nothing happened; after it the messages are locked and, if
nobody hears of them, come back when their locks run out. A receiver that has gone before its answer
began gives them back at once, uncounted, whatever was still to be done with them. While waiting
nothing is held: no transaction and no row.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.ports import Attempt, AttemptResult
from app.broker.receive_filtered import receive_filtered
from app.broker.release_undelivered import release_undelivered
from app.broker.renew import renew
from app.broker.settle import settle
from app.broker.wait import wait_for_wake_up
from app.domain.delivery import Claim, wait_key_of
from app.domain.instant import Duration
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, check_receive_enabled
from app.domain.refusals import MessageBusy, Refusal, StoreUnavailable
from app.domain.settlement import Outcome, Removal, Settled, token_of
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, weight_of
from app.runtime.byte_budget import Reservation
from app.runtime.wait_queue import Waiter


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """What a receiver asks for: at most `most` messages, waiting up to `patience_seconds` for the first.

    `numbers` asks for deferred messages by sequence number; `matching` for those a filter lets through.
    """

    max_messages: int = 1
    wait_seconds: float = 0.0
    lock_duration: Duration | None = None
    receiver_id: str | None = None
    source: MessageState = MessageState.AVAILABLE
    sequence_numbers: Sequence[int] = ()
    message_filter: Filter | None = None


async def receive(broker: Broker, queue: Queue, wanted: ReceiveRequest) -> list[Message]:
    """Messages under lock, in order; empty when none came in time. Refuses with `ReceiveDisabled`."""
    check_receive_enabled(queue)
    if wanted.message_filter is not None:
        return await receive_filtered(
            broker, queue, _claim(broker, queue, wanted), wanted.message_filter, wanted.wait_seconds
        )
    if wanted.wait_seconds <= 0 or wanted.sequence_numbers:
        return await _poll(broker, queue, wanted)
    deadline = broker.clock.monotonic() + wanted.wait_seconds
    with broker.wait_queue.waiter(wait_key_of(queue.id, wanted.source)) as waiter:
        while True:
            messages = await _poll(broker, queue, wanted)
            _pass_on_wake_up(waiter, wanted, messages, _spare_bytes(broker, queue))
            if messages or not await wait_for_wake_up(broker, queue, waiter, deadline):
                return messages


async def receive_once(
    broker: Broker, queue: Queue, wanted: ReceiveRequest, attempt: Attempt
) -> AttemptResult[list[Message]]:
    """`receive`, with effect only the first time the attempt is made.

    A repeat answers the same messages with the same tokens where those locks still live, and renews those that were
    renewed before. An attempt is made when there is something to receive or the patience is at its end, so that a repeat of an
    attempt that was cut while waiting still waits.
    """
    check_receive_enabled(queue)
    deadline = broker.clock.monotonic() + wanted.wait_seconds
    with broker.wait_queue.waiter(wait_key_of(queue.id, wanted.source)) as waiter:
        while True:
            async with _reserve_bytes(broker, queue, wanted):
                once = await broker.store.claim_once(_claim(broker, queue, wanted), attempt)
            if once.replayed:
                # This receiver has not looked at the messages there are now; on leaving, its wake-up goes to the next
                # one. The first attempt may have locked messages of a queue of this name that is deleted: no token of
                # theirs can settle here.
                own_messages = [message for message in once.result if message.queue_id == queue.id]
                return AttemptResult(await _live_messages(broker, queue, wanted, own_messages), replayed=True)
            _pass_on_wake_up(waiter, wanted, once.result, _spare_bytes(broker, queue))
            if once.result or not await wait_for_wake_up(broker, queue, waiter, deadline):
                return once


async def check_receive(broker: Broker, queue: Queue, attempt: Attempt | None) -> None:
    """Refuse now what a receive would be refused for, before its caller does anything else in the same call.

    Refuses with `ReceiveDisabled` or `KeyReused`.
    """
    check_receive_enabled(queue)
    if attempt is not None:
        await broker.store.check_attempt(attempt)


async def receive_and_delete(broker: Broker, queue: Queue, wanted: ReceiveRequest) -> list[Message]:
    """Messages that are out of the queue before they are answered (S3.11, S3.12).

    Whoever dies between here and the receiver loses them; they are in the archive as `received`.
    """
    messages = await receive(broker, queue, wanted)
    removals = [
        Removal(token_of(message), queue.id, queue.name, Outcome.RECEIVED, queue.settings.archive_retention)
        for message in messages
    ]
    try:
        answers = await settle(broker, queue, removals)
    except (asyncio.CancelledError, StoreUnavailable):
        await release_undelivered(broker, queue, messages)
        raise
    received: list[Message] = []
    busy: list[Message] = []
    for message, answer in zip(messages, answers, strict=True):
        if isinstance(answer, Settled):
            received.append(replace(message, lock_token=None, locked_until=None))
        elif isinstance(answer, MessageBusy):
            busy.append(message)
    await release_undelivered(broker, queue, busy)
    return received


async def _live_messages(
    broker: Broker, queue: Queue, wanted: ReceiveRequest, messages: Sequence[Message]
) -> list[Message]:
    """Those of these messages whose locks live, each with an end of its lock that is kept.

    For a lock that was renewed, SQL knows how far the lock store may prolong it, which is later than it may end. Only a
    renewal can tell its holder what is kept, so it is renewed once more.
    """
    held = await asyncio.gather(*(_renew_if_renewed(broker, queue, wanted, message) for message in messages))
    return [message for message in held if message is not None]


async def _renew_if_renewed(broker: Broker, queue: Queue, wanted: ReceiveRequest, message: Message) -> Message | None:
    if not message.lock_generation:
        return message
    try:
        promise = await renew(broker, queue, token_of(message), wanted.lock_duration)
    except Refusal:
        return None
    until = promise.locked_until
    return replace(message, locked_until=until, read_at=until - promise.duration, read_started_at=promise.measured_from)


def _claim(broker: Broker, queue: Queue, wanted: ReceiveRequest) -> Claim:
    return Claim(
        queue_id=queue.id,
        max_messages=wanted.max_messages,
        lock_duration=wanted.lock_duration or queue.settings.lock_duration,
        receiver_id=wanted.receiver_id,
        source=MessageState.DEFERRED if wanted.sequence_numbers else wanted.source,
        max_bytes=broker.max_response_bytes,
    )


def _spare_bytes(broker: Broker, queue: Queue) -> int:
    """What messages may weigh that are answered without leaving out one for its size."""
    return broker.max_response_bytes - queue.settings.max_message_bytes - MESSAGE_OVERHEAD_BYTES


def _pass_on_wake_up(
    waiter: Waiter[int], wanted: ReceiveRequest, messages: Sequence[Message], largest_rest: int
) -> None:
    """A look that came up short has looked for all who wait; any other may have left more than it could take, or more
    than its answer has room for."""
    fits = not messages or sum(map(weight_of, messages)) <= largest_rest
    if len(messages) < wanted.max_messages and fits:
        waiter.consume()
    else:
        waiter.pass_on()


async def _poll(broker: Broker, queue: Queue, wanted: ReceiveRequest) -> list[Message]:
    """Claim once, without waiting for messages. Refuses with `Overloaded`."""
    claim = _claim(broker, queue, wanted)
    async with _reserve_bytes(broker, queue, wanted):
        if wanted.sequence_numbers:
            return await broker.store.claim_by_number(claim, wanted.sequence_numbers)
        return await broker.store.claim(claim)


def _reserve_bytes(broker: Broker, queue: Queue, wanted: ReceiveRequest) -> Reservation:
    """Room for as much as a claim may bring."""
    return broker.response_budget.reserve(
        min(
            broker.max_response_bytes, wanted.max_messages * (queue.settings.max_message_bytes + MESSAGE_OVERHEAD_BYTES)
        )
    )
