"""What an endpoint answers, and how it is sent as ASGI events."""

from collections.abc import Callable
from typing import Any

import msgspec

from app.domain.refusals import BackendUnavailable, Refusal
from app.http.asgi import Event, Headers, Receive, Send, is_disconnected
from app.http.problems import make_problem, problem_headers, problem_of
from app.wire.problems import Problem

JSON = b"application/json"
MERGE_PATCH = b"application/merge-patch+json"
OCTET_STREAM = b"application/octet-stream"
PROBLEM = b"application/problem+json"
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"
REPLAYED_HEADERS: Headers = ((b"idempotency-replayed", b"true"),)
"""The headers of an answer that repeats an earlier one (Idempotency-Key)."""

UNTRUSTED_BODY_HEADERS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
)
"""Headers that keep a browser from running a body, which its sender chose, as a page of this server."""

INTERNAL_ERROR = "Something went wrong here that should not have. The tracking id names it in the server's log."
WITHOUT_BODY = (204, 304)
"""The statuses of answers that have no body and no headers of one."""

encode = msgspec.json.Encoder().encode


class Response(msgspec.Struct):
    """The answer of an endpoint: a struct to encode, bytes to send as they are, or no body.

    `is_shared` means that the server keeps these bytes for every client, so an answer takes no memory of its own. `on_lost`
    is called if the client disconnects before it has taken the answer. Bytes that the operating system holds count as taken.
    """

    body: Any = None
    status: int = 200
    content: bytes | None = None
    content_type: bytes = JSON
    headers: Headers = ()
    is_shared: bool = False
    on_lost: Callable[[], object] | None = None


async def respond(send: Send, response: Response) -> None:
    """Send a response as ASGI events."""
    head, content = head_and_content(response)
    await send(head)
    await send({"type": "http.response.body", "body": content})


def head_and_content(response: Response) -> tuple[Event, bytes]:
    """Return the ASGI event that begins a response, and the bytes of its body."""
    content = response.content
    if content is None:
        content = b"" if response.body is None else encode(response.body)
    headers = [*response.headers]
    if response.status not in WITHOUT_BODY:
        headers += ((b"content-length", b"%d" % len(content)), (b"content-type", response.content_type))
    return {"type": "http.response.start", "status": response.status, "headers": headers}, content


async def send_until_taken(receive: Receive, send: Send, head: Event, content: bytes) -> bool:
    """Send a response. Once the client has taken it or has disconnected, return whether it is still connected.

    The server accepts an event once it has sent the one before. After the last event it no longer reports a disconnect.
    """
    await send(head)
    for body in (content, b""):
        await send({"type": "http.response.body", "body": body, "more_body": True})
    is_taken = not is_disconnected(receive)
    await send({"type": "http.response.body", "body": b""})
    return is_taken


def location(path: str) -> Headers:
    """Return the header with the path of what a request has created (RFC 9110, 10.2.2)."""
    return ((b"location", path.encode()),)


def problem_response(status: int, code: str, detail: str, request_id: str, headers: Headers = ()) -> Response:
    """Return a problem that no refusal stands for, such as an unknown path or method."""
    return _problem_response(make_problem(status, code, detail, request_id), headers)


def error_response(error: Exception, request_id: str) -> Response:
    """Return the problem document of an error. It does not describe an error that is not a refusal."""
    if isinstance(error, Refusal | BackendUnavailable):
        return refusal_response(error, request_id)
    return problem_response(500, "internal-error", INTERNAL_ERROR, request_id)


def refusal_response(error: Refusal | BackendUnavailable, request_id: str) -> Response:
    """Return the problem document of a refusal, with the headers that its status requires."""
    return _problem_response(problem_of(error, request_id))


def _problem_response(problem: Problem, headers: Headers = ()) -> Response:
    headers = (*headers, *problem_headers(problem))
    return Response(problem, problem.status, content_type=PROBLEM, headers=headers)
