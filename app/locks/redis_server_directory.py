"""The server directory in Redis, shared by all processes. Windows follow the clock of Redis alone."""

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice

import msgspec

from app.broker.ports.server_directory import (
    LISTED_SECONDS,
    MAX_COUNTS,
    WINDOW_SECONDS,
    AllReports,
    Counts,
    ListedServer,
    Server,
)
from app.domain.instant import from_seconds, to_seconds
from app.locks.lua_scripts import REPORT
from app.locks.redis_connection import RedisConnection, ScriptCall
from app.locks.redis_keys import RedisKeys

MAX_AMOUNT = 1 << 56
"""The largest amount of a report: a hundred of them fit in a number of Redis."""

MAX_DESCRIPTION_BYTES = 1024
"""A longer description is not sent, and its server is not listed."""

MAX_START = 1 << 57
"""A later start than in the year 6500 is none, and could not be shown."""

SERVER = re.compile(r"s (\d{1,18}) (.*)", re.ASCII)
COUNT = re.compile(r"(?<!\S)(\d{1,19}):([a-z_]+) (\d{1,19})(?!\S)", re.ASCII)

NOTHING_READ = -1
KEPT_WINDOWS = 25
"""Sums are kept for less than the time of these windows (`LIFE_SECONDS` in `report.lua`)."""

WINDOW = from_seconds(WINDOW_SECONDS)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Server).decode


class RedisServerDirectory:
    """Implements `ServerDirectory`. Each call is one script.

    Crash window: counts are sent once and never again. If a call fails, or its answer is lost, its counts may be missing in
    the sums that other servers read. They are never there twice. The caller shows them itself, as those of this server
    alone. So the windows up to the next answered call are not read: they may have these counts too.

    If the clock of Redis is set back, as by a failover, the windows that were read begin again. They still have the counts of
    their first time, so they are not read twice. For up to two minutes nothing is read then.

    `phase`, in [0, 1), spreads the calls of servers over a window. A server calls once in each window, far from its ends,
    so that each window has the counts of equal times.
    """

    def __init__(self, connection: RedisConnection, keys: RedisKeys, phase: float) -> None:
        self._connection = connection
        self._keys = [keys.servers(), *keys.windows()]
        self._offset = WINDOW_SECONDS * (0.2 + 0.6 * phase)
        self._reports = 0
        self._last_window = self._newest_read = NOTHING_READ

    async def report(self, server: Server, counts: Counts) -> AllReports | None:
        """See `ServerDirectory`."""
        description = _encode(server).decode()
        reply = await self._call(server, description if len(description) <= MAX_DESCRIPTION_BYTES else "", counts)
        if reply is None:
            self._last_window = NOTHING_READ
            return None
        head, *lines = reply.split("\n")
        window, now = map(int, head.split())
        self._last_window = self._newest_read = self._newest_after(window - 1)
        servers = [listed for line in lines if (listed := _listed(line)) is not None]
        windows = [_counts(line) for line in lines if line.startswith("w")]
        return AllReports(servers, windows, self._next_seconds(now))

    async def leave(self, server: Server, counts: Counts) -> None:
        """See `ServerDirectory`."""
        await self._call(server, "", counts)

    async def _call(self, server: Server, description: str, counts: Counts) -> str | None:
        """Run the script. Return its lines, or None if it has not answered."""
        self._reports += 1
        own = [server.id, self._reports, description, self._last_window, WINDOW, from_seconds(LISTED_SECONDS)]
        # One argument: thousands would each be encoded by the client.
        amounts = " ".join(islice(_amounts(counts), MAX_COUNTS))
        (reply,) = await self._connection.run([ScriptCall(REPORT, self._keys, [*own, amounts])])
        return reply.decode(errors="replace") if isinstance(reply, bytes) else None

    def _newest_after(self, ended: int) -> int:
        """Return the newest window that was read, after an answer with the windows up to this one."""
        is_known = self._newest_read - KEPT_WINDOWS <= ended < self._newest_read
        return self._newest_read if is_known else ended

    def _next_seconds(self, now: int) -> float:
        """Return the seconds to the time of this server in the next window."""
        return WINDOW_SECONDS + self._offset - to_seconds(now % WINDOW)


def _amounts(counts: Counts) -> Iterable[str]:
    for queue_id, of_queue in counts.items():
        for name, amount in of_queue.items():
            if amount:
                yield f"{queue_id}:{name} {min(amount, MAX_AMOUNT)}"


def _listed(line: str) -> ListedServer | None:
    """Return the server of a line. None if a server of another version describes itself in a way that is not known here."""
    if (found := SERVER.fullmatch(line)) is None:
        return None
    try:
        server = _decode(found[2])
    except (msgspec.DecodeError, RecursionError):
        return None
    return ListedServer(server, int(found[1])) if 0 <= server.started_at < MAX_START else None


def _counts(line: str) -> Counts:
    """Return the sums of a window from names and amounts in turn. What is no count of a queue is left out."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for queue_id, name, amount in COUNT.findall(line):
        counts[int(queue_id)][name] = int(amount)
    return counts
