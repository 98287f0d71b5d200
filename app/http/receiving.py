"""Receive for a client that may disconnect: messages that do not reach it are released, or counted as lost."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.receiving.receive import ReceiveMode, ReceiveRequest, has_more, receive
from app.broker.settling.settle import release_undelivered
from app.domain.message import Message
from app.domain.queue import Queue
from app.domain.refusals import BackendUnavailable
from app.http.asgi import ClientDisconnected, is_disconnected, wait_for_disconnect
from app.http.request import Request


class Received(msgspec.Struct, frozen=True):
    """The messages for a client. `replayed` if an earlier try received them.

    `waited` if the receive has a filter, or may wait and found no message at once.
    """

    messages: Sequence[Message]
    replayed: bool
    waited: bool


async def receive_unless_disconnected(
    request: Request[Any], queue: Queue, wanted: ReceiveRequest, attempt: Attempt | None
) -> Received:
    """Receive, and release the messages if the client disconnects before the answer begins.

    Messages of an attempt stay locked, because its client gets them by repeating the attempt.
    """
    received: AttemptResult[list[Message]] | None = None
    waits = wanted.wait_seconds > 0 or wanted.message_filter is not None
    if wanted.message_filter is None:
        # Most receives find a message at once. Only those that wait pay for watching their client.
        at_once = replace(wanted, wait_seconds=0.0) if waits else wanted
        received = await receive(request.broker.receiving, queue, at_once, attempt)
        waits = waits and not received.result
    if waits or received is None:
        # A search through a filter may take long, so its client is watched from the start.
        received = await _receive_until_disconnect(request, queue, wanted, attempt)
    await _release_if_disconnected(request, queue, wanted, attempt, received.result)
    return Received(received.result, received.replayed, waits)


async def look_for_more(
    request: Request[Any],
    queue: Queue,
    wanted: ReceiveRequest,
    attempt: Attempt | None,
    messages: Sequence[Message],
) -> bool:
    """Return whether messages are left. If that fails, the received messages are released, as after a disconnect."""
    try:
        more = await has_more(request.broker.receiving, queue, wanted)
    except (asyncio.CancelledError, BackendUnavailable):
        await _release(request, queue, wanted, attempt, messages)
        raise
    await _release_if_disconnected(request, queue, wanted, attempt, messages)
    return more


def loss_counter(
    request: Request[Any], wanted: ReceiveRequest, messages: Sequence[Message]
) -> Callable[[], None] | None:
    """Return the function that counts these messages as lost if they do not arrive. None if they are locked: they come back."""
    if wanted.mode is ReceiveMode.PEEK_LOCK or not messages:
        return None
    return lambda: request.broker.counters.count("messages_lost", len(messages))


async def _release_if_disconnected(
    request: Request[Any],
    queue: Queue,
    wanted: ReceiveRequest,
    attempt: Attempt | None,
    messages: Sequence[Message],
) -> None:
    if messages and is_disconnected(request.receive):
        await _release(request, queue, wanted, attempt, messages)
        raise ClientDisconnected


async def _release(
    request: Request[Any],
    queue: Queue,
    wanted: ReceiveRequest,
    attempt: Attempt | None,
    messages: Sequence[Message],
) -> None:
    """Release messages of a client that has disconnected. Those that are not locked are lost and counted."""
    if count_lost := loss_counter(request, wanted, messages):
        count_lost()
    elif attempt is None:
        await release_undelivered(request.broker.settling, queue, messages)


async def _receive_until_disconnect(
    request: Request[Any], queue: Queue, wanted: ReceiveRequest, attempt: Attempt | None
) -> AttemptResult[list[Message]]:
    receiving = asyncio.ensure_future(receive(request.broker.receiving, queue, wanted, attempt))
    disconnect = asyncio.ensure_future(wait_for_disconnect(request.receive))
    with request.context.metrics.waiting_receiver():
        try:
            await asyncio.wait((receiving, disconnect), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The receive may have completed in the same iteration of the event loop as the cancellation.
            if receiving.done() and not receiving.cancelled() and receiving.exception() is None:
                await _release(request, queue, wanted, attempt, receiving.result().result)
            raise
        finally:
            # A cancelled receive releases its messages. Wait for that before this request ends.
            disconnect.cancel()
            receiving.cancel()
            await asyncio.wait((receiving, disconnect))
    if receiving.cancelled():
        raise ClientDisconnected
    return receiving.result()
