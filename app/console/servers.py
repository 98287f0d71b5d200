"""The servers of the broker, as the overview lists them, and whether figures are those of all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from app.broker.ports.server_directory import WINDOW_SECONDS, ListedServer
from app.console.activity import Activity
from app.console.formats import format_duration, format_time
from app.domain.instant import SECOND, Duration, from_seconds
from app.domain.plurals import count_of
from app.wire.times import to_wire

LATE = from_seconds(2 * WINDOW_SECONDS)
"""A server that reports in each window is never this late."""

ALONE_NOW = (
    "This server works without Redis now. Rates and plots are those of this server alone, and neither other servers nor paused "
    "consumers are known."
)
ALONE_BEFORE = (
    "This server has worked without Redis within the last 15 minutes. Rates and plots of that time are those of this server "
    "alone."
)
OTHER_VERSION = "This version is not that of the others."


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server. `warning` says what is wrong with it, and is empty if nothing is."""

    id: str
    host: str
    process: int
    version: str
    since: str
    since_text: str
    age: str
    is_this: bool
    warning: str


@dataclass(frozen=True, slots=True)
class ServerList:
    """The servers that run, in one line and each in a row. `warning` counts what is wrong in the rows."""

    line: str
    warning: str
    rows: Sequence[ServerRow]


def scope_note(activity: Activity) -> str:
    """Return the sentence that says which figures are those of this server alone; empty if none is."""
    if activity.servers is None:
        return ALONE_NOW
    return ALONE_BEFORE if activity.is_alone() else ""


def server_list(activity: Activity) -> ServerList:
    """Return the servers that run; none while they are not known."""
    listed = sorted(activity.servers or (), key=lambda one: (one.server.host, one.server.process))
    versions = Counter(one.server.version for one in listed)
    expected = max(versions, key=lambda version: (versions[version], version == activity.server.version), default="")
    rows = [_row(one, activity.server.id, expected) for one in listed]
    late = sum(one.age >= LATE for one in listed)
    warnings = [count_of(len(versions), "version")] * (len(versions) > 1) + [f"{late} without a report"] * bool(late)
    servers = count_of(len(rows), "server")
    if len(versions) == 1:
        servers += f", version {expected}"
    return ServerList(servers, ", ".join(warnings), rows)


def _row(listed: ListedServer, this_id: str, expected: str) -> ServerRow:
    server, age = listed.server, listed.age
    warnings = [OTHER_VERSION] * (server.version != expected)
    if age >= LATE:
        warnings.append(f"No report for {format_duration(age)}.")
    return ServerRow(
        server.id,
        server.host,
        server.process,
        server.version,
        to_wire(server.started_at),
        format_time(server.started_at),
        _age(age),
        server.id == this_id,
        " ".join(warnings),
    )


def _age(age: Duration) -> str:
    return "now" if age < SECOND else f"{format_duration(age)} ago"
