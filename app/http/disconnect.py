"""Work that is cancelled when the client disconnects."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.http.asgi import ClientDisconnected, Receive, wait_for_disconnect

Result = TypeVar("Result")


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
