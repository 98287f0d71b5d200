"""The types of ASGI, and whether a client is still connected."""

from collections.abc import Awaitable, Callable, Generator, MutableMapping, Sequence
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class ClientDisconnected(Exception):
    """The client closed its connection before it was answered; nobody is left to tell."""


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def is_disconnected(receive: Receive) -> bool:
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
