"""The headers of a request, read once, and those that an operation refuses."""

from collections import Counter
from dataclasses import dataclass

from app.domain.refusals import FieldError, InvalidRequest, UnsupportedContentEncoding
from app.http.asgi import Headers
from app.http.local_access import LOCAL_ADMIN
from app.http.request_body import too_large

IDENTITY_ENCODINGS = (b"identity", b"")
"""The encodings that leave a body as it is."""
RAW_HEADER_PREFIX = b"peeklock-"
"""The prefix of the headers of raw operations. Another operation that ignored them would, for example, send without the delay
of `Peeklock-Delay-Seconds`, or outside of the transaction."""
CONDITIONS = {
    b"if-match": "This operation does not read If-Match: it would take effect even if the resource has changed.",
    b"idempotency-key": "This operation does not read Idempotency-Key: it would take effect again at each repeat.",
}
"""Headers by which a client limits what its request may do, and what ignoring them would mean. Conditions of reads, such as
If-None-Match, are not among them: browsers and proxies add those, and an answer without them is complete."""
ONLY_RAW = "Only raw operations read this header. Other operations take its value in the body, if they support it."
LOCAL_ADMIN_HEADER = LOCAL_ADMIN.lower().encode()
"""Any operation may have this header: clients of a local server send it with every request."""


class RequestHeaders:
    """The header lines of a request in their order, and their values by name. Names are in lower case.

    `values` has the last value of each name, and `repeated` the names with more than one.
    """

    __slots__ = ("lines", "repeated", "values")

    def __init__(self, lines: Headers) -> None:
        self.lines = lines
        self.values = dict(lines)
        self.repeated = () if len(self.values) == len(lines) else _repeated_names(lines)

    def text(self, name: bytes) -> str | None:
        """Return the first value of a header, None without one."""
        return self.every(name)[0].decode("latin-1") if name in self.values else None

    def every(self, name: bytes) -> list[bytes]:
        """Return every value of a header, none without it."""
        return [value for key, value in self.lines if key == name] if name in self.values else []


@dataclass(frozen=True, slots=True)
class HeaderCheck:
    """Which headers an operation refuses.

    `unread` are those of `CONDITIONS` that it would ignore. With `has_body` it reads a body: JSON with `is_json`, bytes without.
    A body that it does not read is refused, unless it `ignores_body`.
    """

    unread: frozenset[bytes]
    has_body: bool
    is_json: bool
    ignores_body: bool

    def check(self, headers: RequestHeaders, max_bytes: int) -> int:
        """Return the Content-Length of a request, 0 without one.

        Refuses with `MessageTooLarge` a length above `max_bytes`, before the body is read: reading would tell a client
        that waits for `100 Continue` to send the body. A Content-Length that is not digits is ignored, because the server
        has already refused it. Refuses with `InvalidRequest` a header or a body that the operation would ignore, because it
        may say what the client wants, and with `UnsupportedContentEncoding` a compressed body, because receivers are not
        told the encoding.
        """
        values = headers.values
        if not self.unread.isdisjoint(values):
            name = next(name for name in values if name in self.unread)
            raise _unread(name, CONDITIONS[name])
        if self.is_json:
            for name in values:
                if name.startswith(RAW_HEADER_PREFIX) and name != LOCAL_ADMIN_HEADER:
                    raise _unread(name, ONLY_RAW)
        digits = values.get(b"content-length", b"")
        # The server has refused a length above 64 bits, but not the zeros before it: Python reads no integer of thousands
        # of digits.
        length = int(digits.lstrip(b"0") or b"0") if digits.isdigit() else 0
        if length > max_bytes:
            raise too_large(max_bytes)
        if self.has_body:
            if b"content-encoding" in values and not _are_identity(headers.every(b"content-encoding")):
                raise UnsupportedContentEncoding
        elif not self.ignores_body and (length or b"transfer-encoding" in values):
            raise InvalidRequest(
                field_errors=[FieldError("", "This request has no body. Its parameters are in its target.")]
            )
        return length


def _repeated_names(lines: Headers) -> frozenset[bytes]:
    counts = Counter(name for name, _ in lines)
    return frozenset(name for name, count in counts.items() if count > 1)


def _are_identity(encodings: list[bytes]) -> bool:
    return all(encoding.strip().lower() in IDENTITY_ENCODINGS for encoding in encodings)


def _unread(name: bytes, detail: str) -> InvalidRequest:
    """Return the refusal of a header that an operation does not read."""
    return InvalidRequest(field_errors=[FieldError(f"#/header/{name.decode('latin-1').title()}", detail)])
