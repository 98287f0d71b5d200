"""One HTTP operation: what it promises, and the one road on which every request to it is answered.

An endpoint is a small coroutine from `Call` to `Reply`; `operation` declares around it the method,
the path, the right it needs, and the shapes of its body and answers. The same declaration guards
the request, decodes and encodes it, and is what the OpenAPI document is made of.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import structlog

from app.api.authorize import Authorization
from app.api.decoding import body_decoder, entry_counter, query_decoder
from app.api.local_access import LOCAL_ADMIN, LocalAccessPolicy
from app.api.problems import make_problem, problem_of
from app.api.request import AppContext, Request, invalid_path
from app.api.request_body import (
    UNCOUNTED_BYTES,
    BodyReservation,
    ClientDisconnected,
    Event,
    Headers,
    Receive,
    Scope,
    Send,
    check_length,
    check_length_and_encoding,
    read_body,
)
from app.domain.access import Principal, Right
from app.domain.queue import is_valid_name
from app.domain.refusals import BackendUnavailable, Refusal
from app.domain.weight import MESSAGE_OVERHEAD_BYTES

JSON = b"application/json"
MERGE_PATCH = b"application/merge-patch+json"
OCTET_STREAM = b"application/octet-stream"
PROBLEM = b"application/problem+json"
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"

INVALID_QUEUE_NAME = "A queue's name has 1 to 128 letters, digits, dots, dashes or underscores, and begins and ends with a letter or digit."

encode = msgspec.json.Encoder().encode
log = structlog.get_logger("peeklock.api")


@dataclass(slots=True)
class Response:
    """What an endpoint answers: a shape to encode, bytes to pass on, or nothing."""

    body: Any = None
    status: int = 200
    content: bytes | None = None
    content_type: bytes = JSON
    headers: Headers = ()


Endpoint: TypeAlias = Callable[[Request[Any]], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """The declaration of one operation. `right` None means that anybody may call it.

    `answers` maps a status to the shape of its body: None for no body, `bytes` for bytes of any kind. `body` None
    means that the operation takes none, `bytes` that it takes any content type as it is. `query` is the shape of
    its query parameters, `headers` the names of those it reads, `etag_statuses` the statuses whose answers have an ETag;
    `request_media_type` and `response_media_type` are the media types of its body and its answers.
    """

    endpoint: Endpoint
    method: str
    path: str
    right: Right | None
    tag: str
    responses: Mapping[int, Any]
    body: Any = None
    refusals: tuple[int, ...] = ()
    query: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    etag_statuses: tuple[int, ...] = ()
    request_media_type: bytes = JSON
    response_media_type: bytes = JSON
    example: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The operation id: the name of its function."""
        return self.endpoint.__name__

    def local_access_policy(self, context: AppContext) -> LocalAccessPolicy:
        """What is asked of a request where no key is needed."""
        takes_json = self.body not in (None, bytes)
        return LocalAccessPolicy(context.is_loopback, takes_json, requires_admin_header=LOCAL_ADMIN in self.headers)

    def handler(self, context: AppContext) -> "OperationHandler":
        """This operation, ready to answer requests at a desk."""
        return OperationHandler(self, context)


def operation(
    method: str,
    path: str,
    *,
    right: Right | None,
    tag: str,
    responses: Mapping[int, Any],
    body: Any = None,
    refusals: tuple[int, ...] = (),
    query: type[msgspec.Struct] | None = None,
    headers: tuple[str, ...] = (),
    etag_statuses: tuple[int, ...] = (),
    request_media_type: bytes = JSON,
    response_media_type: bytes = JSON,
    example: Mapping[str, Any] | None = None,
) -> Callable[[Endpoint], Operation]:
    """Declare an endpoint; see `Operation` for what is said."""

    def declare(endpoint: Endpoint) -> Operation:
        return Operation(
            endpoint,
            method,
            path,
            right,
            tag,
            responses,
            body,
            refusals,
            query,
            headers,
            etag_statuses,
            request_media_type,
            response_media_type,
            example,
        )

    return declare


class OperationHandler:
    """An ASGI application that answers one operation. Its path parameters come in the scope."""

    def __init__(self, operation: Operation, context: AppContext) -> None:
        self.operation = operation
        self._context = context
        self._endpoint = operation.endpoint
        self._authorization = Authorization(
            context.authenticator, operation.right, operation.local_access_policy(context)
        )
        self._check_headers = check_length if operation.body is None else check_length_and_encoding
        self._decode = body_decoder(operation.body)
        self._count_entries = entry_counter(operation.body)
        self._decode_query = query_decoder(operation.query)
        self._metrics = context.metrics.for_operation(operation.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard, read, decode, call, encode. Whatever goes wrong becomes a problem document."""
        started_at = self._context.metrics.now()
        request_id: str = scope["state"]["request_id"]
        outcome = "ok"
        try:
            response = await self._handle(scope, receive)
        except (Refusal, BackendUnavailable) as error:
            response = refusal_response(error, request_id)
            outcome = error.code
        except ClientDisconnected:
            self._metrics.observe("client-gone", started_at)
            return
        except Exception as error:
            log.exception("unexpected error", operation=self.operation.name, request_id=request_id, error=repr(error))
            response = _internal_error(request_id)
            outcome = "internal-error"
        await self._respond(send, response)
        self._metrics.observe(outcome, started_at)

    async def _respond(self, send: Send, response: Response) -> None:
        """Send a reply; a large one counts until the client has taken all but the last of it."""
        content = response_content(response)
        if len(content) <= UNCOUNTED_BYTES:
            await _send(send, response, content)
            return
        # The messages themselves are not needed any more.
        response.body = None
        responses = self._context.broker.response_budget
        responses.acquire_unchecked(len(content))
        try:
            await _send_until_taken(send, response, content)
        finally:
            responses.release(len(content))

    async def _handle(self, scope: Scope, receive: Receive) -> Response:
        headers: Headers = scope["headers"]
        path: dict[str, str] = scope["path_params"]
        name = path.get("queue")
        principal = await self._authorization.check(name, headers)
        if name is not None and not is_valid_name(name):
            raise invalid_path("queue", INVALID_QUEUE_NAME)
        max_bytes = self._context.max_request_bytes
        if self.operation.body is None:
            # Not read: some of these need no key, and an announced body would reserve room.
            self._check_headers(headers, max_bytes)
            return await self._run_endpoint(scope, receive, principal, b"", None)
        with BodyReservation(self._context.request_budget) as reservation:
            reservation.grow(self._check_headers(headers, max_bytes))
            raw = await read_body(receive, max_bytes, reservation)
            body = self._decode(raw)
            # An entry of two bytes becomes objects of a thousand.
            reservation.grow(len(raw) + MESSAGE_OVERHEAD_BYTES * self._count_entries(body))
            return await self._run_endpoint(scope, receive, principal, raw, body)

    async def _run_endpoint(
        self, scope: Scope, receive: Receive, principal: Principal, raw: bytes, body: Any
    ) -> Response:
        query = self._decode_query(scope["query_string"])
        path: dict[str, str] = scope["path_params"]
        request_id: str = scope["state"]["request_id"]
        request = Request(self._context, principal, request_id, path, query, scope["headers"], receive, raw, body)
        return await self._endpoint(request)


async def respond(send: Send, response: Response) -> None:
    """Send a reply as ASGI events."""
    await _send(send, response, response_content(response))


def response_content(response: Response) -> bytes:
    """The bytes of a reply."""
    if response.content is not None:
        return response.content
    return b"" if response.body is None else encode(response.body)


async def _send(send: Send, response: Response, content: bytes) -> None:
    await send(_head(response, content))
    await send({"type": "http.response.body", "body": content})


async def _send_until_taken(send: Send, response: Response, content: bytes) -> None:
    """Send a reply, and return when the client has taken it: a server takes a second piece once the first has gone."""
    await send(_head(response, content))
    await send({"type": "http.response.body", "body": content, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _head(response: Response, content: bytes) -> Event:
    headers = [*response.headers]
    if response.status != 204:
        headers += ((b"content-length", b"%d" % len(content)), (b"content-type", response.content_type))
    return {"type": "http.response.start", "status": response.status, "headers": headers}


def problem_response(status: int, code: str, detail: str, request_id: str, headers: Headers = ()) -> Response:
    """A problem that no verb raised: an unknown path, a method that is not allowed."""
    shape = make_problem(status, code, detail, request_id)
    return Response(shape, status, content_type=PROBLEM, headers=headers)


def refusal_response(error: Refusal | BackendUnavailable, request_id: str) -> Response:
    """The problem document of what the broker said no to, with the headers that its status asks for."""
    problem = problem_of(error, request_id)
    headers: Headers = ()
    if problem.status in (429, 503):
        headers = ((b"retry-after", b"1"),)
    elif problem.status == 415:
        headers = ((b"accept-encoding", b"identity"),)
    elif problem.status == 401:
        headers = ((b"www-authenticate", b'Bearer realm="peeklock"'),)
    return Response(problem, problem.status, content_type=PROBLEM, headers=headers)


def _internal_error(request_id: str) -> Response:
    detail = "Something went wrong here that should not have. The tracking id names it in the server's log."
    return problem_response(500, "internal-error", detail, request_id)
