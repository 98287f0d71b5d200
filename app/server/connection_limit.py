"""Limits the connections of a process: a request on a connection above the limit is answered 503 at once.

The memory of each connection is bounded, so this limit bounds the memory of all connections. At the limit, a new connection
replaces the oldest one that has sent no valid key, so clients without a key cannot keep out the others.
"""

import asyncio
from itertools import count
from typing import cast

from app.api.endpoints.health import check_live, check_ready
from app.http.authorize import IS_AUTHENTICATED
from app.server.connection import LINGER_SECONDS, Stage
from app.server.read_timeout import TimedConnection
from app.server.request_errors import RequestError

PROBE_PATHS = (check_live.path.encode(), check_ready.path.encode())

SPARE_CONNECTIONS = 32
"""Connections above the limit that are still served. A probe on one of them is answered; any other request gets a 503.

One more connection replaces the one that has been idle for longest.
"""

CONNECTION_NUMBERS = count()
"""Numbers the connections of a process in the order of their arrival."""

_SPARE_SECONDS = 5.0
"""How long a connection above the limit may take to send its request."""

TOO_MANY_CONNECTIONS: RequestError = (
    503,
    "This server has as many connections as PEEKLOCK_MAX_CONNECTIONS allows; try again after the time in Retry-After.",
)


class LimitedConnection(TimedConnection):
    """A connection that counts towards uvicorn's setting `limit_concurrency`, which here limits connections.

    uvicorn itself would refuse requests of the earlier connections too.
    """

    _is_above_limit = False
    _was_authenticated = False
    """Whether a request before the newest one had a valid key, or needed none."""
    _number = 0
    _is_rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        limit, self.limit_concurrency = self.limit_concurrency, None
        above = 0 if limit is None else len(self.connections) + 1 - limit
        self._number = next(CONNECTION_NUMBERS)
        if above > 0 and not self._evict_oldest():
            self._is_above_limit = True
            self.timeout_seconds = _SPARE_SECONDS
        super().connection_made(transport)
        if self._is_above_limit and above > SPARE_CONNECTIONS:
            self._longest_idle().reject()

    def on_headers_complete(self) -> None:
        """A head is complete. Above the limit only a probe is answered, as the last request of the connection."""
        self._was_authenticated = self._was_authenticated or self._is_authenticated
        if self._is_above_limit and self.url not in PROBE_PATHS:
            self._reject_request(TOO_MANY_CONNECTIONS)
        super().on_headers_complete()
        if self._is_above_limit:
            self.cycle.keep_alive = False

    @property
    def is_evictable(self) -> bool:
        """Whether a new connection may replace this one: it has sent no valid key, and waits for its client.

        A connection above the limit takes no place, so it cannot be replaced.
        """
        is_kept = self._was_authenticated or self._is_authenticated or self._is_above_limit or self._is_rejected
        return not is_kept and self._waits_for_client()

    @property
    def _is_authenticated(self) -> bool:
        """Whether the newest request with a complete head has a valid key, or needs none because this server has no keys."""
        return bool(self.cycle) and IS_AUTHENTICATED in self.cycle.scope.get("state", {})

    @property
    def is_idle_spare(self) -> bool:
        """Whether the connection is above the limit and has sent no request yet."""
        return (
            self._is_above_limit and self._stage is Stage.NONE and not self._is_answering() and not self._is_discarding
        )

    @property
    def idle_since(self) -> float:
        """The time of the event loop since which a connection without a request is idle."""
        return self._waiting_since

    @property
    def number(self) -> int:
        """A number that is larger than those of older connections."""
        return self._number

    def reject(self) -> None:
        """Answer that the server has too many connections, and close this one.

        The answer is dropped if the client does not take what was written before.
        """
        self._is_rejected = True
        if self.flow.write_paused:
            self._buffered_transport.abort()
            return
        self._refuse(TOO_MANY_CONNECTIONS)
        self.transport.close()
        # Closing waits until the client has taken what was written.
        self.loop.call_later(LINGER_SECONDS, self._buffered_transport.abort)

    def _evict_oldest(self) -> bool:
        """Reject the oldest evictable connection, to take its place. Return False if there is none."""
        evictable = [one for one in cast("set[LimitedConnection]", self.connections) if one.is_evictable]
        if not evictable:
            return False
        min(evictable, key=lambda connection: connection.number).reject()
        return True

    def _waits_for_client(self) -> bool:
        """Whether the client has to take an answer, to send the rest of a body, or to begin a request."""
        if self.flow.write_paused:
            return True
        return not (self._is_discarding or (self._is_answering() and self._stage is not Stage.BODY))

    def _longest_idle(self) -> "LimitedConnection":
        # A probe sends its request at once, so a longer idle connection is no probe.
        idle = [
            connection for connection in cast("set[LimitedConnection]", self.connections) if connection.is_idle_spare
        ]
        return min(idle, key=lambda connection: connection.idle_since, default=self)
