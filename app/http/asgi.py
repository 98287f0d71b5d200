"""The types of ASGI, and whether a client is still connected."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
Result = TypeVar("Result")


class ClientDisconnected(Exception):
    """The client closed its connection before the answer. No answer is sent."""


def root_path(scope: Scope) -> str:
    """Return the path below which clients find the application, empty at the root of a host."""
    found: str = scope.get("root_path", "")
    return found


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def is_disconnected(receive: Receive) -> bool:
    """Return whether the client has already closed its connection, without waiting.

    `receive` suspends while the client is connected; this check then cancels it.
    """
    step: Generator[Any, Any, Event] = receive().__await__()
    try:
        next(step)
    except StopIteration as answered:
        return bool(answered.value["type"] == "http.disconnect")
    step.close()
    return False


async def run_until_disconnect(work: Callable[[], Awaitable[Result]], receive: Receive) -> Result:
    """Return the result of the work. Raises `ClientDisconnected`, after the cancelled work has ended."""
    working = asyncio.ensure_future(work())
    disconnect = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, disconnect), return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
        working.cancel()
        await asyncio.wait((working, disconnect))
    if working.cancelled():
        raise ClientDisconnected
    return working.result()
