"""Requests as the server hands them over, and their bodies: read within a limit, counted while they stream in."""

from collections.abc import Awaitable, Callable, Generator, MutableMapping, Sequence
from typing import Any, TypeAlias

from app.domain.refusals import MessageTooLarge, UnsupportedContentEncoding

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

PLAIN = (b"identity", b"")
"""The encodings that leave a body as it is."""


class ClientGone(Exception):
    """The client closed its connection before it was answered; nobody is left to tell."""


async def read_body(receive: Receive, largest: int) -> bytes:
    """The whole body. Refuses with `MessageTooLarge` as soon as it passes `largest` bytes."""
    event = await receive()
    if event["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = event.get("body", b"")
    if not event.get("more_body", False):
        return _within(body, largest)
    chunks = [body]
    size = len(body)
    while event.get("more_body", False):
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = event.get("body", b"")
        size += len(chunk)
        if size > largest:
            raise _too_large(largest)
        chunks.append(chunk)
    return _within(b"".join(chunks), largest)


def check_length(headers: Headers, largest: int) -> None:
    """Refuse with `MessageTooLarge` a request that says itself that it is longer: ahead of reading any of it.

    To read is also to tell a client that asked (`Expect: 100-continue`) to go on. Anything but digits is none of ours:
    the server has refused what is no length.
    """
    for key, value in headers:
        if key == b"content-length" and value.isdigit() and int(value) > largest:
            raise _too_large(largest)


def check_content(headers: Headers, largest: int) -> None:
    """`check_length` for an operation that takes a body, in one look at the headers of a hot request.

    Refuses with `UnsupportedContentEncoding` a body that is packed: no receiver would hear how.
    """
    for key, value in headers:
        if key == b"content-length" and value.isdigit() and int(value) > largest:
            raise _too_large(largest)
        if key == b"content-encoding" and value.strip().lower() not in PLAIN:
            raise UnsupportedContentEncoding


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def is_gone(receive: Receive) -> bool:
    """Whether the client has already closed its connection, without waiting for it to.

    A server that knows of no disconnect suspends in `receive`; the look is then given up.
    """
    step: Generator[Any, Any, Event] = receive().__await__()
    try:
        next(step)
    except StopIteration as answered:
        return bool(answered.value["type"] == "http.disconnect")
    step.close()
    return False


def _within(body: bytes, largest: int) -> bytes:
    if len(body) > largest:
        raise _too_large(largest)
    return body


def _too_large(largest: int) -> MessageTooLarge:
    return MessageTooLarge(f"A request has at most {largest} bytes.")
