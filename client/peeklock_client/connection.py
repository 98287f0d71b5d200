"""Sends requests to a server and decodes the answers. The only module that sends HTTP to a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec
from msgspec import UNSET

from peeklock_client.encoding import encoded
from peeklock_client.errors import ClientClosed, InDoubt, NotConnected, Refusal, UnexpectedAnswer, error_of, problem_of
from peeklock_client.generated.answers import Problem
from peeklock_client.generated.operations import Operations
from peeklock_client.generated.requests import ReceiveMessages
from peeklock_client.http_pools import GivenHttp, HttpPools
from peeklock_client.retrying import NOT_PEEKLOCK, RetryLimits, repeat

READ_SECONDS = 30.0
"""How long an answer may take, in addition to the `wait_seconds` of the request."""

LONGEST_DEFAULT_WAIT_SECONDS = 3600.0
"""The longest `default_wait_seconds` of a queue. A receive that sends no wait may last that long."""

CONNECT_SECONDS = 5.0
MIN_SERVER_ERROR = 500
JSON = "application/json"


class Connection(Operations):
    """The connections to one server, or to the replicas behind one address. They serve any number of event loops.

    Raises `ValueError` if `url` is not the URL of a server, or `api_key` cannot be a header.
    """

    def __init__(self, url: str, api_key: str | None, limits: RetryLimits, http: httpx.AsyncClient | None) -> None:
        self._url = _checked_url(url)
        self._http = HttpPools(self._url) if http is None else GivenHttp(http)
        self._headers = _authorization(api_key)
        self._limits = limits

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, unless the caller passed an HTTP client of its own."""
        await self._http.close()

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
        taken effect and its answer was lost, `NotSerializable` if the body cannot be encoded as JSON, and `ClientClosed` and
        `WrongEventLoop` before anything is sent.
        """
        http = self._http.current()
        request = self._request(http, method, path, body, query, headers or {})
        response = await repeat(partial(_send, http), request, self._limits)
        kind = types.get(response.status_code, types[min(types)])
        if kind is None or not response.content:
            return None
        try:
            return self.decode(response.content, kind)
        except (msgspec.DecodeError, ValueError) as error:
            raise UnexpectedAnswer(f"The answer to {method} {path} cannot be decoded: {error}") from error

    def decode(self, content: bytes, kind: Any) -> Any:
        """Return the JSON of an answer as this type. A number that Python cannot hold is infinite, as in its own decoder.

        Every sender can send such a number. msgspec refuses it, and with it the other messages of the answer, which would
        stay locked. Raises `msgspec.DecodeError` or `ValueError`.
        """
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError:
            return msgspec.convert(json.loads(content, parse_int=_integer), kind)

    def _request(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str | None],
    ) -> httpx.Request:
        sent = self._headers | {name: value for name, value in headers.items() if value is not None}
        content = None
        if body is not None:
            sent["Content-Type"] = JSON
            content = encoded(body)
        return http.build_request(
            method,
            self._url + path,
            content=content,
            params={name: value for name, value in (query or {}).items() if value is not None},
            headers=sent,
            timeout=httpx.Timeout(READ_SECONDS + _longest_wait(body), connect=CONNECT_SECONDS),
        )


def _longest_wait(body: Any) -> float:
    """Return how many seconds the server may wait before it answers a request with this body."""
    if isinstance(body, ReceiveMessages) and body.wait_seconds is UNSET:
        return LONGEST_DEFAULT_WAIT_SECONDS
    return getattr(body, "wait_seconds", None) or 0.0


async def _send(http: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """Send a request once. Raises `InDoubt` for any error after which the server may have received it."""
    if http.is_closed:
        raise ClientClosed(f"{request.url} is not requested, because the client is closed.")
    try:
        response = await http.send(request)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise NotConnected(f"{request.url} cannot be reached: {cause_of(error)}") from error
    except Exception as error:
        raise InDoubt(f"The answer to {request.method} {request.url} was lost: {cause_of(error)}") from error
    if response.is_success:
        return response
    raise _error_of(response)


def cause_of(error: BaseException) -> str:
    """Return the text of the first error of the operating system in a chain of errors, or else of the error itself."""
    first, earlier = error, error.__cause__ or error.__context__
    while earlier is not None:
        first = earlier if isinstance(earlier, OSError) and str(earlier) else first
        earlier = earlier.__cause__ or earlier.__context__
    return f"{type(first).__name__}: {first}".removesuffix(": ")


def _checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is not a URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} is not the URL of a server, such as http://localhost:8080.")
    return url.rstrip("/")


def _authorization(api_key: str | None) -> dict[str, str]:
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise ValueError("The API key contains characters that no key has, such as a line break.")
    return {"Authorization": f"Bearer {api_key}"}


def _integer(digits: str) -> int | float:
    """Return an integer. One with more digits than Python reads becomes infinite."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _error_of(response: httpx.Response) -> Refusal | InDoubt:
    retry_after = response.headers.get("Retry-After", "")
    seconds = float(retry_after) if retry_after.isdecimal() else None
    try:
        return error_of(msgspec.json.decode(response.content, type=Problem), seconds)
    except ValueError:  # also of a text that is not UTF-8
        detail = (
            f"{response.request.method} {response.request.url} was answered {response.status_code}, not by Peeklock."
        )
        if response.status_code >= MIN_SERVER_ERROR:
            return InDoubt(detail, None, seconds)
        return Refusal(problem_of(response.status_code, detail, NOT_PEEKLOCK), seconds)
