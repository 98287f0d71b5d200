"""Receiving over HTTP: settle, then wait for the next messages, or get those again that are still locked."""

from collections.abc import Sequence
from functools import partial

from app.api.endpoints.settling import read_settlements, results_of
from app.broker.filtering.filters import CelFilter
from app.broker.receiving.receive import ReceiveMode, ReceiveRequest, check_receive
from app.broker.receiving.recover import recover
from app.domain.access import Right
from app.domain.instant import from_seconds, to_seconds
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.refusals import QueueNotFound, RateLimited, ReceiveDisabled, invalid_at
from app.http.asgi import Headers
from app.http.operation import operation
from app.http.receiving import Received, look_for_more, loss_counter, receive_unless_disconnected
from app.http.request import Request, invalid_header
from app.http.response import REPLAYED_HEADERS, Response
from app.http.settling import BatchResult, settle_batch
from app.wire.messages import ReceivedMessages, ReceiveMessages, RecoveredMessages, RecoverMessages, received_messages

MODES = {"peek_lock": ReceiveMode.PEEK_LOCK, "receive_and_delete": ReceiveMode.RECEIVE_AND_DELETE}
SOURCES = {"queue": MessageState.AVAILABLE, "dead_letter": MessageState.DEAD_LETTERED}


@operation(
    "POST", "/v1/queues/{queue}/messages/receive", right=Right.LISTEN, tag="messages",
    body=ReceiveMessages, responses={200: ReceivedMessages}, refusals=(ReceiveDisabled, QueueNotFound, RateLimited),
    headers=("Idempotency-Key", "Prefer"),
    example={"max_messages": 10, "wait_seconds": 20},
)  # fmt: skip
async def receive_messages(request: Request[ReceiveMessages]) -> Response:
    """Receive the next messages under lock, or none if none arrives in time.

    `settlements` are carried out first, so a worker needs one request per message. If the receive is refused, nothing is
    settled. If the receive fails or the connection breaks later, the settlements stay in effect, and repeating them is
    harmless.

    An answer may carry fewer messages than `max_messages`, because its size is limited (`PEEKLOCK_MAX_ANSWER_BYTES`).
    Receive again for the rest.

    A request with a filter reads a bounded number of messages. It may return none before it has read all of them; the
    next request with the same filter continues there. A server limits how many such receivers wait.

    With `check_more`, `has_more` says whether messages are left. The server checks this after it has locked the messages, or
    at the end of a wait, and again for each repeat with an `Idempotency-Key`.
    """
    queue = await request.queue()
    wanted, attempt = receive_request(request, queue), request.idempotent_attempt("receive")
    entries = read_settlements(queue, request.body.settlements) if request.body.settlements else []
    results: Sequence[BatchResult] = ()
    if entries:
        await check_receive(request.broker.receiving.store, queue, wanted, attempt)
        results = await settle_batch(request.broker, queue, [entry.request for entry in entries])
    received = await receive_unless_disconnected(request, queue, wanted, attempt)
    messages = received.messages
    more = await look_for_more(request, queue, wanted, attempt, messages) if request.body.check_more else None
    views = received_messages(messages, request.broker.clock.monotonic)
    settled = results_of(request, entries, results) if entries else None
    headers, on_lost = received_headers(request, received), loss_counter(request, wanted, messages)
    return Response(ReceivedMessages(views, settled, more), headers=headers, on_lost=on_lost)


@operation(
    "POST", "/v1/queues/{queue}/recover", right=Right.LISTEN, tag="messages",
    body=RecoverMessages, responses={200: RecoveredMessages}, refusals=(ReceiveDisabled, QueueNotFound),
    example={"receiver_id": "worker-1"},
)  # fmt: skip
async def recover_messages(request: Request[RecoverMessages]) -> Response:
    """Get the messages again that were received with this `receiver_id` and are still locked.

    Each has a new lock token and, unless `count` is false, is marked `redelivered`; its old token is lost, with the cause
    `recovered`. A receiver can recover after it was disconnected, in every queue. In a queue with redelivery on request, this
    is the only way to get them again. An answer may have fewer messages than the receiver holds, because its size is
    limited: settle these and recover again. Messages that have arrived since are not included; receive them.
    """
    queue = await request.queue()
    body = request.body
    messages = await recover(request.broker.receiving, queue, body.receiver_id, body.max_messages, counted=body.count)
    return Response(RecoveredMessages(received_messages(messages, request.broker.clock.monotonic)))


def received_headers(request: Request[ReceiveMessages], received: Received) -> Headers:
    """Return the headers that say how messages were received."""
    headers = REPLAYED_HEADERS if received.replayed else ()
    return (*headers, *request.preference_applied(request.body.wait_seconds)) if received.waited else headers


def receive_request(request: Request[ReceiveMessages], queue: Queue) -> ReceiveRequest:
    """Return what to receive, with the default wait of the queue. Refuses with `InvalidRequest`."""
    body = request.body
    _check_consistency(request)
    numbers = body.sequence_numbers or ()
    return ReceiveRequest(
        max_messages=len(numbers) or body.max_messages,
        wait_seconds=request.wait_seconds(body.wait_seconds, to_seconds(queue.settings.default_wait or 0)),
        lock_duration=None if body.lock_seconds is None else from_seconds(body.lock_seconds),
        receiver_id=body.receiver_id,
        source=SOURCES[body.source],
        sequence_numbers=numbers,
        message_filter=None if body.filter is None else CelFilter(body.filter),
        group_id=body.group_id,
        mode=MODES[body.mode],
        check_access=partial(request.authorization.check, request.path["queue"], request.credential),
    )


def _check_consistency(request: Request[ReceiveMessages]) -> None:
    """Refuse with `InvalidRequest` members that contradict each other."""
    body = request.body
    if numbers := body.sequence_numbers:
        if body.filter is not None:
            raise invalid_at("/filter", "Messages asked for by number are not filtered.")
        if body.source != "queue":
            raise invalid_at("/source", "Messages asked for by number are deferred ones of the queue.")
        if len(set(numbers)) < len(numbers):
            raise invalid_at("/sequence_numbers", "A sequence number is given twice.")
    if body.group_id is not None and (body.filter is not None or body.sequence_numbers or body.source != "queue"):
        raise invalid_at(
            "/group_id", "A group is received without a filter or sequence numbers, from the queue itself."
        )
    if body.check_more and (body.mode != "peek_lock" or body.filter is not None or body.sequence_numbers):
        raise invalid_at(
            "/check_more",
            "`check_more` is only accepted with a peek-lock receive without a filter or sequence numbers.",
        )
    is_plain = body.mode == "peek_lock" and not (body.filter or body.sequence_numbers or body.group_id)
    if not is_plain and request.headers.text(b"idempotency-key"):
        raise invalid_header(
            "Idempotency-Key",
            "An Idempotency-Key is only accepted with a peek-lock receive that has no filter, numbers or group.",
        )
