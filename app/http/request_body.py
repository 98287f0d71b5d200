"""Read request bodies within a limit, and count their bytes while they arrive."""

from app.domain.refusals import FieldError, InvalidRequest, MessageTooLarge, UnsupportedContentEncoding
from app.http.asgi import ClientDisconnected, Headers, Receive
from app.http.local_access import LOCAL_ADMIN
from app.runtime.byte_budget import ByteBudget

IDENTITY_ENCODINGS = (b"identity", b"")
"""The encodings that leave a body as it is."""
TRANSACTION_HEADER = b"peeklock-transaction-id"
"""The header by which a raw send joins a transaction."""
RAW_HEADER_PREFIX = b"peeklock-"
"""The prefix of the headers of raw operations. Another operation that ignored them would, for example, send without the delay
of `Peeklock-Delay-Seconds`, or outside of the transaction."""
CONDITIONS = {
    b"if-match": "This operation does not read If-Match: it would take effect also if the resource has changed.",
    b"idempotency-key": "This operation does not read Idempotency-Key: it would take effect again at each repeat.",
}
"""Headers by which a client limits what its request may do, and what ignoring them would mean. Conditions of reads, such as
If-None-Match, are not among them: browsers and proxies add those, and an answer without them is complete."""
LOCAL_ADMIN_HEADER = LOCAL_ADMIN.lower().encode()
"""Any operation may have this header: clients of a local server send it with every request."""
UNCOUNTED_BYTES = 64 << 10
"""Bodies and answers up to this size are not counted, because a connection has at most one of each in memory."""


class BodyReservation:
    """The bytes of one request body, counted from their announcement or arrival until `release`."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._size = 0

    def grow(self, size: int) -> None:
        """Count a body that has this size now. The budget refuses it while the server has no bytes left."""
        if size > self._size and size > UNCOUNTED_BYTES:
            self._budget.acquire(size - self._size)
            self._size = size

    def release(self) -> None:
        """Count the body no longer."""
        if self._size:
            self._budget.release(self._size)
            self._size = 0


async def read_body(receive: Receive, length: int, max_bytes: int, reservation: BodyReservation) -> bytes:
    """Return the whole body, whose announced `length` is already counted; 0 means that none was announced.

    Refuses with `MessageTooLarge` as soon as the body passes `max_bytes`. The budget of `reservation` may refuse it too.
    Raises `ClientDisconnected`.
    """
    # One buffer, because a list of chunks of two bytes would take twenty times their size.
    buffer = bytearray()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = event.get("body", b"")
        size = len(buffer) + len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size > length:
            reservation.grow(size)
        if event.get("more_body", False):
            buffer += chunk
        else:
            return bytes(buffer + chunk) if buffer else chunk


def check_length(headers: Headers, max_bytes: int) -> int:
    """Return the Content-Length of a request, 0 without one.

    Refuses with `MessageTooLarge` a length above `max_bytes`, before the body is read: reading would tell a client that
    waits for `100 Continue` to send the body. A Content-Length that is not digits is ignored, because the server has
    already refused it.
    """
    length = 0
    for key, value in headers:
        if key == b"content-length" and value.isdigit():
            length = _to_integer(value)
            if length > max_bytes:
                raise _too_large(max_bytes)
    return length


def check_no_body(headers: Headers, max_bytes: int) -> int:
    """`check_length` for a change without a body. Refuses with `InvalidRequest` a body, which may say what the client does not want."""
    if check_length(headers, max_bytes) or any(key == b"transfer-encoding" for key, _ in headers):
        raise InvalidRequest(
            field_errors=[FieldError("", "This request has no body. Its parameters are in its target.")]
        )
    return 0


def check_length_and_encoding(headers: Headers, max_bytes: int) -> int:
    """`check_length` for an operation with a body. Both checks share one pass over the headers of a frequent request.

    Refuses with `UnsupportedContentEncoding` a compressed body, because receivers are not told the encoding.
    """
    length = 0
    for key, value in headers:
        if key == b"content-length" and value.isdigit():
            length = _to_integer(value)
            if length > max_bytes:
                raise _too_large(max_bytes)
        if key == b"content-encoding" and value.strip().lower() not in IDENTITY_ENCODINGS:
            raise UnsupportedContentEncoding
    return length


def check_json_headers(headers: Headers, max_bytes: int) -> int:
    """`check_length_and_encoding` for an operation with a JSON body. Refuses the headers of raw operations."""
    for key, _ in headers:
        if key.startswith(RAW_HEADER_PREFIX) and key != LOCAL_ADMIN_HEADER:
            detail = (
                "Only raw operations read this header. Other operations take its value in the body, if they support it."
            )
            raise unread_header(key, detail)
    return check_length_and_encoding(headers, max_bytes)


def unread_header(name: bytes, detail: str) -> InvalidRequest:
    """Return the refusal of a header, by its lower-case name, that an operation does not read."""
    return InvalidRequest(field_errors=[FieldError(f"#/header/{name.decode('latin-1').title()}", detail)])


def _to_integer(digits: bytes) -> int:
    """Return a Content-Length. The server has refused one above 64 bits, but not the zeros before it: Python reads no
    integer of thousands of digits."""
    return int(digits.lstrip(b"0") or b"0")


def _too_large(max_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(f"A request has at most {max_bytes} bytes.")
