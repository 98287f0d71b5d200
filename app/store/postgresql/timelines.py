"""The timeline of a PostgreSQL server. Each promotion begins a new one, so a lower one belongs to a former primary."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import asyncpg  # pyright: ignore[reportMissingTypeStubs] (see session.py)
import structlog

from app.domain.refusals import StoreUnavailable
from app.store.postgresql.session import DriverConnection

READ_TIMELINE = """
SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
FROM pg_control_system()
"""
"""Every role may run it. It reads the timeline of the write-ahead log, because the control file shows a promotion only later."""

NO_TIMELINE_ERRORS = (
    asyncpg.UndefinedFunctionError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)
"""Errors of a server that has no timeline, such as one that only speaks PostgreSQL's protocol."""

log = structlog.get_logger("peeklock.store")


class Timeline(NamedTuple):
    """The number of a timeline, and the system whose servers are copies of one another."""

    system: int
    number: int


UNKNOWN = Timeline(0, 0)
"""The timeline of a server that reports none. It is the same for all of them, so none is refused."""


class FormerPrimary(StoreUnavailable):
    """The database server that accepts writes is a former primary: another one has been promoted since."""


async def read_timeline(connection: DriverConnection) -> Timeline:
    """Return the timeline of the server of this connection."""
    try:
        ((system, number),) = await connection.fetch(READ_TIMELINE)
    except NO_TIMELINE_ERRORS:
        return UNKNOWN
    return Timeline(system, number)


class HighestTimelines:
    """The highest timeline of each system that this process knows of.

    A write to a server of a lower timeline is lost once that server becomes a standby again.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.on_raised: Callable[[], None] = _do_nothing
        """Called when a higher timeline is known than before: connections to servers of lower ones must end."""

    @property
    def numbers(self) -> Mapping[int, int]:
        """The highest number by system."""
        return self._numbers

    def check(self, timeline: Timeline) -> None:
        """Learn of the timeline of a server. Refuses with `FormerPrimary` one that is lower than one known before."""
        self.raise_to({timeline.system: timeline.number})
        if timeline.number < self._numbers[timeline.system]:
            raise FormerPrimary

    def raise_to(self, numbers: Mapping[int, int]) -> None:
        """Learn of timelines, from a server or from other processes."""
        for system, number in numbers.items():
            known = self._numbers.setdefault(system, number)
            if number > known:
                self._numbers[system] = number
                log.warning("a database server was promoted", timeline=number, earlier_timeline=known)
                self.on_raised()


def _do_nothing() -> None:
    """No connection is open yet."""
