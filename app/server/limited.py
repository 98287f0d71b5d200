"""Bounds the connections of a process: a client above the limit hears at once to come back later.

Everything a client can make a process hold is bounded for each connection, so this bounds it for all of them.
"""

import asyncio

from app.api.health import check_live, check_ready
from app.server.connection import Complaint
from app.server.patience import Patient

PROBES = (check_live.path.encode(), check_ready.path.encode())

SPARE = 32
"""Connections above the limit that are still heard. A probe among them is answered; any other request gets a 503."""

SPARE_SECONDS = 5.0
"""How long such a connection may take to send its request."""

CROWDED: Complaint = (
    503,
    "This server has as many connections as PEEKLOCK_MAX_CONNECTIONS allows; try again after the time in Retry-After.",
)


class Limited(Patient):
    """A connection that counts against `limit_concurrency` of uvicorn's settings, taken as a limit of connections.

    uvicorn itself would refuse requests of those that were there first.
    """

    _is_above_limit = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        limit, self.limit_concurrency = self.limit_concurrency, None
        above = 0 if limit is None else len(self.connections) + 1 - limit
        if above > 0:
            self._is_above_limit = True
            self.seconds = SPARE_SECONDS
        super().connection_made(transport)
        if above > SPARE:
            self._refuse(CROWDED)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """A request's head is here. Above the limit it is the last one of its connection."""
        super().on_headers_complete()
        if self._is_above_limit:
            self.cycle.keep_alive = False

    def _fault_of_head(self) -> Complaint | None:
        if self._is_above_limit and self.url not in PROBES:
            return CROWDED
        return super()._fault_of_head()
