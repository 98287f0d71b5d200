"""Sending over HTTP: one message, many, or whatever bytes a caller has."""

from app.api.cloudevents import raw_letter
from app.api.desk import Call
from app.api.operation import Headers, Reply, operation
from app.api.problems import problem_of
from app.broker.send import post, send, send_each, send_once
from app.domain.access import Right
from app.domain.message import Durability, Receipt
from app.domain.queue import Queue
from app.domain.refusals import Fault, InvalidRequest, Refusal
from app.domain.sending import Letter
from app.wire.messages import (
    AcceptedMessage,
    RefusedSend,
    SendBatch,
    SendMessage,
    SendResult,
    SendResults,
    SentMessage,
    SentResult,
    sent,
)
from app.wire.times import to_wire

REPLAYED: Headers = ((b"idempotency-replayed", b"true"),)
SEND_REFUSALS = (403, 404, 409, 413, 422, 429, 507)


@operation(
    "POST", "/v1/queues/{queue}/messages", right=Right.SEND, tag="messages",
    body=SendMessage, answers={201: SentMessage, 202: AcceptedMessage}, refusals=SEND_REFUSALS,
    headers=("Idempotency-Key", "traceparent"),
)  # fmt: skip
async def send_message(call: Call[SendMessage]) -> Reply:
    """Send a message. It is stored durably before the answer, unless its durability is volatile."""
    return await _send_one(call, call.body.letter(call.traceparent()))


@operation(
    "POST", "/v1/queues/{queue}/messages/raw", right=Right.SEND, tag="messages",
    body=bytes, answers={201: SentMessage, 202: AcceptedMessage}, refusals=SEND_REFUSALS,
    headers=("Idempotency-Key", "traceparent"),
)  # fmt: skip
async def send_raw(call: Call[bytes]) -> Reply:
    """Send the request body as it is. Fields and properties come in `Peeklock-*` headers; CloudEvents are understood."""
    return await _send_one(call, raw_letter(call))


@operation(
    "POST", "/v1/queues/{queue}/messages/batch", right=Right.SEND, tag="messages",
    body=SendBatch, answers={201: SendResults}, refusals=SEND_REFUSALS,
    headers=("Idempotency-Key", "traceparent"),
)  # fmt: skip
async def send_batch(call: Call[SendBatch]) -> Reply:
    """Send many messages in one call: all or none, or each for itself with `atomic: false`."""
    queue = await _queue(call)
    traceparent = call.traceparent()
    letters = [
        message.letter(traceparent, f"/messages/{place}") for place, message in enumerate(call.body.messages)
    ]
    for place, letter in enumerate(letters):
        if letter.durability is not Durability.DURABLE:
            raise InvalidRequest(faults=[Fault(f"/messages/{place}/durability", "A batch is always durable.")])
    if not call.body.atomic:
        return Reply(SendResults([_result(one, call.request_id) for one in await send_each(call.broker, queue, letters)]), 201)
    receipts, headers = await _store(call, queue, letters, "send_batch")
    return Reply(SendResults([_result(receipt, call.request_id) for receipt in receipts]), 201, headers=headers)


async def _send_one(call: Call[SendMessage] | Call[bytes], letter: Letter) -> Reply:
    queue = await _queue(call)
    if letter.durability is Durability.VOLATILE:
        return Reply(AcceptedMessage(await post(call.broker, queue, letter)), 202)
    (receipt,), headers = await _store(call, queue, [letter], "send")
    return Reply(sent(receipt), 201, headers=headers)


async def _store(
    call: Call[SendMessage] | Call[bytes] | Call[SendBatch], queue: Queue, letters: list[Letter], verb: str
) -> tuple[list[Receipt], Headers]:
    attempt = call.attempt(verb)
    if attempt is None:
        return await send(call.broker, queue, letters), ()
    once = await send_once(call.broker, queue, letters, attempt)
    return once.answer, REPLAYED if once.replayed else ()


async def _queue(call: Call[SendMessage] | Call[bytes] | Call[SendBatch]) -> Queue:
    return await call.broker.catalogue.named_for_send(call.path["queue"])


def _result(one: Receipt | Refusal, tracking_id: str) -> SendResult:
    if isinstance(one, Refusal):
        return RefusedSend(problem_of(one, tracking_id))
    return SentResult(one.sequence_number, one.message_id, to_wire(one.enqueued_at), one.state.label, one.duplicate)
