"""Receiving over HTTP: settle first, then wait for the next messages."""

import asyncio
from collections.abc import Sequence

from app.api.bodies import ClientGone, is_gone, until_gone
from app.api.desk import Call
from app.api.operation import Headers, Reply, operation
from app.api.sending import REPLAYED
from app.api.settling import settle_all
from app.broker.filters import CelFilter
from app.broker.receive import Wish, give_back, receive, receive_and_delete, receive_once
from app.domain.access import Right
from app.domain.instant import from_seconds
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Fault, InvalidRequest
from app.wire.messages import ReceivedMessages, ReceiveMessages, received

SOURCES = {"queue": MessageState.AVAILABLE, "dead_letter": MessageState.DEAD_LETTERED}


@operation(
    "POST", "/v1/queues/{queue}/messages/receive", right=Right.LISTEN, tag="messages",
    body=ReceiveMessages, answers={200: ReceivedMessages}, refusals=(403, 404, 409, 422),
    headers=("Idempotency-Key", "Prefer"),
)  # fmt: skip
async def receive_messages(call: Call[ReceiveMessages]) -> Reply:
    """Receive the next messages under lock; empty when none came in time.

    `settlements` are carried out first, so that a worker's loop is one request a message.
    """
    queue = await call.queue()
    wish = _wish(call)
    settled = None
    if call.body.settlements:
        settled = await settle_all(call, queue, call.body.settlements, "/settlements")
    messages, headers = await _while_client_waits(call, queue, wish)
    return Reply(ReceivedMessages([received(message) for message in messages], settled), headers=headers)


async def _while_client_waits(
    call: Call[ReceiveMessages], queue: Queue, wish: Wish
) -> tuple[Sequence[Message], Headers]:
    """Receive, but give everything back if the client goes before the answer begins."""
    if wish.patience_seconds <= 0:
        messages, headers = await _receive(call, queue, wish)
    else:
        messages, headers = await _until_answer_or_gone(call, queue, wish)
    if messages and is_gone(call.receive):
        await give_back(call.broker, messages)
        raise ClientGone
    return messages, headers


async def _until_answer_or_gone(
    call: Call[ReceiveMessages], queue: Queue, wish: Wish
) -> tuple[Sequence[Message], Headers]:
    waiting = asyncio.ensure_future(_receive(call, queue, wish))
    leaving = asyncio.ensure_future(until_gone(call.receive))
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            # The store gives back what it claims for a caller that is cancelled.
            waiting.cancel()
            raise ClientGone
        return waiting.result()
    finally:
        leaving.cancel()
        if not waiting.done():
            waiting.cancel()


async def _receive(call: Call[ReceiveMessages], queue: Queue, wish: Wish) -> tuple[Sequence[Message], Headers]:
    if call.body.mode == "receive_and_delete":
        return await receive_and_delete(call.broker, queue, wish), ()
    attempt = call.attempt("receive")
    if attempt is None:
        return await receive(call.broker, queue, wish), ()
    once = await receive_once(call.broker, queue, wish, attempt)
    return once.answer, REPLAYED if once.replayed else ()


def _wish(call: Call[ReceiveMessages]) -> Wish:
    body = call.body
    if body.sequence_numbers is not None and body.filter is not None:
        raise InvalidRequest(faults=[Fault("/filter", "Messages asked for by number are not filtered.")])
    if call.header(b"idempotency-key") and (body.mode != "peek_lock" or body.filter or body.sequence_numbers):
        detail = "An Idempotency-Key goes with a plain peek-lock receive."
        raise InvalidRequest(faults=[Fault("#/header/Idempotency-Key", detail)])
    numbers = body.sequence_numbers or []
    return Wish(
        most=len(numbers) or body.max_messages,
        patience_seconds=call.patience(body.wait_seconds),
        lock_duration=None if body.lock_seconds is None else from_seconds(body.lock_seconds),
        receiver_id=body.receiver_id,
        source=SOURCES[body.source],
        numbers=numbers,
        matching=None if body.filter is None else CelFilter(body.filter),
    )
