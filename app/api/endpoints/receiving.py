"""Receiving over HTTP: carry out the settlements, then wait for the next messages."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from app.api.endpoints.settlement_batch import read_settlements
from app.api.endpoints.settling import EntryResult, results_of, settle_all
from app.broker.filtering.filters import CelFilter
from app.broker.ports import Attempt
from app.broker.receiving.receive import (
    ReceiveRequest,
    check_receive,
    has_more,
    receive,
    receive_and_delete,
    receive_or_replay,
)
from app.broker.settling.release_undelivered import release_undelivered
from app.domain.access import Right
from app.domain.instant import from_seconds
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import BackendUnavailable, QueueNotFound, RateLimited, ReceiveDisabled, invalid_at
from app.http.asgi import ClientDisconnected, Headers, is_disconnected, wait_for_disconnect
from app.http.operation import operation
from app.http.request import Request, invalid_header
from app.http.response import REPLAYED_HEADERS, Response
from app.wire.messages import ReceivedMessages, ReceiveMessages, message_views

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
    wanted, attempt = receive_request(request), request.idempotent_attempt("receive")
    entries = read_settlements(queue, request.body.settlements or ())
    results: Sequence[EntryResult] = ()
    if entries:
        await check_receive(request.broker.receiving.messages, queue, wanted, attempt)
        results = await settle_all(request.broker, queue, entries)
    messages, headers = await receive_unless_disconnected(request, queue, wanted, attempt)
    more = await _look_for_more(request, queue, wanted, attempt, messages) if request.body.check_more else None
    views = message_views(messages, request.broker.clock.monotonic)
    settled = results_of(request, entries, results) if entries else None
    return Response(ReceivedMessages(views, settled, more), headers=headers, on_lost=loss_counter(request, messages))


def loss_counter(request: Request[ReceiveMessages], messages: Sequence[Message]) -> Callable[[], None] | None:
    """Return the function that counts these messages as lost if they do not arrive. None if they are locked: they come back."""
    if request.body.mode != "receive_and_delete" or not messages:
        return None
    return lambda: request.broker.counters.count("messages_lost", len(messages))


async def receive_unless_disconnected(
    request: Request[ReceiveMessages], queue: Queue, wanted: ReceiveRequest, attempt: Attempt | None
) -> tuple[Sequence[Message], Headers]:
    """Receive, and release the messages if the client disconnects before the answer begins.

    Messages of an attempt stay locked, because its client gets them by repeating the attempt.
    """
    messages: Sequence[Message] = ()
    headers: Headers = ()
    if wanted.message_filter is None:
        # Most receives find a message at once. Only those that wait pay for watching their client.
        messages, headers = await _receive(request, queue, wanted, attempt)
    if not messages:
        wait_seconds = request.wait_seconds(request.body.wait_seconds)
        # A search through a filter may take long, so its client is watched from the start.
        if wait_seconds > 0 or wanted.message_filter is not None:
            check_access = partial(request.authorization.check, queue.name, request.credential)
            waiting = replace(wanted, wait_seconds=wait_seconds, check_access=check_access)
            messages, headers = await _receive_until_disconnect(request, queue, waiting, attempt)
            headers = (*headers, *request.preference_applied(request.body.wait_seconds))
    await _release_if_disconnected(request, queue, attempt, messages)
    return messages, headers


async def _look_for_more(
    request: Request[ReceiveMessages],
    queue: Queue,
    wanted: ReceiveRequest,
    attempt: Attempt | None,
    messages: Sequence[Message],
) -> bool:
    """Return whether messages are left. If that fails, the received messages are released, as after a disconnect."""
    try:
        more = await has_more(request.broker.receiving, queue, wanted)
    except (asyncio.CancelledError, BackendUnavailable):
        await _release(request, queue, attempt, messages)
        raise
    await _release_if_disconnected(request, queue, attempt, messages)
    return more


async def _release_if_disconnected(
    request: Request[ReceiveMessages], queue: Queue, attempt: Attempt | None, messages: Sequence[Message]
) -> None:
    if messages and is_disconnected(request.receive):
        await _release(request, queue, attempt, messages)
        raise ClientDisconnected


async def _release(
    request: Request[ReceiveMessages], queue: Queue, attempt: Attempt | None, messages: Sequence[Message]
) -> None:
    """Release messages of a client that has disconnected. Those of `receive_and_delete` are lost and counted."""
    if count_lost := loss_counter(request, messages):
        count_lost()
    elif attempt is None:
        await release_undelivered(request.broker.settling, queue, messages)


async def _receive_until_disconnect(
    request: Request[ReceiveMessages], queue: Queue, wanted: ReceiveRequest, attempt: Attempt | None
) -> tuple[Sequence[Message], Headers]:
    receiving = asyncio.ensure_future(_receive(request, queue, wanted, attempt))
    disconnect = asyncio.ensure_future(wait_for_disconnect(request.receive))
    with request.context.metrics.waiting_receivers.track_inprogress():
        try:
            await asyncio.wait((receiving, disconnect), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The receive may have completed in the same iteration of the event loop as the cancellation.
            if receiving.done() and not receiving.cancelled() and receiving.exception() is None:
                await _release(request, queue, attempt, receiving.result()[0])
            raise
        finally:
            # A cancelled receive releases its messages. Wait for that before this request ends.
            disconnect.cancel()
            receiving.cancel()
            await asyncio.wait((receiving, disconnect))
    if receiving.cancelled():
        raise ClientDisconnected
    return receiving.result()


async def _receive(
    request: Request[ReceiveMessages], queue: Queue, wanted: ReceiveRequest, attempt: Attempt | None
) -> tuple[Sequence[Message], Headers]:
    if request.body.mode == "receive_and_delete":
        return await receive_and_delete(request.broker.receiving, queue, wanted), ()
    if attempt is None:
        return await receive(request.broker.receiving, queue, wanted), ()
    result = await receive_or_replay(request.broker.receiving, queue, wanted, attempt)
    return result.result, REPLAYED_HEADERS if result.replayed else ()


def receive_request(request: Request[ReceiveMessages]) -> ReceiveRequest:
    """Return what to receive, without waiting."""
    body = request.body
    _check_consistency(request)
    numbers = body.sequence_numbers or ()
    return ReceiveRequest(
        max_messages=len(numbers) or body.max_messages,
        lock_duration=None if body.lock_seconds is None else from_seconds(body.lock_seconds),
        receiver_id=body.receiver_id,
        source=SOURCES[body.source],
        sequence_numbers=numbers,
        message_filter=None if body.filter is None else CelFilter(body.filter),
        group_id=body.group_id,
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
    if not is_plain and request.header(b"idempotency-key"):
        raise invalid_header(
            "Idempotency-Key",
            "An Idempotency-Key is only accepted with a peek-lock receive that has no filter, numbers or group.",
        )
