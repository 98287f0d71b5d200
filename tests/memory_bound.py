"""The bound of the resident memory of a server process: the formula of docs/deploy.md, "Limits in bytes"."""

from app.server.connection_limit import SPARE_CONNECTIONS
from app.settings import Settings

KIB, MIB = 1 << 10, 1 << 20

BASE = 200 * MIB
"""An idle process (105 MiB), the library of filters, caches of the database driver, and what two looks read."""

CONNECTION = 512 * KIB
"""A head, a body and an answer of 64 KiB each that are not counted, twice, and one read of what was sent ahead."""

COPIES = 3
"""Of a counted byte: what was read, what was made of it, and what goes to the store or the client."""

VOLATILE_COPIES = 2
"""Of a volatile message that waits, and of those that are in a statement."""

REQUESTS = 4
"""Of the largest request: what is made of one while it is taken in."""


def max_resident_bytes(settings: Settings) -> int:
    """The bytes that a process with these settings has resident at most."""
    return (
        BASE
        + CONNECTION * (settings.max_connections + SPARE_CONNECTIONS)
        + COPIES * (settings.max_request_bytes_in_flight + settings.max_answer_bytes_in_flight)
        + VOLATILE_COPIES * settings.max_volatile_bytes
        + REQUESTS * settings.max_request_bytes
    )
