"""Sends requests to a server, retries them where that is safe, and decodes the answers. The only module that sends HTTP.

A retry is safe if the request had no effect, if the server recognises it by its Idempotency-Key, or if a second request
changes nothing (docs/http.md, Operations). The server says whether a retry can help (`retryable`), and how long to wait
(`Retry-After`).
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec
import stamina

from peeklock_client.encoding import encoded
from peeklock_client.errors import (
    ClientClosed,
    Forbidden,
    InDoubt,
    NotConnected,
    PeeklockError,
    Refusal,
    Unauthenticated,
    UnexpectedAnswer,
    error_of,
    problem_of,
)
from peeklock_client.generated.answers import Problem
from peeklock_client.generated.operations import Operations

SAFE_METHODS = frozenset(("GET", "PUT", "PATCH", "DELETE"))
SAFE_POST = re.compile(r"/(locks/[^/]+/[a-z-]+|settle|recover|commit|rollback|test|trim)$")
"""Paths of the operations by POST that may be repeated without an Idempotency-Key."""

READ_SECONDS = 30.0
"""How long an answer may take, in addition to the `wait_seconds` of the request."""

CONNECT_SECONDS = 5.0
MIN_SERVER_ERROR = 500
RETRY_AFTER_JITTER = 0.25
"""The largest share of `Retry-After` that is added to the wait at random, so that clients do not retry at the same time."""
JSON = "application/json"
NOT_PEEKLOCK = "not-peeklock"
"""The code of a refusal by a proxy or by another server."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often and for how long a request is retried. `attempts=1` disables retries."""

    attempts: int = 8
    timeout_seconds: float = 45.0
    first_wait_seconds: float = 0.1
    max_wait_seconds: float = 5.0


class Connection(Operations):
    """A pool of connections to one server, or to the replicas behind one address."""

    def __init__(self, url: str, api_key: str | None, limits: RetryLimits, http: httpx.AsyncClient | None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=100))
        self._url = url.rstrip("/")
        self._headers = headers
        self._limits = limits

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, unless the caller passed an HTTP client of its own."""
        if self._owns_http:
            await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        types: dict[int, Any],
        *,
        body: Any = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str | None] | None = None,
    ) -> Any:
        """Send a request until it has a definite answer, and return its body as the type for its status.

        Raises `Refusal` if the server refuses it, `NotConnected` if no server was reached, `InDoubt` if it may have
        taken effect and its answer was lost, and `NotSerializable` if the body cannot be encoded as JSON.
        """
        request = self._request(method, path, body, query, headers or {})
        response = await self._repeat(request)
        kind = types.get(response.status_code, types[min(types)])
        if kind is None or not response.content:
            return None
        try:
            return _decode(response.content, kind)
        except (msgspec.DecodeError, ValueError) as error:
            raise UnexpectedAnswer(f"The answer to {method} {path} cannot be decoded: {error}") from error

    def _request(
        self, method: str, path: str, body: Any, query: Mapping[str, Any] | None, headers: Mapping[str, str | None]
    ) -> httpx.Request:
        sent = self._headers | {name: value for name, value in headers.items() if value is not None}
        content = None
        if body is not None:
            sent["Content-Type"] = JSON
            content = encoded(body)
        wait = getattr(body, "wait_seconds", None) or 0.0
        return self._http.build_request(
            method,
            self._url + path,
            content=content,
            params={name: value for name, value in (query or {}).items() if value is not None},
            headers=sent,
            timeout=httpx.Timeout(READ_SECONDS + wait, connect=CONNECT_SECONDS),
        )

    async def _repeat(self, request: httpx.Request) -> httpx.Response:
        """Send the request until its answer is definite. A doubt about any attempt stays until then."""
        repeatable = is_repeatable(request)
        doubt: InDoubt | None = None
        ends = time.monotonic() + self._limits.timeout_seconds

        def wait_before_repeat(error: Exception) -> bool | float:
            if isinstance(error, NotConnected):
                return not isinstance(error, ClientClosed)
            may_repeat = repeatable if isinstance(error, InDoubt) else isinstance(error, Refusal) and error.retryable
            seconds = getattr(error, "retry_after", None)
            if not may_repeat or not seconds:
                return may_repeat
            return time.monotonic() + seconds < ends and seconds * (1 + random.uniform(0, RETRY_AFTER_JITTER))

        try:
            async for attempt in stamina.retry_context(
                on=wait_before_repeat,
                attempts=self._limits.attempts,
                timeout=self._limits.timeout_seconds,
                wait_initial=self._limits.first_wait_seconds,
                wait_max=self._limits.max_wait_seconds,
            ):
                with attempt:
                    try:
                        return await self._send(request)
                    except InDoubt as error:
                        doubt = error
                        raise
        except PeeklockError as error:
            if doubt is not None and doubt is not error and not resolves_doubt(error):
                raise doubt from error
            raise
        raise AssertionError("stamina returns or raises")

    async def _send(self, request: httpx.Request) -> httpx.Response:
        if self._http.is_closed:
            raise ClientClosed(f"{request.url} is not requested, because the client is closed.")
        try:
            response = await self._http.send(request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotConnected(f"{request.url} cannot be reached: {error}") from error
        except httpx.HTTPError as error:
            raise InDoubt(f"The answer to {request.method} {request.url} was lost: {error!r}") from error
        if response.is_success:
            return response
        raise _error_of(response)


def is_repeatable(request: httpx.Request) -> bool:
    """Return whether a second request of this kind is harmless if the first one took effect."""
    return (
        request.method in SAFE_METHODS
        or "Idempotency-Key" in request.headers
        or SAFE_POST.search(request.url.path) is not None
    )


def _decode(content: bytes, kind: Any) -> Any:
    """Return the JSON of an answer as this type. A number that Python cannot hold is infinite, as in its own decoder.

    Every sender can send such a number. msgspec refuses it, and with it the other messages of the answer, which would
    stay locked. Raises `msgspec.DecodeError` or `ValueError`.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(content, parse_int=_integer), kind)


def _integer(digits: str) -> int | float:
    """Return an integer. One with more digits than Python reads becomes infinite."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def resolves_doubt(error: PeeklockError) -> bool:
    """Return whether a refused retry proves that no earlier attempt has taken effect.

    A server checks keys, and a proxy its routes, before anything that an earlier attempt has changed. Their refusals prove
    nothing.
    """
    if not isinstance(error, Refusal) or error.retryable:
        return False
    return not isinstance(error, Unauthenticated | Forbidden) and error.code != NOT_PEEKLOCK


def _error_of(response: httpx.Response) -> Refusal | InDoubt:
    retry_after = response.headers.get("Retry-After", "")
    seconds = float(retry_after) if retry_after.isdecimal() else None
    try:
        return error_of(msgspec.json.decode(response.content, type=Problem), seconds)
    except msgspec.DecodeError:
        detail = (
            f"{response.request.method} {response.request.url} was answered {response.status_code}, not by Peeklock."
        )
        if response.status_code >= MIN_SERVER_ERROR:
            return InDoubt(detail, None, seconds)
        return Refusal(problem_of(response.status_code, detail, NOT_PEEKLOCK), seconds)
