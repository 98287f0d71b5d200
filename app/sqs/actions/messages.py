"""Messages: send and receive them, delete those that are done, and change how long they stay invisible."""

import hashlib
from collections.abc import Sequence
from typing import Any

from app.broker.ports.attempts import Attempt
from app.broker.receiving.receive import ReceiveRequest
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon, complete
from app.broker.settling.settle import settle_one
from app.domain.instant import MINUTE, Duration, from_seconds, to_seconds
from app.domain.message import Receipt
from app.domain.queue import Queue
from app.domain.refusals import AlreadySettled, LockLost, MessageNotFound, Refusal
from app.domain.settlement import LockToken
from app.http.receiving import receive_unless_disconnected
from app.http.settling import BatchEntry, BatchResult, LockRenewal, settle_batch
from app.sqs.call import Call
from app.sqs.errors import ReceiptHandleIsInvalid
from app.sqs.message_attributes import md5_of_attributes
from app.sqs.message_bodies import md5_of_body
from app.sqs.message_ids import message_id_of, sequence_number_text
from app.sqs.new_message import fifo_rules, new_message
from app.sqs.queue_names import is_fifo
from app.sqs.received_message import received_message, wanted_attributes
from app.sqs.shapes import messages as shapes
from app.sqs.shapes.members import MAX_WAIT_SECONDS, Nothing
from app.wire.times import to_wire

ATTEMPT_RETENTION: Duration = 5 * MINUTE
"""How long a repeat of a ReceiveRequestAttemptId gets the same messages, as in SQS."""
MIN_VISIBILITY_SECONDS = 1
"""The shortest lock. A receive with a visibility timeout of 0 locks its messages for this long."""


async def send_message(call: Call[shapes.SendMessage]) -> shapes.SentMessage:
    """Store a message durably. Refuses as `new_message` and `send` do."""
    queue = await call.queue()
    message = new_message(call.body, fifo_rules(queue))
    (receipt,) = (await send(call.broker.sending, queue.name, [message])).result
    return sent_message(queue, call.body, receipt)


async def receive_message(call: Call[shapes.ReceiveMessage]) -> shapes.ReceivedMessages:
    """Lock the next messages, and wait for the first as long as the request or the queue says.

    Refuses as `receive` does.
    """
    queue = await call.queue()
    body = call.body
    attributes = wanted_attributes(body, queue.name, call.region)
    wanted = ReceiveRequest(
        max_messages=body.max_number_of_messages,
        wait_seconds=_wait_seconds(call, queue),
        lock_duration=None if body.visibility_timeout is None else _lock_duration(body.visibility_timeout),
        receiver_id=call.request.credential or call.request.principal.name,
        check_access=call.check_access,
    )
    received = await receive_unless_disconnected(call.request, queue, wanted, _attempt(call, queue))
    return shapes.ReceivedMessages(
        messages=tuple(received_message(message, attributes) for message in received.messages)
    )


async def delete_message(call: Call[shapes.DeleteMessage]) -> Nothing:
    """Complete a message. A repeat succeeds. Refuses a receipt handle that no longer holds the message."""
    queue = await call.queue()
    try:
        await settle_one(call.broker.settling, queue, complete(queue, LockToken.parse(call.body.receipt_handle)))
    except (LockLost, AlreadySettled, MessageNotFound) as refusal:
        raise ReceiptHandleIsInvalid(_sentence(refusal)) from None
    return Nothing()


async def change_message_visibility(call: Call[shapes.ChangeMessageVisibility]) -> Nothing:
    """Let the lock end at a given time from now, or at once. Refuses a receipt handle that does not hold the message."""
    queue = await call.queue()
    (result,) = await settle_handles(call, queue, [new_visibility(queue, call.body)])
    if isinstance(result, Exception):
        raise result
    return Nothing()


def sent_message(queue: Queue, members: shapes.SentMembers, receipt: Receipt) -> shapes.SentMessage:
    """Return the answer to a send. The receipt of a duplicate is that of the first message."""
    number = receipt.sequence_number
    return shapes.SentMessage(
        message_id=message_id_of(number),
        md5_of_message_body=md5_of_body(members.message_body),
        md5_of_message_attributes=md5_of_attributes(members.message_attributes),
        md5_of_message_system_attributes=md5_of_attributes({**members.message_system_attributes}),
        sequence_number=sequence_number_text(number) if is_fifo(queue.name) else None,
    )


def completion(queue: Queue, handle: str) -> BatchEntry:
    """Return the settlement that deletes a message, or the refusal of a malformed receipt handle."""
    token = _token(handle)
    return token if isinstance(token, Refusal) else complete(queue, token)


def new_visibility(queue: Queue, entry: shapes.ChangeMessageVisibility | shapes.ChangeVisibilityEntry) -> BatchEntry:
    """Return the change of a lock: an exact end, or for 0 an abandon that counts as a failure and does not wait."""
    token = _token(entry.receipt_handle)
    if isinstance(token, Refusal):
        return token
    if entry.visibility_timeout == 0:
        return abandon(queue, token, Abandonment(delay=0))
    return LockRenewal(token, from_seconds(entry.visibility_timeout), is_exact=True)


async def settle_handles(call: Call[Any], queue: Queue, entries: Sequence[BatchEntry]) -> list[BatchResult]:
    """Carry out these settlements and changes of locks. A refusal says what has happened to the receipt handle."""
    return [_with_sentence(result) for result in await settle_batch(call.broker, queue, entries)]


def _with_sentence(result: BatchResult) -> BatchResult:
    if isinstance(result, LockLost | AlreadySettled | MessageNotFound):
        return ReceiptHandleIsInvalid(_sentence(result))
    return result


def _sentence(refusal: LockLost | AlreadySettled | MessageNotFound) -> str:
    """Say what has happened to a receipt handle that holds no message."""
    if isinstance(refusal, AlreadySettled):
        return f"This receipt handle no longer holds the message: its delivery has ended as {refusal.outcome}."
    if not isinstance(refusal, LockLost) or refusal.lost_at is None:
        return "No receive of this queue has returned this receipt handle, or its lock ended long ago."
    again = {True: "It was received again since.", False: "It was not received again since.", None: ""}
    ended = f"This receipt handle held the message until {to_wire(refusal.lost_at)} ({refusal.cause})."
    return f"{ended} {again[refusal.delivered_again]}".rstrip()


def _token(handle: str) -> LockToken | MessageNotFound:
    try:
        return LockToken.parse(handle)
    except MessageNotFound as refusal:
        return refusal


def _lock_duration(visibility_timeout: int) -> Duration:
    return from_seconds(max(visibility_timeout, MIN_VISIBILITY_SECONDS))


def _wait_seconds(call: Call[shapes.ReceiveMessage], queue: Queue) -> float:
    """Return how long to wait: as the request says, or the queue, at most as long as SQS and this server wait."""
    given = call.body.wait_time_seconds
    wanted = to_seconds(queue.settings.default_wait or 0) if given is None else given
    return min(wanted, MAX_WAIT_SECONDS, call.request.context.long_poll_cap_seconds)


def _attempt(call: Call[shapes.ReceiveMessage], queue: Queue) -> Attempt | None:
    """Return the attempt that a ReceiveRequestAttemptId identifies. The other parameters of a repeat are not compared.

    A queue that was deleted and created again is another queue, whose messages the attempt has not received.
    """
    attempt_id = call.body.receive_request_attempt_id
    if attempt_id is None:
        return None
    scope = "\0".join((call.request.principal.name, "sqs-receive", str(queue.id), attempt_id))
    return Attempt(hashlib.sha256(scope.encode()).digest(), bytes(32), ATTEMPT_RETENTION)
