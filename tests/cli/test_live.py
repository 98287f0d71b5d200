"""`peeklock watch` and `peeklock top` at a real server."""

from __future__ import annotations

from typing import Any

from app.cli.live import _top_row
from tests.cli.conftest import CommandLine

QUICKLY = ("--interval", "0.1")


def test_a_queue_is_watched_line_by_line(command_line: CommandLine) -> None:
    command_line.run_ok("send", "watched", "--lines", stdin=b"a\nb\n")
    heading, *lines = command_line.run_ok("watch", "watched", "--count", "2", *QUICKLY).splitlines()
    column = heading.split().index("available")
    assert [line.split()[column] for line in lines] == ["2", "2"]
    (reading,) = command_line.read_json("watch", "watched", "--count", "1")
    assert (reading["available"], reading["locked"]) == (2, 0)
    assert command_line.run_refused("watch", "unknown", "-o", "json").startswith('{"')


def test_the_fullest_queues_are_at_the_top(command_line: CommandLine) -> None:
    command_line.run_ok("send", "fuller", "--lines", stdin=b"x\n" * 9)
    command_line.run_ok("send", "emptier", "x")
    heading, *rows = command_line.run_ok("top", "--count", "1").splitlines()
    names = [row.split()[0] for row in rows]
    assert heading.split()[:3] == ["queue", "status", "change"]
    assert names.index("fuller") < names.index("emptier")
    assert len(command_line.run_ok("top", "--count", "1", "--limit", "1").splitlines()) == 2
    _, *rows = command_line.run_ok("top", "--count", "1", "--sort", "dead_lettered").splitlines()
    assert [row.split()[0] for row in rows] == sorted(names), "no queue has more than another, so names decide"
    first, second = command_line.read_json("top", "--count", "2", "--limit", "1", *QUICKLY)
    assert [queue["queue"] for queue in first["queues"]] == ["fuller"]
    assert second["queues"][0]["change"] == 0
    assert command_line.run("top", "--sort", "colour").returncode == 2


def status(name: str, available: int, locked: int = 0) -> dict[str, Any]:
    counts = {"available": available, "locked": locked}
    return {"name": name, "status": "active", "counts": counts, "oldest_available_seconds": None}


def test_a_change_is_counted_since_the_last_reading_of_a_queue() -> None:
    before: dict[str, int] = {}
    readings = [("orders", 5), ("bills", 1), ("orders", 8), ("orders", 6, 2), ("orders", 0, 2), ("bills", 1)]
    changes = [_top_row(status(*reading), before)["change"] for reading in readings]
    assert changes == [0, 0, 3, 0, -6, 0]
