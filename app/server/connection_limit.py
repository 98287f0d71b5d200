"""Bounds the connections of a process: a client above the limit hears at once to come back later.

Everything a client can make a process hold is bounded for each connection, so this bounds it for all of them.
"""

import asyncio
from typing import cast

from app.api.endpoints.health import check_live, check_ready
from app.server.connection import RequestError, Stage
from app.server.read_timeout import TimedConnection

PROBE_PATHS = (check_live.path.encode(), check_ready.path.encode())

SPARE_CONNECTIONS = 32
"""Connections above the limit that are still heard. A probe among them is answered; any other request gets a 503.

One more than these takes the place of the one that has been silent for longest.
"""

SPARE_SECONDS = 5.0
"""How long such a connection may take to send its request."""

TOO_MANY_CONNECTIONS: RequestError = (
    503,
    "This server has as many connections as PEEKLOCK_MAX_CONNECTIONS allows; try again after the time in Retry-After.",
)


class LimitedConnection(TimedConnection):
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
        if above > SPARE_CONNECTIONS:
            self._longest_idle().reject()

    def on_headers_complete(self) -> None:
        """A request's head is here. Above the limit it is the last one of its connection."""
        super().on_headers_complete()
        if self._is_above_limit:
            self.cycle.keep_alive = False

    @property
    def is_idle_spare(self) -> bool:
        """Whether it is above the limit and has asked for nothing yet."""
        return (
            self._is_above_limit and self._stage is Stage.NONE and not self._is_answering() and not self._is_discarding
        )

    @property
    def idle_since(self) -> float:
        """Since when, by the loop's time."""
        return self._waiting_since

    def reject(self) -> None:
        """Say that there are too many connections, and close this one."""
        self._refuse(TOO_MANY_CONNECTIONS)
        self.transport.close()

    def _longest_idle(self) -> "LimitedConnection":
        # A probe asks at once.
        idle = [one for one in cast("set[LimitedConnection]", self.connections) if one.is_idle_spare]
        return min(idle, key=lambda one: one.idle_since, default=self)

    def _head_error(self) -> RequestError | None:
        if self._is_above_limit and self.url not in PROBE_PATHS:
            return TOO_MANY_CONNECTIONS
        return super()._head_error()
