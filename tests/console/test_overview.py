"""The overview shows each queue with its messages and rates, and says which need attention. It is live."""

import asyncio
import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from app.broker.access.sessions import _CACHE_SECONDS
from app.console.activity import EVENT_SERIES, RATE_SAMPLES, SAMPLE_SECONDS, SAMPLES
from app.console.live import MAX_VIEWERS, MAX_VIEWERS_OF_ONE
from app.console.overview import ROWS_OF_A_PART, rendered_parts
from app.domain.access import Right
from app.domain.attention import _MIN_GROWTH
from app.domain.refusals import StoreUnavailable
from tests.console.console_server import ConsoleServer
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import run_ready_tasks

HOSTILE = "<script>alert(1)</script>"


def cells(page: str, queue: str) -> list[str]:
    """The texts of the row of a queue, without its name and its plot."""
    (row,) = re.findall(rf'<tr data-row="{queue}".*?</tr>', page, re.DOTALL)
    return re.findall(r'<td class="number[^"]*">([^<]*)</td>', row)


def names(page: str) -> list[str]:
    """The names of the queues in the order of their rows."""
    return re.findall(r'<tr data-row="([^"]*)"', page)


async def test_a_row_has_the_messages_in_each_state(console: ConsoleServer) -> None:
    api = console.api
    for _ in range(3):
        await api.send(body=1)
    await api.send(body=1, delay_seconds=60)
    locked, dead = await api.receive(max_messages=2)
    await api.settle(dead, "dead-letter", reason="broken")
    assert cells(await console.page(), "orders")[3:9] == ["1", "1", "1", "0", "0", "1"]
    assert locked["state"] == "locked"


async def test_a_row_tells_deferred_messages_from_blocked_ones(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"group_in_flight": 1})
    await console.api.send(body=1)
    (message,) = await console.api.receive()
    await console.api.settle(message, "defer")
    for body in range(4):
        await console.api.send(body=body, group_id="g")
    await console.api.receive()
    assert cells(await console.page(), "orders")[3:9] == ["0", "1", "0", "1", "3", "0"]


async def test_each_end_of_a_delivery_is_counted_as_what_it_is(console: ConsoleServer) -> None:
    api = console.api
    for body in range(6):
        await api.send(body=body)
    for verb in ("complete", "abandon", "dead-letter"):
        (message,) = await api.receive()
        await api.settle(message, verb)
    await api.receive(mode="receive_and_delete")
    await api.receive(lock_seconds=1)
    await api.advance_time(2)
    await api.request_json("POST", "/queues/orders/purge", {"states": ["available"]})
    queue = await api.broker.store.queues.by_name("orders")
    assert queue is not None
    await console.take_sample()
    found = {name: sum(console.activity.of(queue.id).series(name)) for name in EVENT_SERIES}
    assert found == {"sent": 6, "delivered": 5, "completed": 2, "failed": 2, "dead_lettered": 1, "removed": 3}


async def test_a_queue_that_grows_says_how_many_messages_came_and_went(console: ConsoleServer) -> None:
    api = console.api
    await api.send(body=0)
    await console.page()
    for body in range(_MIN_GROWTH + 1):
        await api.send(body=body)
    for message in await api.receive(max_messages=1):
        await api.settle(message, "complete")
    assert f"{_MIN_GROWTH + 2} arrived and 1 left" in await console.page()


async def test_rates_are_those_of_the_last_minute(console: ConsoleServer) -> None:
    api = console.api
    await api.send(body=0)
    await console.page()
    for body in range(12):
        await api.send(body=body)
    (message,) = await api.receive()
    await api.settle(message, "complete")
    for _ in range(RATE_SAMPLES - 1):
        page = await console.page()
    seconds = SAMPLE_SECONDS * RATE_SAMPLES
    assert cells(page, "orders")[:2] == [f"{13 / seconds:.2f}", f"{1 / seconds:.2f}"]
    for _ in range(RATE_SAMPLES):
        page = await console.page()
    assert cells(page, "orders")[:2] == ["–", "–"]


async def test_samples_of_fifteen_minutes_are_kept(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    queue = await console.api.broker.store.queues.by_name("orders")
    assert queue is not None
    for _ in range(SAMPLES + 5):
        await console.sample()
    series = console.activity.of(queue.id).series("waiting")
    assert (len(series), set(series)) == (SAMPLES, {1})
    assert sum(console.activity.of(queue.id).series("sent")) == 0


async def test_events_are_still_counted_for_the_metrics(console: ConsoleServer) -> None:
    counted = console.counted
    console.activity.count_messages(7, "sent", 2)
    console.activity.count("locks_expired")
    assert (counted.messages[7, "sent"], counted["locks_expired"]) == (2, 1)


async def test_a_queue_that_needs_attention_says_why_and_comes_first(console: ConsoleServer) -> None:
    api = console.api
    for queue in ("a", "z"):
        await api.send(queue, body=1)
    await console.page()
    (message,) = await api.receive("z")
    await api.settle(message, "dead-letter", "z", reason="broken")
    page = await console.page()
    assert names(page) == ["z", "a"]
    assert "1 more dead letter in 10 seconds." in page
    assert "1 needs attention" in page


async def test_a_queue_created_since_the_last_sample_counts_as_empty_before(console: ConsoleServer) -> None:
    await console.page()
    await console.api.send("new", body=1)
    (message,) = await console.api.receive("new")
    await console.api.settle(message, "dead-letter", "new", reason="broken")
    assert "1 more dead letter in 5 seconds." in await console.page()
    for _ in range(SAMPLES):
        await console.sample()
    assert "more dead letter" not in await console.page()


async def test_dead_letters_from_before_the_start_of_the_server_are_not_new(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    (message,) = await console.api.receive()
    await console.api.settle(message, "dead-letter", reason="broken")
    console.activity.server = replace(console.server, started_at=console.api.clock.now() + 1)
    assert "more dead letter" not in await console.page()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("?sort=-name", ["c", "b", "a"]),
        ("?sort=-available", ["b", "c", "a"]),
        ("?sort=-in", ["b", "c", "a"]),
        ("?sort=oldest", ["c", "b", "a"]),
        ("?sort=-oldest", ["a", "b", "c"]),
        ("?find=C", ["c"]),
    ],
)
async def test_the_address_says_the_order_and_which_queues(
    console: ConsoleServer, query: str, expected: list[str]
) -> None:
    for queue, messages in (("a", 1), ("b", 3), ("c", 2)):
        for body in range(messages):
            await console.api.send(queue, body=body)
        await console.api.clock.advance(1)
    assert names(await console.page(query)) == expected


@pytest.mark.parametrize(
    "column", ["out", "failed", "available", "locked", "scheduled", "deferred", "blocked", "dead_lettered"]
)
async def test_every_column_sorts_by_its_own_number(console: ConsoleServer, column: str) -> None:
    api = console.api
    for queue in ("a", column, "z"):
        await api.request("PUT", f"/queues/{queue}", {"group_in_flight": 1})
    match column:
        case "available":
            await api.send(column, body=1)
        case "scheduled":
            await api.send(column, body=1, delay_seconds=60)
        case "blocked":
            for _ in range(2):
                await api.send(column, body=1, group_id="g")
        case _:
            await api.send(column, body=1)
    if column not in ("available", "scheduled"):
        (message,) = await api.receive(column)
        verbs = {"out": "complete", "failed": "abandon", "deferred": "defer", "dead_lettered": "dead-letter"}
        if verb := verbs.get(column):
            assert (await api.settle(message, verb, column)).is_success
    assert names(await console.page(f"?sort=-{column}"))[0] == column


async def test_an_unknown_order_and_hostile_text_are_harmless(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    page = await console.page(f"?sort={HOSTILE}&find={HOSTILE}")
    assert HOSTILE not in page
    assert "No queue has" in page


async def test_other_requests_are_served_while_many_rows_are_rendered(console: ConsoleServer) -> None:
    for number in range(2 * ROWS_OF_A_PART + 1):
        await console.api.request("PUT", f"/queues/queue-{number:03d}", {})
    page = await console.page()
    assert page.partition("data-live")[2].count("<tbody>") == 3
    assert names(page) == [f"queue-{number:03d}" for number in range(2 * ROWS_OF_A_PART + 1)]
    served = list[int]()

    async def other() -> None:
        while True:
            served.append(len(served))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert len(await rendered_parts(console.context.summaries.rows(), "")) == 3
    task.cancel()
    assert len(served) == 3


async def test_a_slash_at_the_end_of_the_address_leads_to_the_overview(console: ConsoleServer) -> None:
    for query in ("", "?sort=-name"):
        answer = await console.get(f"/{query}")
        assert (answer.status_code, answer.headers["location"]) == (308, f"/console{query}")


async def test_an_empty_server_says_how_to_begin(console: ConsoleServer) -> None:
    page = await console.page()
    assert "There is no queue yet." in page
    assert "curl -s http://peeklock.test/v1/queues/orders/messages -d" in html.unescape(page)
    assert "X PUT" in await console.page("/topics")


async def test_a_command_to_begin_with_has_the_header_that_the_server_needs(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    for path, commands in (("", 1), ("/topics", 2)):
        page = html.unescape(await console_with_keys.page(path))
        assert page.count('-H "Authorization: Bearer $PEEKLOCK_API_KEY"') == commands


@pytest.mark.parametrize(
    ("rights", "patterns", "sentence"),
    [
        ([Right.SEND], ("*",), "You may not browse any {}. Your key has the right send."),
        ([Right.SEND, Right.LISTEN], ("a",), "You may not browse any {}. Your key has the rights listen, send."),
        ([Right.BROWSE], ("a", "b*"), "There is no {} that you may browse. Your key may browse a b*."),
        ([Right.BROWSE], ("*",), "There is no {} yet."),
    ],
)
async def test_an_empty_list_says_what_the_key_may_not_see(
    console_with_keys: ConsoleServer, rights: list[Right], patterns: tuple[str, ...], sentence: str
) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*rights, patterns=patterns))
    for path, kind in (("", "queue"), ("/topics", "topic"), ("/states", "state")):
        page = await console_with_keys.page(path)
        assert sentence.format(kind) in page
        assert "curl" not in page


async def test_while_the_store_is_away_the_last_figures_stay_and_the_page_says_so(console: ConsoleServer) -> None:
    def is_hidden(page: str) -> bool:
        return re.search(r"data-store-away hidden", page) is not None

    async def away(*_: object) -> None:
        raise StoreUnavailable

    await console.api.send(body=1)
    assert is_hidden(await console.page())
    console.take_queues_away(page=away)
    page = await console.page()
    assert not is_hidden(page)
    assert cells(page, "orders")[3] == "1"


# ---- server-sent events -------------------------------------------------------------------------------------------------


async def live(console: ConsoleServer, receive: Any, send: Any, query: bytes = b"") -> None:
    """Ask for the stream, and answer its messages until it ends."""
    cookies = "; ".join(f"{name}={value}" for name, value in console.http.cookies.items())
    scope = {
        "type": "http", "method": "GET", "path": "/console/live", "query_string": query, "state": {"request_id": "1"},
        "headers": [(b"host", b"peeklock.test"), (b"cookie", cookies.encode())], "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "server": ("peeklock.test", 80), "client": ("127.0.0.1", 1), "root_path": "", "raw_path": b"/console/live",
    }  # fmt: skip
    await console.application(scope, receive, send)


async def events(console: ConsoleServer, wanted: int, between: Any, query: bytes = b"") -> list[dict[str, Any]]:
    """Read this many events of the stream, and call `between` after each."""
    received: list[dict[str, Any]] = []
    sent = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await sent.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        body = message.get("body", b"")
        if body.startswith(b"event: rows"):
            received.append(json.loads(body.partition(b"data: ")[2]))
            await between(len(received))
            if len(received) >= wanted:
                sent.set()

    await live(console, receive, send, query)
    return received


async def test_the_first_event_has_every_row_and_the_others_what_has_changed(console: ConsoleServer) -> None:
    api = console.api
    await api.request("PUT", "/queues/idle", {})
    await api.send("busy", body=1)
    await console.page()

    async def between(number: int) -> None:
        if number == 1:
            await api.send("busy", body=2)
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(console.sample()))

    first, second, *_ = await events(console, 2, between)
    assert (sorted(first["rows"]), first["gone"], first["store"]) == (["busy", "idle"], [], "ok")
    assert sorted(second["rows"]) == ["busy"]


async def test_the_stream_has_the_order_of_the_page_and_says_when_it_changes(console: ConsoleServer) -> None:
    api = console.api
    for queue in ("orders", "orders.eu", "payments"):
        await api.send(queue, body=1)
    await console.page()

    async def between(number: int) -> None:
        if number == 1:
            await api.request("PATCH", "/queues/orders", {"status": "disabled"})
        if number == 2:
            await api.send("orders.eu", body=2)
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(console.sample()))

    seen = await events(console, 3, between, b"sort=-name&find=ORDERS")
    assert [event.get("order") for event in seen] == [["orders.eu", "orders"], None, None]
    assert [event["found"] for event in seen] == ["2 queues"] * 3
    assert [event["attention_count"] for event in seen] == ["", "1 needs attention", "1 needs attention"]
    by_attention = await events(console, 1, between)
    assert by_attention[0]["order"] == ["orders", "orders.eu", "payments"]


async def test_the_stream_has_only_what_a_key_may_browse(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders.eu", "payments"):
        await api.request("POST", f"/queues/{queue}/messages", {"body": 1}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("orders.*",)))
    await console_with_keys.page()

    async def between(_: int) -> None:
        pass

    (event,) = await events(console_with_keys, 1, between)
    assert list(event["rows"]) == ["orders.eu"]
    assert event["totals"]["available"] == "1"


async def test_the_stream_names_a_deleted_queue_once(console: ConsoleServer) -> None:
    for queue in ("kept", "deleted"):
        await console.api.request("PUT", f"/queues/{queue}", {})
    await console.page()

    async def between(number: int) -> None:
        if number == 1:
            await console.api.request("DELETE", "/queues/deleted")
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(console.sample()))

    found = await events(console, 3, between)
    assert [event["gone"] for event in found] == [[], ["deleted"], []]
    assert [sorted(event["rows"]) for event in found] == [["deleted", "kept"], [], []]


async def test_streams_end_when_the_server_stops(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    await console.page()

    async def between(_: int) -> None:
        asyncio.get_running_loop().call_soon(console.activity.close)

    assert len(await events(console, 9, between)) == 1
    assert console.activity.viewers == 0


async def test_a_stream_ends_with_the_key_of_its_session(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    await console_with_keys.sign_in(await api.new_key(*Right))
    await console_with_keys.sample()
    (key,) = await api.broker.store.keys.list_all()

    async def later() -> None:
        await api.clock.advance(_CACHE_SECONDS + 1)
        await console_with_keys.take_sample()

    async def between(number: int) -> None:
        if number == 1:
            await api.broker.store.keys.revoke(key.id)
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(later()))

    assert len(await events(console_with_keys, 2, between)) == 1


async def test_a_stream_ends_within_the_five_seconds_that_the_guide_promises(console_with_keys: ConsoleServer) -> None:
    """Its session was in the cache, and no sample is taken."""
    api = console_with_keys.api
    await console_with_keys.sign_in(await api.new_key(*Right))
    await console_with_keys.sample()
    (key,) = await api.broker.store.keys.list_all()

    revoked = asyncio.Event()

    async def between(_: int) -> None:
        await api.broker.store.keys.revoke(key.id)
        revoked.set()

    streaming = asyncio.ensure_future(events(console_with_keys, 2, between))
    await revoked.wait()
    await run_ready_tasks()
    await api.clock.advance(5)
    async with asyncio.timeout(TIMEOUT_SECONDS):  # the key is read in a thread, and time stands still
        assert len(await streaming) == 1


async def test_a_stream_stays_while_the_store_is_away(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    await console_with_keys.sign_in(await api.new_key(*Right))
    await console_with_keys.sample()

    async def away(*_: object) -> None:
        raise StoreUnavailable

    async def later() -> None:
        await api.clock.advance(_CACHE_SECONDS + 1)
        await console_with_keys.take_sample()

    async def between(number: int) -> None:
        if number == 1:
            console_with_keys.take_queues_away(page=away)
            console_with_keys.take_sessions_away(key_of=away)
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(later()))

    first, second = await events(console_with_keys, 2, between)
    assert (first["store"], second["store"]) == ("ok", "away")


async def test_a_server_has_a_limit_of_open_views(console: ConsoleServer) -> None:
    clock = console.api.clock
    views = [console.activity.viewer(clock) for _ in range(MAX_VIEWERS)]
    for view in views:
        view.__enter__()
    assert (await console.get("/live")).status_code == 429
    views[0].__exit__(None, None, None)
    assert console.activity.viewers == MAX_VIEWERS - 1


async def test_one_principal_leaves_views_to_the_others(console_with_keys: ConsoleServer) -> None:
    activity, api = console_with_keys.activity, console_with_keys.api
    activity.close()  # a stream that is accepted ends at once
    await console_with_keys.sign_in(await api.new_key(Right.SEND, principal="sender"))
    views = [activity.viewer(api.clock, "sender") for _ in range(MAX_VIEWERS_OF_ONE)]
    for view in views:
        view.__enter__()
    assert (await console_with_keys.get("/live")).status_code == 429
    views[0].__exit__(None, None, None)
    assert (await console_with_keys.get("/live")).status_code == 200
    views[0] = activity.viewer(api.clock, "sender")
    views[0].__enter__()
    await console_with_keys.sign_in(await api.new_key(*Right, principal="operator"))
    assert (await console_with_keys.get("/live")).status_code == 200


async def test_requests_at_once_do_not_pass_the_limit_of_open_views(console: ConsoleServer) -> None:
    views = [console.activity.viewer(console.api.clock) for _ in range(MAX_VIEWERS - 1)]
    for view in views:
        view.__enter__()
    statuses, answered = list[int](), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        if len(statuses) == 3:
            answered.set()

    await asyncio.gather(*(live(console, receive, send) for _ in range(3)))
    assert sorted(statuses) == [200, 429, 429]
    assert console.activity.viewers == MAX_VIEWERS - 1
