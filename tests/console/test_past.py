"""A queue with histories shows what has happened in the last hours, also on other servers and before a restart."""

import html
import json
import re
from typing import Any

from app.console.past import LONGEST, past_plot
from app.domain.history import Event, EventCount
from app.domain.instant import HOUR, MINUTE
from app.domain.settlement import Outcome
from tests.console.console_server import ConsoleServer

START = 1000 * HOUR


def points(page: str) -> dict[str, Any]:
    """The points of the plots."""
    found = re.search(r"data-points='([^']*)'", page)
    assert found
    return json.loads(html.unescape(found[1]))


async def test_the_events_of_a_queue_are_plotted_by_minute(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"history": True})
    for body in (1, 2):
        await console.api.send(body=body)
    first, second = await console.api.receive(max_messages=2)
    await console.api.settle(first, "complete")
    await console.api.settle(second, "abandon")
    await console.api.clock.advance(120)
    found = points(await console.page("/queues/orders"))
    assert {name: (sum(counts), len(counts)) for name, counts in found["past"].items()} == {
        "Sent": (2, 3), "Delivered": (2, 3), "Completed": (1, 3), "Failed": (1, 3),
    }  # fmt: skip
    assert found["minutes"][1] - found["minutes"][0] == 60


async def test_a_queue_without_histories_has_no_such_plot(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    page = await console.page("/queues/orders")
    assert "past" not in points(page)
    assert 'data-plot="past"' not in page


def test_minutes_without_events_are_zeros_and_old_ones_are_left_out() -> None:
    counts = [
        EventCount(START - LONGEST, Event.SENT, None, 9),
        EventCount(START - 2 * MINUTE, Event.SENT, None, 1),
        EventCount(START, Event.RELEASED, Outcome.LOCK_EXPIRED, 2),
        EventCount(START, Event.SETTLED, Outcome.DEAD_LETTERED, 3),
        EventCount(START, Event.RENEWED, None, 4),
        EventCount(START, Event.RELEASED, Outcome.RELEASED, 5),
        EventCount(START, Event.RELEASED, Outcome.ENTITY_CHANGED, 6),
        EventCount(START + MINUTE, Event.SENT, None, 9),
    ]
    plot = past_plot(counts, START + MINUTE - 1)
    assert plot is not None
    assert plot["past"] == {"Sent": [1, 0, 0], "Delivered": [0, 0, 0], "Completed": [0, 0, 0], "Failed": [0, 0, 5]}
    assert past_plot([], START) is None


def test_the_longest_plot_begins_with_the_oldest_minute_that_is_shown() -> None:
    plot = past_plot([EventCount(START - LONGEST + MINUTE, Event.SENT, None, 1)], START)
    assert plot is not None
    assert plot["past"]["Sent"] == [1] + [0] * (LONGEST // MINUTE - 1)
