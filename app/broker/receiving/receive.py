"""Receive: lock the next messages; only the lock token can settle each of them.

Crash windows: before the claim's commit nothing has happened. After it the messages are locked; if no receiver gets
them, they come back when their locks expire. If the receiver disconnects before its response begins, they are released
at once. A waiting receive holds no transaction and no row.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum, auto

import msgspec
from msgspec.structs import replace

from app.broker.filtering.filters import Filter
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.receiving import ReceivingStore
from app.broker.receiving.ports import ReceivingPorts
from app.broker.receiving.receive_filtered import receive_filtered
from app.broker.receiving.wait import CheckAccess, always_allowed, wait_for_wake_up
from app.broker.response_limits import ResponseLimits
from app.broker.settling.ports import SettlingPorts
from app.broker.settling.renew import renew
from app.broker.settling.settle import SettleResult, release_undelivered, settle
from app.domain.delivery import START_POSITION, Claim, wait_key_of
from app.domain.instant import Duration
from app.domain.message import MAX_RECEIVE_COUNT, Message, MessageState
from app.domain.queue import Queue, check_receive_enabled, check_receiver, lock_duration_of
from app.domain.refusals import AlreadySettled, MessageBusy, Refusal, StoreUnavailable, invalid_at
from app.domain.settlement import Outcome, Removal, Settled, token_of
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, weight_of
from app.runtime.wait_queue import Waiter


class ReceiveMode(Enum):
    """Whether received messages are locked, or removed at once."""

    PEEK_LOCK = auto()
    RECEIVE_AND_DELETE = auto()


class ReceiveRequest(msgspec.Struct, frozen=True):
    """The parameters of a receive: at most `max_messages`, waiting up to `wait_seconds` for the first.

    `sequence_numbers` selects deferred messages. `message_filter` selects messages that match. `group_id` selects the
    messages of a group in a queue with groups. `mode` says whether they are locked. `check_access` refuses a receiver that
    has lost its rights while it waited.
    """

    max_messages: int = 1
    wait_seconds: float = 0.0
    lock_duration: Duration | None = None
    receiver_id: str | None = None
    source: MessageState = MessageState.AVAILABLE
    sequence_numbers: Sequence[int] = ()
    message_filter: Filter | None = None
    group_id: str | None = None
    mode: ReceiveMode = ReceiveMode.PEEK_LOCK
    check_access: CheckAccess = always_allowed


async def receive(
    ports: ReceivingPorts, queue: Queue, request: ReceiveRequest, attempt: Attempt | None = None
) -> AttemptResult[list[Message]]:
    """Lock and return messages, in order; none if none arrived in time. Refuses as `check_receive` does.

    A repeat of an attempt returns the same messages with the same tokens, if their locks are still live, and renews the
    locks that were renewed before. The attempt is recorded when a message is received or the wait is over. So a repeat of an
    attempt that was interrupted while waiting waits again. Only a receive that locks the next messages takes an attempt.
    """
    _check_receive(queue, request)
    claim = Claim(
        queue_id=queue.id,
        max_messages=request.max_messages,
        lock_duration=lock_duration_of(queue.settings, request.lock_duration),
        receiver_id=request.receiver_id,
        source=MessageState.DEFERRED if request.sequence_numbers else request.source,
        max_bytes=ports.limits.max_bytes,
        keeps_history=queue.settings.history,
    )
    if request.message_filter is not None:
        found = await receive_filtered(
            ports, queue, claim, request.message_filter, request.wait_seconds, request.check_access
        )
        received = AttemptResult(found, replayed=False)
    elif request.wait_seconds <= 0 or request.sequence_numbers:
        received = await _poll(ports, queue, request, claim, attempt)
    else:
        received = await _wait_for_messages(ports, queue, request, claim, attempt)
    if received.replayed:
        # The first attempt may have locked messages of a deleted queue of this name: their tokens cannot settle here.
        own_messages = [message for message in received.result if message.queue_id == queue.id]
        return AttemptResult(await _live_messages(ports.settling, queue, request, own_messages), replayed=True)
    messages = received.result
    ports.delivered_ids.note(queue.id, messages)
    ports.counters.count_messages(queue.id, "delivered", len(messages))
    ports.counters.time_deliveries(messages)
    if request.mode is ReceiveMode.RECEIVE_AND_DELETE:
        return AttemptResult(await _remove(ports, queue, messages), replayed=False)
    return received


async def _wait_for_messages(
    ports: ReceivingPorts, queue: Queue, request: ReceiveRequest, claim: Claim, attempt: Attempt | None
) -> AttemptResult[list[Message]]:
    """Claim messages as soon as there are any; none if none arrives in time."""
    deadline = ports.clock.monotonic() + request.wait_seconds
    with ports.wait_queue.waiter(wait_key_of(queue.id, request.source)) as waiter:
        while True:
            polled = await _poll(ports, queue, request, claim, attempt)
            if polled.replayed:
                # This receiver has not polled for new messages, so its wake-up passes to the next one when it leaves.
                return polled
            _pass_on_wake_up(waiter, request, polled.result, _spare_bytes(ports.limits, queue))
            if polled.result or not await wait_for_wake_up(ports, queue, waiter, deadline, request.check_access):
                return polled


async def has_more(ports: ReceivingPorts, queue: Queue, request: ReceiveRequest) -> bool:
    """Return whether a message that this receive could get is available now (S1.64).

    For a receive without a filter and numbers. Reads at most one message, without its body, and changes nothing. Another
    receiver may lock it before this one asks again.
    """
    if request.group_id is not None:
        return bool(await ports.store.available_in_group(queue.id, request.group_id, 1))
    return bool(await ports.store.candidates(queue.id, request.source, START_POSITION, 1))


async def check_receive(
    messages: ReceivingStore, queue: Queue, request: ReceiveRequest, attempt: Attempt | None
) -> None:
    """Refuse what `receive` would refuse, before the caller does other work in the same request.

    Refuses with `ReceiveDisabled`, with `InvalidRequest` without a `receiver_id` that the queue needs or for a group of a
    queue without groups, or with `KeyReused`.
    """
    _check_receive(queue, request)
    if attempt is not None:
        await messages.check_attempt(attempt)


async def _remove(ports: ReceivingPorts, queue: Queue, messages: Sequence[Message]) -> list[Message]:
    """Remove received messages from the queue, and return those that were removed (S3.11, S3.12).

    A crash or disconnect before the response arrives loses them; the archive has them as `received`. If the store's answer
    does not arrive, the messages that it has removed are counted as lost, and the others are released.
    """
    removals = [
        Removal(token_of(message), queue.id, queue.name, Outcome.RECEIVED, queue.settings.archive_retention)
        for message in messages
    ]
    try:
        answers = await settle(ports.settling, queue, removals)
    except (asyncio.CancelledError, StoreUnavailable):
        released = await release_undelivered(ports.settling, queue, messages)
        ports.counters.count("messages_lost", sum(map(_is_received, released)))
        raise
    received: list[Message] = []
    busy: list[Message] = []
    for message, answer in zip(messages, answers, strict=True):
        if isinstance(answer, Settled):
            received.append(replace(message, lock_token=None, locked_until=None))
        elif isinstance(answer, MessageBusy):
            busy.append(message)
    await release_undelivered(ports.settling, queue, busy)
    return received


def _is_received(result: SettleResult) -> bool:
    """Return whether a message could not be released because it had been removed as received."""
    return isinstance(result, AlreadySettled) and result.outcome == Outcome.RECEIVED


async def _live_messages(
    ports: SettlingPorts, queue: Queue, request: ReceiveRequest, messages: Sequence[Message]
) -> list[Message]:
    """Return the messages whose locks are live, each with a `locked_until` that is guaranteed.

    For a renewed lock, SQL stores how far the lock store may extend it, and the lock may end earlier. Only a renewal
    returns a guaranteed end, so the lock is renewed again.
    """
    locked = await asyncio.gather(*(_renew_if_renewed(ports, queue, request, message) for message in messages))
    return [message for message in locked if message is not None]


async def _renew_if_renewed(
    ports: SettlingPorts, queue: Queue, request: ReceiveRequest, message: Message
) -> Message | None:
    if not message.lock_generation:
        return message
    try:
        lock = await renew(ports, queue, token_of(message), request.lock_duration)
    except Refusal:
        return None
    until = lock.locked_until
    return replace(message, locked_until=until, read_at=until - lock.duration, read_started_at=lock.measured_from)


def _check_receive(queue: Queue, request: ReceiveRequest) -> None:
    check_receive_enabled(queue)
    check_receiver(queue, request.receiver_id)
    if request.group_id is not None and not queue.has_groups:
        raise invalid_at("/group_id", "This queue has no group_in_flight. Use a filter: message.group_id == 'name'.")


def _spare_bytes(limits: ResponseLimits, queue: Queue) -> int:
    """The weight up to which a response is sure to have left no message out for its size."""
    return limits.max_bytes - queue.settings.max_message_bytes - MESSAGE_OVERHEAD_BYTES


def _pass_on_wake_up(
    waiter: Waiter[int], request: ReceiveRequest, messages: Sequence[Message], spare_bytes: int
) -> None:
    """Consume the wake-up if this poll emptied the queue; otherwise pass it to the next receiver.

    A poll that got fewer messages than it asked for has emptied the queue, unless its response had no room for more or it
    looked into one group alone.
    """
    if request.group_id is not None:
        waiter.pass_on()
        return
    fits = not messages or sum(map(weight_of, messages)) <= spare_bytes
    if len(messages) < request.max_messages and fits:
        waiter.consume()
    else:
        waiter.pass_on()


async def _poll(
    ports: ReceivingPorts, queue: Queue, request: ReceiveRequest, claim: Claim, attempt: Attempt | None
) -> AttemptResult[list[Message]]:
    """Claim messages once, without waiting. Refuses with `Overloaded`."""
    largest = request.max_messages * (queue.settings.max_message_bytes + MESSAGE_OVERHEAD_BYTES)
    async with ports.limits.budget.reserve(min(claim.max_bytes, largest)):
        if attempt is not None:
            return await ports.store.claim_or_replay(claim, attempt)
        if request.sequence_numbers:
            messages = await ports.store.claim_by_number(claim, request.sequence_numbers)
        elif request.group_id is not None:
            messages = await _claim_from_group(ports, claim, request.group_id)
        else:
            messages = await ports.store.claim(claim)
    return AttemptResult(messages, replayed=False)


async def _claim_from_group(ports: ReceivingPorts, claim: Claim, group_id: str) -> list[Message]:
    # More than are wanted, because another request may hold the first ones.
    numbers = await ports.store.available_in_group(claim.queue_id, group_id, MAX_RECEIVE_COUNT)
    return await ports.store.claim_by_number(claim, numbers) if numbers else []
