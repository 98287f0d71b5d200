"""One HTTP operation: what it promises, and the one road on which every request to it is answered.

An endpoint is a small coroutine from `Call` to `Reply`; `operation` declares around it the method,
the path, the right it needs, and the shapes of its body and answers. The same declaration guards
the request, decodes and encodes it, and is what the OpenAPI document is made of.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import structlog

from app.api.bodies import ClientGone, Receive, Scope, Send, read_body
from app.api.desk import Call, Desk
from app.api.guard import admit
from app.api.problems import plain_problem, pointer_and_detail, problem_of
from app.domain.access import Right
from app.domain.refusals import Fault, InvalidRequest, Refusal, RoomUnavailable

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"
PROBLEM = b"application/problem+json"
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"

encode = msgspec.json.Encoder().encode
log = structlog.get_logger("peeklock.api")


@dataclass(frozen=True, slots=True)
class Reply:
    """What an endpoint answers: a shape to encode, bytes to pass on, or nothing."""

    shape: Any = None
    status: int = 200
    content: bytes | None = None
    content_type: bytes = JSON
    headers: Headers = ()


Endpoint: TypeAlias = Callable[[Call[Any]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter, for the document and for reading it."""

    name: str
    schema: Mapping[str, Any]
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """The declaration of one operation. `right` None means that anybody may call it.

    `answers` maps a status to the shape of its body (None: no body); `body` None means that the
    operation takes none, `bytes` that it takes any content type as it is.
    """

    endpoint: Endpoint
    method: str
    path: str
    right: Right | None
    tag: str
    body: Any = None
    answers: Mapping[int, Any] = field(default_factory=dict[int, Any])
    refusals: tuple[int, ...] = ()
    query: tuple[Query, ...] = ()
    headers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operation id: the name of its function."""
        return self.endpoint.__name__

    def application(self, desk: Desk) -> "Application":
        """This operation, ready to answer requests at a desk."""
        return Application(self, desk)


def operation(
    method: str,
    path: str,
    *,
    right: Right | None,
    tag: str,
    answers: Mapping[int, Any],
    body: Any = None,
    refusals: tuple[int, ...] = (),
    query: tuple[Query, ...] = (),
    headers: tuple[str, ...] = (),
) -> Callable[[Endpoint], Operation]:
    """Declare an endpoint."""

    def declare(endpoint: Endpoint) -> Operation:
        return Operation(endpoint, method, path, right, tag, body, answers, refusals, query, headers)

    return declare


class Application:
    """An ASGI application that answers one operation. Its path parameters come in the scope."""

    def __init__(self, operation: Operation, desk: Desk) -> None:
        self.operation = operation
        self._desk = desk
        self._decoder = _decoder(operation.body)
        self._meter = desk.metrics.of(operation.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard, read, decode, call, encode. Whatever goes wrong becomes a problem document."""
        began = self._desk.metrics.clock()
        request_id: str = scope["state"]["request_id"]
        try:
            reply = await self._answer(scope, receive, request_id)
        except (Refusal, RoomUnavailable) as error:
            reply = _refused(error, request_id)
            outcome = error.code
        except ClientGone:
            self._meter.observe("client-gone", began)
            return
        except Exception as error:
            log.exception("unexpected error", operation=self.operation.name, request_id=request_id, error=repr(error))
            reply = _broken(request_id)
            outcome = "internal-error"
        else:
            outcome = "ok"
        await respond(send, reply)
        self._meter.observe(outcome, began)

    async def _answer(self, scope: Scope, receive: Receive, request_id: str) -> Reply:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        path: dict[str, str] = scope["path_params"]
        principal = await admit(self._desk.doorkeeper, self.operation.right, path.get("queue"), headers)
        raw = await read_body(receive, self._desk.largest_request)
        body = self._decoder(raw)
        return await self.operation.endpoint(
            Call(self._desk, principal, request_id, path, scope["query_string"], headers, receive, raw, body)
        )


async def respond(send: Send, reply: Reply) -> None:
    """Send a reply as ASGI events."""
    content = reply.content
    if content is None:
        content = b"" if reply.shape is None else encode(reply.shape)
    headers = [(b"content-length", b"%d" % len(content)), *reply.headers]
    if reply.status != 204:
        headers.append((b"content-type", reply.content_type))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def problem_reply(status: int, code: str, detail: str, request_id: str, headers: Headers = ()) -> Reply:
    """A problem that no verb raised: an unknown path, a method that is not allowed."""
    shape = plain_problem(status, code, detail, request_id)
    return Reply(shape, status, content_type=PROBLEM, headers=headers)


def _refused(error: Refusal | RoomUnavailable, request_id: str) -> Reply:
    problem = problem_of(error, request_id)
    headers: Headers = ()
    if problem.status in (429, 503):
        headers = ((b"retry-after", b"1"),)
    elif problem.status == 401:
        headers = ((b"www-authenticate", b'Bearer realm="peeklock"'),)
    return Reply(problem, problem.status, content_type=PROBLEM, headers=headers)


def _broken(request_id: str) -> Reply:
    detail = "Something went wrong here that should not have. The tracking id names it in the server's log."
    return problem_reply(500, "internal-error", detail, request_id)


def _decoder(body: Any) -> Callable[[bytes], Any]:
    if body is None:
        return lambda raw: None
    if body is bytes:
        return lambda raw: raw
    decode = msgspec.json.Decoder(body).decode

    def decoded(raw: bytes) -> Any:
        try:
            # The decoder passes strings inside a raw body on unread, so their encoding is checked here.
            raw.decode()
            return decode(raw or b"{}")
        except UnicodeDecodeError:
            raise InvalidRequest("The body is not UTF-8.") from None
        except RecursionError:
            raise InvalidRequest("The body is nested too deeply.") from None
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InvalidRequest(faults=[Fault(*pointer_and_detail(str(error)))]) from None

    return decoded
