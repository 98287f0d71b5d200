"""Rates and plots are those of all servers, as far as their directory answers. The overview lists the servers."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from app import __version__
from app.broker.ports.server_directory import MAX_WINDOWS, AllReports, ListedServer
from app.console.activity import MAX_QUEUES, RATE_SAMPLES, SAMPLE_SECONDS, SAMPLES
from app.console.servers import LATE
from app.domain.access import Right
from app.domain.instant import SECOND
from app.domain.refusals import StoreUnavailable
from tests.console.console_server import ConsoleServer
from tests.console.shared_directory import Directory, other
from tests.console.test_overview import HOSTILE, cells, events

ALONE_NOW, ALONE_BEFORE = "This server works without Redis now.", "This server has worked without Redis"


@pytest.fixture
async def queue_id(console: ConsoleServer) -> int:
    """The id of the queue `orders`, in which nothing has happened."""
    await console.api.request("PUT", "/queues/orders", {})
    queue = await console.api.broker.store.queues.by_name("orders")
    assert queue is not None
    return queue.id


# ---- rates and plots -------------------------------------------------------------------------------------------------


async def test_rates_are_the_sums_of_all_servers(console: ConsoleServer, directory: Directory, queue_id: int) -> None:
    directory.add_windows({queue_id: {"sent": 600, "completed": 300, "failed": 60}})
    for _ in range(RATE_SAMPLES):
        page = await console.page()
    assert cells(page, "orders")[:3] == ["120", "60", "12"]
    assert ALONE_NOW not in page
    assert ALONE_BEFORE not in page


async def test_what_happens_here_is_handed_over_once(
    console: ConsoleServer, directory: Directory, queue_id: int
) -> None:
    await console.api.send(body=1)
    (message,) = await console.api.receive()
    await console.api.clock.advance(2)
    await console.api.settle(message, "complete")
    await console.sample()
    await console.sample()
    first, second = directory.reported
    assert first == (
        console.server,
        {
            queue_id: {
                "sent": 1,
                "delivered": 1,
                "completed": 1,
                "waiting_times": 1,
                "waiting_micros": 0,
                "processing_times": 1,
                "processing_micros": 2 * SECOND,
            },
        },
    )
    assert second == (console.server, {})


async def test_each_window_is_a_sample(console: ConsoleServer, directory: Directory, queue_id: int) -> None:
    for windows in ([{}, {queue_id: {"sent": 1}}], [], [{queue_id: {"sent": 2}}]):
        directory.add_windows(*windows)
        await console.sample()
    assert list(console.activity.of(queue_id).series("sent")) == [0, 1, 2]


async def test_average_times_are_those_of_all_servers(
    console: ConsoleServer, directory: Directory, queue_id: int
) -> None:
    directory.add_windows({queue_id: {"waiting_times": 4, "waiting_micros": 6 * SECOND}})
    await console.sample()
    activity = console.activity.of(queue_id)
    assert (activity.seconds("waiting"), activity.seconds("processing")) == ([1.5], [None])


async def test_while_the_store_is_away_the_newest_windows_are_kept(
    console: ConsoleServer, directory: Directory, queue_id: int
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable

    await console.sample()
    statistics = console.context.statistics
    console.take_queues_away(page=away)
    for number in range(1, MAX_WINDOWS + 2):
        directory.add_windows({queue_id: {"sent": number}})
        await console.sample()
    console.context = replace(console.context, statistics=statistics)
    directory.add_windows()
    await console.sample()
    assert list(console.activity.of(queue_id).series("sent")) == list(range(2, MAX_WINDOWS + 2))


async def test_without_an_answer_the_page_has_what_happened_here_and_says_so(
    console: ConsoleServer, directory: Directory, queue_id: int
) -> None:
    directory.answer = None
    await console.api.send(body=1)
    await console.sample()
    assert list(console.activity.of(queue_id).series("sent")) == [1]
    for path in ("", "/queues/orders", "/topics"):
        assert ALONE_NOW in await console.page(path), path
    assert ALONE_NOW in (await console.get("/queues/orders/plots")).json()["scope"]
    directory.add_windows({})
    assert ALONE_BEFORE in await console.page()
    for _ in range(SAMPLES):
        page = await console.page()
    assert ALONE_BEFORE not in page


async def test_a_report_has_the_queues_that_are_kept_if_events_are_in_more(
    console: ConsoleServer, directory: Directory, queue_id: int
) -> None:
    await console.sample()
    for number in range(MAX_QUEUES + 1):
        console.activity.count_messages(queue_id + number, "sent")
    await console.sample()
    assert directory.reported[-1] == (console.server, {queue_id: {"sent": 1}})


async def test_the_next_sample_is_taken_when_the_directory_wants_the_next_report(
    console: ConsoleServer, directory: Directory
) -> None:
    directory.answer = AllReports((), (), 3.5)
    assert await console.activity.sample(console.context.statistics, directory) == 3.5
    directory.answer = None
    assert await console.activity.sample(console.context.statistics, directory) == SAMPLE_SECONDS


async def test_a_server_that_stops_hands_over_its_last_events(
    console: ConsoleServer, directory: Directory, queue_id: int
) -> None:
    await console.api.send(body=1)
    await console.activity.leave(directory)
    assert directory.left == [(console.server, {queue_id: {"sent": 1}})]


# ---- the list --------------------------------------------------------------------------------------------------------


def server_rows(page: str) -> dict[str, str]:
    """The texts of the rows of servers, by host."""
    (box,) = re.findall(r"<details class=\"servers\".*?</table>", page, re.DOTALL)
    rows = re.findall(r"<tr data-server=.*?</tr>", box, re.DOTALL)
    texts = [" ".join(re.sub(r"<span[^>]*hidden>[^<]*</span>|<[^>]+>", " ", row).split()) for row in rows]
    return {text.partition(" ")[0]: text for text in texts}


def line(page: str) -> str:
    """The line above the rows, with its warning."""
    (summary,) = re.findall(r"<summary>(.*?)</summary>", page, re.DOTALL)
    return " ".join(re.sub(r"<span[^>]*hidden>[^<]*</span>|<[^>]+>", " ", summary).split())


async def test_a_single_server_is_listed(console: ConsoleServer) -> None:
    page = await console.page()
    assert line(page) == f"1 server, version {__version__}"
    (row,) = server_rows(page).values()
    assert re.fullmatch(rf"web-1 process 17 this server {__version__} [\d: -]+ UTC now", row)


async def test_servers_are_listed_with_version_start_and_last_report(
    console: ConsoleServer, directory: Directory
) -> None:
    directory.list_servers(other(console, "web-2", age=3 * SECOND), ListedServer(console.server, 0))
    page = await console.page()
    assert line(page) == f"2 servers, version {__version__}"
    rows = server_rows(page)
    assert list(rows) == ["web-1", "web-2"]
    assert "this server" in rows["web-1"]
    assert "this server" not in rows["web-2"]
    assert rows["web-2"].endswith("UTC 3 s ago")


async def test_a_server_of_another_version_is_named(console: ConsoleServer, directory: Directory) -> None:
    directory.list_servers(
        ListedServer(console.server, 0), other(console, "web-2", version="0.1"), other(console, "web-3")
    )
    page = await console.page()
    assert line(page) == "3 servers 2 versions"
    assert [name for name, row in server_rows(page).items() if "is not that of the others" in row] == ["web-2"]


async def test_a_server_without_a_report_is_named(console: ConsoleServer, directory: Directory) -> None:
    directory.list_servers(ListedServer(console.server, 9 * SECOND), other(console, "web-2", age=12 * SECOND))
    page = await console.page()
    assert line(page) == f"2 servers, version {__version__} 1 without a report"
    assert [name for name, row in server_rows(page).items() if "No report for 12 s." in row] == ["web-2"]


@pytest.mark.parametrize(("age", "is_late"), [(LATE - 1, False), (LATE, True)])
async def test_a_server_is_late_after_two_windows(
    console: ConsoleServer, directory: Directory, age: int, is_late: bool
) -> None:
    directory.list_servers(ListedServer(console.server, 0), other(console, "web-2", age=age))
    page = await console.page()
    assert ("1 without a report" in line(page), "No report for" in server_rows(page)["web-2"]) == (is_late, is_late)


async def test_of_two_versions_that_of_this_server_is_expected(console: ConsoleServer, directory: Directory) -> None:
    directory.list_servers(other(console, "web-0", version="0.1"), ListedServer(console.server, 0))
    rows = server_rows(await console.page())
    assert [name for name, row in rows.items() if "is not that of the others" in row] == ["web-0"]


async def test_processes_of_a_host_are_listed_in_order(console: ConsoleServer, directory: Directory) -> None:
    later = replace(console.server, id="later", process=18)
    directory.list_servers(ListedServer(later, 0), ListedServer(console.server, 0))
    assert re.findall(r'<tr data-server="([^"]+)"', await console.page()) == ["this", "later"]


async def test_while_no_server_is_known_none_is_listed(console: ConsoleServer, directory: Directory) -> None:
    directory.answer = None
    page = await console.page()
    assert '<details class="servers" data-servers hidden>' in page
    assert server_rows(page) == {}


async def test_what_other_servers_say_of_themselves_stays_text(console: ConsoleServer, directory: Directory) -> None:
    directory.list_servers(other(console, HOSTILE, version=HOSTILE))
    assert HOSTILE not in await console.page()


async def test_the_stream_keeps_the_list_up_to_date(console: ConsoleServer, directory: Directory) -> None:
    await console.api.send(body=1)
    await console.page()

    async def between(number: int) -> None:
        if number == 1:
            directory.list_servers(other(console, "web-2"))
        if number == 2:
            directory.answer = None
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(console.sample()))

    first, second, third = await events(console, 3, between)
    assert first["servers"]["rows"] == []
    assert [(row["host"], row["process"], row["is_this"]) for row in second["servers"]["rows"]] == [
        ("web-2", 18, False)
    ]
    assert second["scope"] == ""
    assert (third["servers"]["rows"], third["scope"].startswith(ALONE_NOW)) == ([], True)


async def test_a_key_of_few_rights_sees_the_servers_as_it_sees_the_state_of_the_store(
    console_with_keys: ConsoleServer,
) -> None:
    api_key: Any = await console_with_keys.api.new_key(Right.BROWSE)
    await console_with_keys.sign_in(api_key)
    assert list(server_rows(await console_with_keys.page())) == ["web-1"]
