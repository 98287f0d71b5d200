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

from app.api.bodies import (
    UNCOUNTED,
    ClientGone,
    Event,
    Headers,
    Held,
    Receive,
    Scope,
    Send,
    check_content,
    check_length,
    read_body,
)
from app.api.decoding import body_decoder, entry_counter, query_decoder
from app.api.desk import Call, Desk, in_path
from app.api.guard import Guard
from app.api.open_access import LOCAL_ADMIN, OpenAccess
from app.api.problems import plain_problem, problem_of
from app.domain.access import Principal, Right
from app.domain.queue import is_valid_name
from app.domain.refusals import Refusal, RoomUnavailable
from app.domain.weight import ROW_BYTES

JSON = b"application/json"
MERGE_PATCH = b"application/merge-patch+json"
OCTETS = b"application/octet-stream"
PROBLEM = b"application/problem+json"
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"

WRONG_NAME = "A queue's name has 1 to 128 letters, digits, dots, dashes or underscores, and begins and ends with a letter or digit."

encode = msgspec.json.Encoder().encode
log = structlog.get_logger("peeklock.api")


@dataclass(slots=True)
class Reply:
    """What an endpoint answers: a shape to encode, bytes to pass on, or nothing."""

    shape: Any = None
    status: int = 200
    content: bytes | None = None
    content_type: bytes = JSON
    headers: Headers = ()


Endpoint: TypeAlias = Callable[[Call[Any]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Operation:
    """The declaration of one operation. `right` None means that anybody may call it.

    `answers` maps a status to the shape of its body: None for no body, `bytes` for bytes of any kind. `body` None
    means that the operation takes none, `bytes` that it takes any content type as it is. `query` is the shape of
    its query parameters, `headers` the names of those it reads, `tagged` the statuses whose answers have an ETag;
    `accepts` and `gives` are the media types of its body and its answers.
    """

    endpoint: Endpoint
    method: str
    path: str
    right: Right | None
    tag: str
    answers: Mapping[int, Any]
    body: Any = None
    refusals: tuple[int, ...] = ()
    query: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    tagged: tuple[int, ...] = ()
    accepts: bytes = JSON
    gives: bytes = JSON
    example: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The operation id: the name of its function."""
        return self.endpoint.__name__

    def open_access(self, desk: Desk) -> OpenAccess:
        """What is asked of a request where no key is needed."""
        takes_json = self.body not in (None, bytes)
        return OpenAccess(desk.is_loopback, takes_json, needs_header=LOCAL_ADMIN in self.headers)

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
    query: type[msgspec.Struct] | None = None,
    headers: tuple[str, ...] = (),
    tagged: tuple[int, ...] = (),
    accepts: bytes = JSON,
    gives: bytes = JSON,
    example: Mapping[str, Any] | None = None,
) -> Callable[[Endpoint], Operation]:
    """Declare an endpoint; see `Operation` for what is said."""

    def declare(endpoint: Endpoint) -> Operation:
        return Operation(
            endpoint, method, path, right, tag, answers, body, refusals, query, headers, tagged, accepts, gives, example
        )

    return declare


class Application:
    """An ASGI application that answers one operation. Its path parameters come in the scope."""

    def __init__(self, operation: Operation, desk: Desk) -> None:
        self.operation = operation
        self._desk = desk
        self._endpoint = operation.endpoint
        self._guard = Guard(desk.doorkeeper, operation.right, operation.open_access(desk))
        self._check = check_length if operation.body is None else check_content
        self._decode = body_decoder(operation.body)
        self._count_entries = entry_counter(operation.body)
        self._decode_query = query_decoder(operation.query)
        self._meter = desk.metrics.of(operation.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard, read, decode, call, encode. Whatever goes wrong becomes a problem document."""
        began = self._desk.metrics.clock()
        request_id: str = scope["state"]["request_id"]
        outcome = "ok"
        try:
            reply = await self._answer(scope, receive)
        except (Refusal, RoomUnavailable) as error:
            reply = refused(error, request_id)
            outcome = error.code
        except ClientGone:
            self._meter.observe("client-gone", began)
            return
        except Exception as error:
            log.exception("unexpected error", operation=self.operation.name, request_id=request_id, error=repr(error))
            reply = _broken(request_id)
            outcome = "internal-error"
        await self._respond(send, reply)
        self._meter.observe(outcome, began)

    async def _respond(self, send: Send, reply: Reply) -> None:
        """Send a reply; a large one counts until the client has taken all but the last of it."""
        content = content_of(reply)
        if len(content) <= UNCOUNTED:
            await _send(send, reply, content)
            return
        # The messages themselves are not needed any more.
        reply.shape = None
        answers = self._desk.broker.answers
        answers.add(len(content))
        try:
            await _send_slowly(send, reply, content)
        finally:
            answers.give(len(content))

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        headers: Headers = scope["headers"]
        path: dict[str, str] = scope["path_params"]
        name = path.get("queue")
        principal = await self._guard.admit(name, headers)
        if name is not None and not is_valid_name(name):
            raise in_path("queue", WRONG_NAME)
        largest = self._desk.largest_request
        if self.operation.body is None:
            # Not read: some of these need no key, and an announced body would reserve room.
            self._check(headers, largest)
            return await self._call(scope, receive, principal, b"", None)
        with Held(self._desk.requests) as held:
            held.grow(self._check(headers, largest))
            raw = await read_body(receive, largest, held)
            body = self._decode(raw)
            # An entry of two bytes becomes objects of a thousand.
            held.grow(len(raw) + ROW_BYTES * self._count_entries(body))
            return await self._call(scope, receive, principal, raw, body)

    async def _call(self, scope: Scope, receive: Receive, principal: Principal, raw: bytes, body: Any) -> Reply:
        query = self._decode_query(scope["query_string"])
        path: dict[str, str] = scope["path_params"]
        request_id: str = scope["state"]["request_id"]
        call = Call(self._desk, principal, request_id, path, query, scope["headers"], receive, raw, body)
        return await self._endpoint(call)


async def respond(send: Send, reply: Reply) -> None:
    """Send a reply as ASGI events."""
    await _send(send, reply, content_of(reply))


def content_of(reply: Reply) -> bytes:
    """The bytes of a reply."""
    if reply.content is not None:
        return reply.content
    return b"" if reply.shape is None else encode(reply.shape)


async def _send(send: Send, reply: Reply, content: bytes) -> None:
    await send(_head(reply, content))
    await send({"type": "http.response.body", "body": content})


async def _send_slowly(send: Send, reply: Reply, content: bytes) -> None:
    """Send a reply, and return when the client has taken it: a server takes a second piece once the first has gone."""
    await send(_head(reply, content))
    await send({"type": "http.response.body", "body": content, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _head(reply: Reply, content: bytes) -> Event:
    headers = [*reply.headers]
    if reply.status != 204:
        headers += ((b"content-length", b"%d" % len(content)), (b"content-type", reply.content_type))
    return {"type": "http.response.start", "status": reply.status, "headers": headers}


def problem_reply(status: int, code: str, detail: str, request_id: str, headers: Headers = ()) -> Reply:
    """A problem that no verb raised: an unknown path, a method that is not allowed."""
    shape = plain_problem(status, code, detail, request_id)
    return Reply(shape, status, content_type=PROBLEM, headers=headers)


def refused(error: Refusal | RoomUnavailable, request_id: str) -> Reply:
    """The problem document of what the broker said no to, with the headers that its status asks for."""
    problem = problem_of(error, request_id)
    headers: Headers = ()
    if problem.status in (429, 503):
        headers = ((b"retry-after", b"1"),)
    elif problem.status == 415:
        headers = ((b"accept-encoding", b"identity"),)
    elif problem.status == 401:
        headers = ((b"www-authenticate", b'Bearer realm="peeklock"'),)
    return Reply(problem, problem.status, content_type=PROBLEM, headers=headers)


def _broken(request_id: str) -> Reply:
    detail = "Something went wrong here that should not have. The tracking id names it in the server's log."
    return problem_reply(500, "internal-error", detail, request_id)
