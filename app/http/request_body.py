"""Read request bodies within a limit, and count their bytes while they arrive."""

from app.domain.refusals import MessageTooLarge
from app.http.asgi import ClientDisconnected, Receive
from app.runtime.byte_budget import ByteBudget

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
            raise too_large(max_bytes)
        if size > length:
            reservation.grow(size)
        if event.get("more_body", False):
            buffer += chunk
        else:
            return bytes(buffer + chunk) if buffer else chunk


def too_large(max_bytes: int) -> MessageTooLarge:
    """Return the refusal of a body with more bytes than a request may have."""
    return MessageTooLarge(f"A request has at most {max_bytes} bytes.")
