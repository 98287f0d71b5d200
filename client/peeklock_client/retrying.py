"""Repeats requests where that is safe, until their answers are definite.

A retry is safe if the request had no effect, if the server recognises it by its Idempotency-Key, or if a second request
changes nothing (docs/http/clients.md). The server says whether a retry can help (`retryable`), and how long to wait
(`Retry-After`).

The loop uses no library. With tenacity it would be longer, because it must still keep the doubt about an earlier attempt, and
pass each rule as a function. A request without a retry would also take 0.09 ms more. The hooks of stamina, which could log the
address and the cause, are global to the program.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

from peeklock_client.errors import (
    ClientClosed,
    Forbidden,
    InDoubt,
    NotConnected,
    PeeklockError,
    Refusal,
    Unauthenticated,
)

log = logging.getLogger("peeklock")

SAFE_METHODS = frozenset(("GET", "PUT", "PATCH", "DELETE"))
SAFE_POST = re.compile(r"/(locks/[^/]+/[a-z-]+|settle|recover|commit|rollback|test|trim)$")
"""Paths of the operations by POST that may be repeated without an Idempotency-Key."""

JITTER = 0.25
"""The largest share of a wait that is added to it at random, so that clients do not retry at the same time."""

NOT_PEEKLOCK = "not-peeklock"
"""The code of a refusal by a proxy or by another server."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often and for how long a request is retried. `attempts=1` disables retries."""

    attempts: int = 8
    timeout_seconds: float = 45.0
    first_wait_seconds: float = 0.1
    max_wait_seconds: float = 5.0

    def wait_seconds(self, attempt: int) -> float:
        """Return how long to wait after this attempt, counted from 1. The wait doubles after each."""
        return min(self.max_wait_seconds, self.first_wait_seconds * 2.0 ** (attempt - 1))


async def repeat(
    send: Callable[[httpx.Request], Awaitable[httpx.Response]], request: httpx.Request, limits: RetryLimits
) -> httpx.Response:
    """Send the request until its answer is definite. A doubt about any attempt stays until then. Each retry is logged."""
    ends = time.monotonic() + limits.timeout_seconds
    doubt: InDoubt | None = None
    attempt = 1
    while True:
        try:
            return await send(request)
        except PeeklockError as error:
            doubt = error if isinstance(error, InDoubt) else doubt
            pause = _pause_after(error, attempt, limits) if may_repeat(request, error) else None
            if pause is None or attempt >= limits.attempts or time.monotonic() + pause >= ends:
                if doubt is not None and doubt is not error and not resolves_doubt(error):
                    raise doubt from error
                raise
            retries = limits.attempts - 1
            log.warning("retry %d of %d in %.1f s: %s", attempt, retries, pause, _with_address(request, error))
        await asyncio.sleep(pause)
        attempt += 1


def may_repeat(request: httpx.Request, error: PeeklockError) -> bool:
    """Return whether a second request is harmless and may help after this error."""
    if isinstance(error, NotConnected):
        return not isinstance(error, ClientClosed)
    return is_repeatable(request) if isinstance(error, InDoubt) else isinstance(error, Refusal) and error.retryable


def _with_address(request: httpx.Request, error: PeeklockError) -> str:
    """Return the text of an error with the address of its request, which the problem of a server does not name."""
    text, url = str(error), str(request.url)
    return text if url in text else f"{request.method} {url}: {text}"


def is_repeatable(request: httpx.Request) -> bool:
    """Return whether a second request of this kind is harmless if the first one took effect."""
    return (
        request.method in SAFE_METHODS
        or "Idempotency-Key" in request.headers
        or SAFE_POST.search(request.url.path) is not None
    )


def resolves_doubt(error: PeeklockError) -> bool:
    """Return whether a refused retry proves that no earlier attempt has taken effect.

    A server checks keys, and a proxy its routes, before anything that an earlier attempt has changed. Their refusals prove
    nothing.
    """
    if not isinstance(error, Refusal) or error.retryable:
        return False
    return not isinstance(error, Unauthenticated | Forbidden) and error.code != NOT_PEEKLOCK


def _pause_after(error: PeeklockError, attempt: int, limits: RetryLimits) -> float:
    seconds = getattr(error, "retry_after", None) or limits.wait_seconds(attempt)
    return seconds * (1 + random.uniform(0, JITTER))
