"""Sending over HTTP: one message, many, or whatever bytes a caller has."""

from collections.abc import Sequence
from typing import Any

from app.api.bodies import Headers
from app.api.cloudevents import event_letter, is_event
from app.api.decoding import body_decoder
from app.api.desk import Call, in_header
from app.api.operation import Reply, operation
from app.api.problems import problem_of
from app.api.raw import FIELD_HEADERS, identity, raw_letter
from app.broker.ports import Attempt
from app.broker.send import post, send, send_each, send_once
from app.domain.access import Right
from app.domain.message import Durability, Receipt
from app.domain.queue import Queue
from app.domain.refusals import Fault, InvalidRequest, Refusal
from app.domain.sending import Letter
from app.wire.sending import (
    AcceptedMessage,
    RefusedSend,
    SendBatch,
    SendMessage,
    SendResult,
    SendResults,
    SentMessage,
    sent,
    sent_result,
)
from app.wire.values import at

REPLAYED: Headers = ((b"idempotency-replayed", b"true"),)
SEND_REFUSALS = (404, 409, 413, 422, 429, 507)
_decode_message = body_decoder(SendMessage)
SEND_HEADERS = ("Idempotency-Key", "traceparent")


@operation(
    "POST", "/v1/queues/{queue}/messages", right=Right.SEND, tag="messages",
    body=SendMessage, answers={201: SentMessage, 202: AcceptedMessage}, refusals=SEND_REFUSALS, headers=SEND_HEADERS,
    example={"body": {"order": 17}, "subject": "order.placed", "properties": {"region": "eu"}, "delay_seconds": 5},
)  # fmt: skip
async def send_message(call: Call[SendMessage]) -> Reply:
    """Send a message.

    It is stored durably before the answer, unless its durability is `volatile`: then the answer is 202,
    a crash within the next moments loses the message, and a lost connection to the database may store it twice.
    """
    return await _send_one(call, call.body.letter(call.broker.new_id, call.traceparent()), call.attempt("send"))


@operation(
    "POST", "/v1/queues/{queue}/messages/raw", right=Right.SEND, tag="messages",
    body=bytes, answers={201: SentMessage, 202: AcceptedMessage}, refusals=SEND_REFUSALS,
    headers=(*SEND_HEADERS, *FIELD_HEADERS),
)  # fmt: skip
async def send_raw(call: Call[bytes]) -> Reply:
    """Send the request body as it is.

    Its Content-Type is kept. The other fields of a message come in headers: `Peeklock-Message-Id`,
    `Peeklock-Priority`, `Peeklock-Delay-Seconds` and so on, and `Peeklock-Property-<name>` for a property.

    CloudEvents 1.0 are understood in binary mode (`ce-*` headers) and in structured mode
    (`application/cloudevents+json`): `id` becomes the message id, `type` the subject, `data` the body, and every
    attribute a property called `cloudEvents:<attribute>`. Two sources may use the same `id`, so a queue that
    looks for duplicates should be fed by one source.
    """
    letter = event_letter(call) if is_event(call) else raw_letter(call)
    return await _send_one(call, letter, call.attempt("send", identity(call)))


@operation(
    "POST", "/v1/queues/{queue}/messages/batch", right=Right.SEND, tag="messages",
    body=SendBatch, answers={201: SendResults}, refusals=SEND_REFUSALS, headers=SEND_HEADERS,
    example={"messages": [{"body": "first"}, {"body": "second"}]},
)  # fmt: skip
async def send_batch(call: Call[SendBatch]) -> Reply:
    """Send many messages in one call: all or none, or each for itself with `atomic: false`.

    With `atomic: false` a message that is not well formed has the problem that a single send of it would have, with
    pointers into that message. The request is refused as a whole only if `messages` is not a list of 1 to 1000 entries.
    """
    entries = _entries(call)
    if call.body.atomic:
        letters = _all_letters(entries)
        attempt = call.attempt("send_batch")
        receipts, headers = await _store(call, letters, attempt)
        return Reply(SendResults([sent_result(receipt) for receipt in receipts]), 201, headers=headers)
    if call.header(b"idempotency-key") is not None:
        raise in_header("Idempotency-Key", "An Idempotency-Key is only accepted with an atomic batch.")
    answers = await _send_each(call, entries)
    return Reply(SendResults([_result(answer, call.request_id) for answer in answers]), 201)


def _entries(call: Call[SendBatch]) -> list[Letter | InvalidRequest]:
    """The letter of each entry, or why that entry is refused."""
    traceparent = call.traceparent()
    return [_entry(call, bytes(written), traceparent) for written in call.body.messages]


def _entry(call: Call[SendBatch], written: bytes, traceparent: str | None) -> Letter | InvalidRequest:
    try:
        message: SendMessage = _decode_message(written)
        letter = message.letter(call.broker.new_id, traceparent)
    except InvalidRequest as refusal:
        return refusal
    return letter if letter.durability is Durability.DURABLE else at("/durability", "A batch is always durable.")


def _all_letters(entries: Sequence[Letter | InvalidRequest]) -> list[Letter]:
    """The letters if every entry is valid; refuses with the first fault otherwise."""
    letters: list[Letter] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, InvalidRequest):
            raise InvalidRequest(
                faults=[Fault(f"/messages/{place}{fault.pointer}", fault.detail) for fault in entry.faults]
            )
        letters.append(entry)
    return letters


async def _send_each(call: Call[SendBatch], entries: Sequence[Letter | InvalidRequest]) -> Sequence[Receipt | Refusal]:
    """Store the letters, each by itself. Without any, the queue is neither looked up nor made, as for a single send."""
    letters = [entry for entry in entries if isinstance(entry, Letter)]
    stored = iter(await send_each(call.broker, await _queue(call), letters) if letters else ())
    return [next(stored) if isinstance(entry, Letter) else entry for entry in entries]


async def _send_one(call: Call[Any], letter: Letter, attempt: Attempt | None) -> Reply:
    if letter.durability is Durability.VOLATILE:
        if attempt is not None:
            raise in_header("Idempotency-Key", "An Idempotency-Key is only accepted with a durable message.")
        return Reply(AcceptedMessage(await post(call.broker, await _queue(call, [letter]), letter)), 202)
    (receipt,), headers = await _store(call, [letter], attempt)
    return Reply(sent(receipt), 201, headers=headers)


async def _store(call: Call[Any], letters: list[Letter], attempt: Attempt | None) -> tuple[list[Receipt], Headers]:
    if attempt is None:
        return await send(call.broker, await _queue(call, letters), letters), ()
    once = await send_once(call.broker, call.path["queue"], letters, attempt)
    return once.answer, REPLAYED if once.replayed else ()


async def _queue(call: Call[Any], letters: Sequence[Letter] = ()) -> Queue:
    return await call.broker.catalogue.named_for_send(call.path["queue"], letters)


def _result(answer: Receipt | Refusal, tracking_id: str) -> SendResult:
    return RefusedSend(problem_of(answer, tracking_id)) if isinstance(answer, Refusal) else sent_result(answer)
