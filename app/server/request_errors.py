"""The requests that a connection refuses, the limits of a head, and the response to a refused request."""

from collections.abc import Iterable

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.domain.refusals import MessageTooLarge, Overloaded
from app.http.problems import PARSE_ERROR_CODES, make_problem, problem_headers
from app.server.chunk_overhead import MAX_SMALL_CHUNKS, MIN_BYTES_PER_CHUNK

MAX_URL_BYTES = 16 << 10
"""Bytes of a request's target: a filter of 1 KiB and a cursor need a quarter of it, however they are escaped."""

MAX_HEAD_BYTES = 64 << 10
"""Bytes of its target, header fields and trailer fields: a raw send may carry 32 KiB of properties there."""

MAX_FIELDS = 128
"""Header fields of a request: up to 64 properties of a raw send, and as many others. Each takes 160 bytes of memory
besides its own bytes, so the size of a head does not bound its memory."""

RequestError = tuple[int, str]
"""Status and detail of a problem."""

CODES = {**PARSE_ERROR_CODES, 413: MessageTooLarge.code, 503: Overloaded.code}

MALFORMED: RequestError = (400, "This is not HTTP/1.1 as RFC 9112 defines it, or its method is unknown.")
NO_HOST: RequestError = (400, "A request of HTTP/1.1 has exactly one Host header.")
UNKNOWN_TRANSFER_CODING: RequestError = (501, "This server knows no transfer coding of a request but chunked.")
URL_TOO_LONG: RequestError = (414, f"The target of a request has at most {MAX_URL_BYTES} bytes.")
HEAD_TOO_LARGE: RequestError = (
    431, f"The target, header fields, trailer fields and chunk extensions of a request have about {MAX_HEAD_BYTES} bytes at most."
)  # fmt: skip
TOO_MANY_CHUNKS: RequestError = (
    413, f"A chunked body has at most {MAX_SMALL_CHUNKS} chunks, and one more for every {MIN_BYTES_PER_CHUNK} bytes. Send larger chunks."
)  # fmt: skip
TOO_MANY_FIELDS: RequestError = (431, f"A request has at most {MAX_FIELDS} header fields.")


def error_response(
    error: RequestError, request_id: str, default_headers: Iterable[tuple[bytes, bytes]], method: bytes
) -> bytes:
    """Return the bytes of the problem document for this error, without the document to HEAD. The connection closes after it."""
    status, detail = error
    problem = make_problem(status, CODES[status], detail, request_id)
    body = msgspec.json.encode(problem)
    headers = (
        *default_headers,
        (b"content-length", b"%d" % len(body)),
        (b"content-type", b"application/problem+json"),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
        *problem_headers(problem),
    )
    head = (STATUS_LINE[status], *(b"%s: %s\r\n" % header for header in headers), b"\r\n")
    return b"".join(head if method == b"HEAD" else (*head, body))
