"""The bound of the resident memory of a server process: the formula of docs/deploy.md, "Limits in bytes"."""

from app.server.connection_limit import SPARE_CONNECTIONS
from app.settings import Settings

KIB, MIB = 1 << 10, 1 << 20

BASE = 200 * MIB
"""An idle process (105 MiB), the library of filters, caches of the database driver, and the pages of two scans."""

CONNECTION = 512 * KIB
"""A head, a body and an answer of 64 KiB each that are not counted, twice, and one read of requests sent ahead."""

COPIES = 3
"""Copies of a counted byte: as read, as decoded, and as sent to the store or the client."""

VOLATILE_COPIES = 2
"""Copies of a volatile message: in the buffer, and in a statement."""

REQUESTS = 14
"""The largest request while it is decoded, and while a long name or value in it is refused: four bytes a character."""


def max_resident_bytes(settings: Settings) -> int:
    """Return the maximum resident bytes of a process with these settings."""
    return (
        BASE
        + CONNECTION * (settings.max_connections + SPARE_CONNECTIONS)
        + COPIES * (settings.max_request_bytes_in_flight + settings.max_answer_bytes_in_flight)
        + VOLATILE_COPIES * settings.max_volatile_bytes
        + REQUESTS * settings.max_request_bytes
    )
