"""Receiving over HTTP: settle first, then wait for the next messages."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from app.api.bodies import ClientGone, Headers, is_gone, until_gone
from app.api.desk import Call, in_header
from app.api.operation import Reply, operation
from app.api.sending import REPLAYED
from app.api.settlements import read_entries
from app.api.settling import results_of, settle_all
from app.broker.filters import CelFilter
from app.broker.give_back import give_back
from app.broker.ports import Attempt
from app.broker.receive import Wish, foresee, receive, receive_and_delete, receive_once
from app.broker.renew import Promise
from app.broker.settling import Answer
from app.domain.access import Right
from app.domain.instant import from_seconds
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.wire.messages import ReceivedMessages, ReceiveMessages, received
from app.wire.values import at

SOURCES = {"queue": MessageState.AVAILABLE, "dead_letter": MessageState.DEAD_LETTERED}


@operation(
    "POST", "/v1/queues/{queue}/messages/receive", right=Right.LISTEN, tag="messages",
    body=ReceiveMessages, answers={200: ReceivedMessages}, refusals=(404, 409, 422, 429),
    headers=("Idempotency-Key", "Prefer"),
    example={"max_messages": 10, "wait_seconds": 20},
)  # fmt: skip
async def receive_messages(call: Call[ReceiveMessages]) -> Reply:
    """Receive the next messages under lock; none when nothing came in time.

    `settlements` are carried out first, so that a worker's loop is one request a message. Where the receive is
    refused, nothing is settled; where it fails or is cut after that, they stand, and repeating them is harmless.

    An answer may carry fewer messages than `max_messages`, because its size is limited (`PEEKLOCK_MAX_ANSWER_BYTES`).
    Receive again for the rest.

    A call with a filter looks at a bounded number of messages. It may answer none before it has looked at all of them,
    and the next call with the same filter goes on there. A server lets a bounded number of such receivers wait.
    """
    queue = await call.queue()
    wish, attempt = _wish(call), call.attempt("receive")
    entries = read_entries(call.body.settlements or ())
    answers: Sequence[Answer | Promise] = ()
    if entries:
        await foresee(call.broker, queue, attempt)
        answers = await settle_all(call.broker, queue, entries)
    messages, headers = await _while_client_waits(call, queue, wish, attempt)
    views = received(messages, call.broker.clock.monotonic)
    settled = results_of(call, entries, answers) if entries else None
    return Reply(ReceivedMessages(views, settled), headers=headers)


async def _while_client_waits(
    call: Call[ReceiveMessages], queue: Queue, wish: Wish, attempt: Attempt | None
) -> tuple[Sequence[Message], Headers]:
    """Receive, but keep nothing from others if the client goes before the answer begins.

    What an attempt has claimed stays locked, because repeating the attempt is how its client gets it after all.
    """
    if wish.matching is not None:
        # Looking through a filter may take long, so its client is watched from the first look on.
        messages, headers = await _until_answer_or_gone(call, queue, wish, attempt)
    else:
        # Most receivers find something at once; only those that do not pay for being watched while they wait.
        messages, headers = await _receive(call, queue, replace(wish, patience_seconds=0.0), attempt)
        if not messages and wish.patience_seconds > 0:
            messages, headers = await _until_answer_or_gone(call, queue, wish, attempt)
    if messages and is_gone(call.receive):
        await _let_go(call, queue, attempt, messages)
        raise ClientGone
    return messages, headers


async def _let_go(
    call: Call[ReceiveMessages], queue: Queue, attempt: Attempt | None, messages: Sequence[Message]
) -> None:
    """Keep from others none of the messages that were taken for a client that will not hear of them."""
    if call.body.mode == "receive_and_delete":
        call.broker.tally.count("messages_lost", len(messages))
    elif attempt is None:
        await give_back(call.broker, queue, messages)


async def _until_answer_or_gone(
    call: Call[ReceiveMessages], queue: Queue, wish: Wish, attempt: Attempt | None
) -> tuple[Sequence[Message], Headers]:
    waiting = asyncio.ensure_future(_receive(call, queue, wish, attempt))
    leaving = asyncio.ensure_future(until_gone(call.receive))
    with call.desk.metrics.waiting.track_inprogress():
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The messages may have come in the very turn in which this call was cancelled.
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                await _let_go(call, queue, attempt, waiting.result()[0])
            raise
        finally:
            # A task that is cancelled gives back what was claimed for it, and has done so before this call ends.
            leaving.cancel()
            waiting.cancel()
            await asyncio.wait((waiting, leaving))
    if waiting.cancelled():
        raise ClientGone
    return waiting.result()


async def _receive(
    call: Call[ReceiveMessages], queue: Queue, wish: Wish, attempt: Attempt | None
) -> tuple[Sequence[Message], Headers]:
    if call.body.mode == "receive_and_delete":
        return await receive_and_delete(call.broker, queue, wish), ()
    if attempt is None:
        return await receive(call.broker, queue, wish), ()
    once = await receive_once(call.broker, queue, wish, attempt)
    return once.answer, REPLAYED if once.replayed else ()


def _wish(call: Call[ReceiveMessages]) -> Wish:
    body = call.body
    _check(call)
    numbers = body.sequence_numbers or ()
    return Wish(
        most=len(numbers) or body.max_messages,
        patience_seconds=call.patience(body.wait_seconds),
        lock_duration=None if body.lock_seconds is None else from_seconds(body.lock_seconds),
        receiver_id=body.receiver_id,
        source=SOURCES[body.source],
        numbers=numbers,
        matching=None if body.filter is None else CelFilter(body.filter),
    )


def _check(call: Call[ReceiveMessages]) -> None:
    """Refuse with `InvalidRequest` where what is asked for contradicts itself."""
    body = call.body
    if numbers := body.sequence_numbers:
        if body.filter is not None:
            raise at("/filter", "Messages asked for by number are not filtered.")
        if body.source != "queue":
            raise at("/source", "Messages asked for by number are deferred ones of the queue.")
        if len(set(numbers)) < len(numbers):
            raise at("/sequence_numbers", "A sequence number is given twice.")
    if call.header(b"idempotency-key") and (body.mode != "peek_lock" or body.filter or body.sequence_numbers):
        raise in_header(
            "Idempotency-Key",
            "An Idempotency-Key is only accepted with a peek-lock receive that has no filter and no numbers.",
        )
