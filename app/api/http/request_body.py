"""Read request bodies within a limit, and count their bytes while they arrive."""

from types import TracebackType

from app.api.http.asgi import ClientDisconnected, Headers, Receive
from app.domain.refusals import MessageTooLarge, UnsupportedContentEncoding
from app.runtime.byte_budget import ByteBudget

IDENTITY_ENCODINGS = (b"identity", b"")
"""The encodings that leave a body as it is."""
UNCOUNTED_BYTES = 64 << 10
"""Bodies and answers up to this size are not counted one by one: each connection has at most one of them in hand."""


class BodyReservation:
    """The bytes of one request's body, counted from when they are announced or arrive until the request is done."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._size = 0

    def __enter__(self) -> "BodyReservation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._size:
            self._budget.release(self._size)

    def grow(self, size: int) -> None:
        """Count a body that has this size now. The budget refuses it where the server has no room for it."""
        if size > max(self._size, UNCOUNTED_BYTES):
            self._budget.acquire(size - self._size)
            self._size = size


async def read_body(receive: Receive, max_bytes: int, reservation: BodyReservation) -> bytes:
    """The whole body.

    Refuses with `MessageTooLarge` as soon as it passes `largest` bytes, and where `held` has no room for it.
    """
    event = await receive()
    if event["type"] == "http.disconnect":
        raise ClientDisconnected
    body: bytes = event.get("body", b"")
    reservation.grow(len(body))
    if not event.get("more_body", False):
        return _size_checked(body, max_bytes)
    # One buffer: a list of chunks of two bytes each would take twenty times their size.
    buffer = bytearray(body)
    while event.get("more_body", False):
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        size = len(buffer) + len(event.get("body", b""))
        if size > max_bytes:
            raise _too_large(max_bytes)
        reservation.grow(size)
        buffer += event.get("body", b"")
    return _size_checked(bytes(buffer), max_bytes)


def check_length(headers: Headers, max_bytes: int) -> int:
    """The length that a request says it has, 0 where it says none.

    Refuses with `MessageTooLarge` one that is longer than `largest`, before reading any of it. To read is also to
    tell a client that asked (`Expect: 100-continue`) to go on. A Content-Length that is not digits is
    ignored here, because the server has refused it already.
    """
    length = 0
    for key, value in headers:
        if key == b"content-length" and value.isdigit():
            length = int(value)
            if length > max_bytes:
                raise _too_large(max_bytes)
    return length


def check_length_and_encoding(headers: Headers, max_bytes: int) -> int:
    """`check_length` for an operation that takes a body, in one look at the headers of a hot request.

    Refuses with `UnsupportedContentEncoding` a body that is packed: no receiver would hear how.
    """
    length = 0
    for key, value in headers:
        if key == b"content-length" and value.isdigit():
            length = int(value)
            if length > max_bytes:
                raise _too_large(max_bytes)
        if key == b"content-encoding" and value.strip().lower() not in IDENTITY_ENCODINGS:
            raise UnsupportedContentEncoding
    return length


def _size_checked(body: bytes, max_bytes: int) -> bytes:
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    return body


def _too_large(max_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(f"A request has at most {max_bytes} bytes.")
