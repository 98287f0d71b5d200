"""Topics are drawn with their filters, queues and forwards, and a test shows which subscriptions copy a message."""

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from app.broker.topics.publish import EVALUATION_BATCH_SIZE
from app.console.topic_picture import Stop, branches
from app.console.topics import PAGE_SIZE, SHOWN_BRANCHES
from app.domain.access import Right
from app.domain.queue import MAX_FORWARDING_HOPS
from app.domain.topic import MAX_EVALUATED_BYTES, Route, Topic
from app.runtime.round_robin_gate import RoundRobinGate
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer

HOSTILE = "</code><script>alert(1)</script>"
PAGE = "/topics/events"


async def subscribe(console: ConsoleServer, name: str, target: str = "", **settings: Any) -> None:
    """Create the topic `events` with a subscription, and the subscription's queue."""
    api = console.api
    await api.request_json("PUT", "/topics/events", {})
    await api.request_json("PUT", f"/queues/{target or name}", {})
    await api.request_json("PUT", f"/topics/events/subscriptions/{name}", {"target_queue": target or name, **settings})


def repeat_subscriptions(console: ConsoleServer, times: int) -> None:
    """Let every topic have each of its subscriptions this many times."""
    broker = console.context.broker
    topics = broker.topics.store

    async def routes(topic: Topic) -> list[Route]:
        return [*await topics.routes(topic)] * times

    changed: Any = ChangedStore(topics, routes=routes)
    console.context = replace(console.context, broker=replace(broker, topics=replace(broker.topics, store=changed)))
    console.application.state.context = console.context


class CountedRoundRobinGate(RoundRobinGate):
    """Counts how often it was entered."""

    entered = 0

    async def enter(self) -> None:
        """See `RoundRobinGate`."""
        self.entered += 1
        await super().enter()


def drawn(page: str) -> dict[str, list[str]]:
    """The names of the boxes of each branch, by its subscription."""
    rows = re.findall(r"<li[ >].*?</li>", page, re.DOTALL)
    names = [re.findall(r'class="name"[^>]*>([^<]*)<', row) for row in rows]
    return {first: others for first, *others in names}


def copied(page: str) -> set[str]:
    """The subscriptions that copy the tested message."""
    rows = re.findall(r"<li[ >].*?</li>", page, re.DOTALL)
    return {re.findall(r'class="name"[^>]*>([^<]*)<', row)[0] for row in rows if "copies this message" in row}


async def test_topics_are_listed_page_by_page(console: ConsoleServer) -> None:
    assert "There is no topic yet." in await console.page("/topics")
    names = [f"topic-{number:03d}" for number in range(PAGE_SIZE + 1)]
    for name in reversed(names):
        await console.api.request_json("PUT", f"/topics/{name}", {"description": f"about <{name}>"})
    first = await console.page("/topics")
    assert re.findall(r'href="/console/topics/([\w-]+)"', first) == names[:-1]
    assert "about &lt;topic-000&gt;" in first
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    last = await console.page(f"/topics{more}")
    assert re.findall(r'href="/console/topics/([\w-]+)"', last) == names[-1:]
    assert 'rel="next"' not in last


async def test_a_topic_in_the_list_has_the_figures_of_its_queues(console: ConsoleServer) -> None:
    await subscribe(console, "all")
    await subscribe(console, "some", filter="message.priority > 3")
    for priority in (1, 9):
        await console.api.request_json("POST", "/topics/events/messages", {"body": 1, "priority": priority})
    (message,) = await console.api.receive("some")
    await console.api.settle(message, "dead-letter", "some", reason="broken")
    await console.api.receive("all")
    page = await console.page("/topics")
    numbers = re.findall(r'<td class="number[^"]*">([^<]*)</td>', page)
    assert numbers == ["2", "0.60", "–", "1", "1", "1", "5 s"]


async def test_figures_of_a_topic_leave_out_queues_that_a_key_may_not_browse(
    console_with_keys: ConsoleServer,
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await subscribe(console_with_keys, "closed", target="private")
    await api.request_json("POST", "/topics/events/messages", {"body": 1})
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("events",)))
    numbers = re.findall(r'<td class="number[^"]*">([^<]*)</td>', await console_with_keys.page("/topics"))
    assert numbers == ["1", "–", "–", "0", "0", "0", "–"]


async def test_the_picture_follows_the_queues_to_those_that_they_forward_to(console: ConsoleServer) -> None:
    api = console.api
    for name in ("problems", "far"):
        await api.request_json("PUT", f"/queues/{name}", {})
    await api.request_json("PUT", "/queues/far", {"forward_dead_letters_to": "problems"})
    await subscribe(console, "near", filter="message.priority > 3")
    await api.request_json("PUT", "/queues/near", {"forward_to": "far"})
    await subscribe(console, "all")
    await api.request_json("POST", "/topics/events/messages", {"body": 1})
    page = await console.page(PAGE)
    assert drawn(page) == {"all": ["all"], "near": ["near", "far", "problems"]}
    assert "<code>message.priority &gt; 3</code>" in page
    assert "every message" in page
    assert page.count("1 waiting") == 2


async def test_the_picture_counts_blocked_messages_among_those_that_wait(console: ConsoleServer) -> None:
    await subscribe(console, "all")
    await console.api.request_json("PUT", "/queues/all", {"group_in_flight": 1})
    for _ in range(3):
        await console.api.request_json("POST", "/topics/events/messages", {"body": 1, "group_id": "g"})
    await console.api.receive("all")
    assert await console.api.counts("all") == {"locked": 1, "blocked": 2}
    assert "2 waiting" in await console.page(PAGE)


async def test_what_lies_behind_a_queue_that_a_key_may_not_browse_is_left_out(
    console_with_keys: ConsoleServer,
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await subscribe(console_with_keys, "open", target="events.open")
    await subscribe(console_with_keys, "closed", target="private")
    await api.request_json("PUT", "/queues/private", {"forward_to": "events.open"})
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("events", "events.*")))
    page = await console_with_keys.page(PAGE)
    assert drawn(page) == {"open": ["events.open"], "closed": ["private"]}
    assert "/console/queues/private" not in page
    assert (await console_with_keys.get("/topics/others")).status_code == 403


async def test_the_picture_of_queues_that_forward_in_a_circle_ends(console: ConsoleServer) -> None:
    await subscribe(console, "all")
    await console.sample()
    (listed,) = console.activity.queues
    circle = replace(listed.queue, settings=replace(listed.queue.settings, forward_to="all"))
    topic = await console.api.broker.store.topics.find("events")
    assert topic is not None
    routes = await console.api.broker.store.topics.routes(topic)
    (branch,) = branches(routes, {"all": replace(listed, queue=circle)}, lambda _: True)
    assert branch.stops == [Stop("all", 0, 0)] * (MAX_FORWARDING_HOPS + 1)


async def test_a_test_shows_which_subscriptions_copy_a_message(console: ConsoleServer) -> None:
    await subscribe(console, "eu", filter="message.properties.region == 'eu'")
    await subscribe(console, "urgent", filter="message.priority > 7")
    await subscribe(console, "all")
    fields = {"properties": '{"region": "eu"}', "priority": "3"}
    response = await console.post(f"{PAGE}/test", PAGE, **fields, filter="message.subject == 'x'")
    assert copied(response.text) == {"eu", "all"}
    assert "2 of 3 subscriptions would copy this message." in response.text
    assert "The filter below does not match it." in response.text
    response = await console.post(f"{PAGE}/test", PAGE, priority="9", subject="x", filter="message.subject == 'x'")
    assert copied(response.text) == {"urgent", "all"}
    assert "The filter below matches it." in response.text
    assert await console.api.counts("all") == {}


async def test_a_test_reads_the_body_that_was_typed(console: ConsoleServer) -> None:
    await subscribe(console, "large", filter="message.body.total > 10")
    response = await console.post(f"{PAGE}/test", PAGE, body='{"total": 17}', filter="message.body.total < 10")
    assert copied(response.text) == {"large"}
    assert "The filter below does not match it." in response.text
    assert "{&#34;total&#34;: 17}</textarea>" in response.text
    response = await console.post(f"{PAGE}/test", PAGE, body="total")
    assert (response.status_code, "This is not valid JSON" in response.text) == (422, True)


async def test_a_test_that_would_take_too_long_is_refused_and_what_was_typed_stays(console: ConsoleServer) -> None:
    await subscribe(console, "all")
    text = "x" * 1000
    repeat_subscriptions(console, MAX_EVALUATED_BYTES // len(text))
    response = await console.post(f"{PAGE}/test", PAGE, properties=json.dumps({"text": text}))
    assert response.status_code == 422
    assert "filters of the subscriptions would be evaluated more than" in response.text
    assert text in response.text
    assert copied(response.text) == set()


async def test_a_body_counts_for_the_filters_of_a_test_that_read_it(console: ConsoleServer) -> None:
    await subscribe(console, "all", filter="message.body.text == 'y'")
    body = json.dumps({"text": "x" * 1000})
    repeat_subscriptions(console, MAX_EVALUATED_BYTES // 1000)
    response = await console.post(f"{PAGE}/test", PAGE, body=body)
    assert (response.status_code, "bytes of properties and bodies" in response.text) == (422, True)


async def test_a_test_of_many_filters_shares_the_time_of_publishes(console: ConsoleServer) -> None:
    await subscribe(console, "all")
    repeat_subscriptions(console, 3 * EVALUATION_BATCH_SIZE)
    broker, gate = console.context.broker, CountedRoundRobinGate()
    changed = replace(broker, topics=replace(broker.topics, gate=gate))
    console.application.state.context = replace(console.context, broker=changed)
    assert (await console.post(f"{PAGE}/test", PAGE)).status_code == 200
    assert gate.entered == 3


@pytest.mark.parametrize(
    ("field", "text", "fault"),
    [
        ("filter", "message.delivery_count > 1", "evaluated before a message is stored"),
        ("filter", HOSTILE, "fault-filter"),
        ("properties", "{", "This is not valid JSON"),
        ("priority", "10", "fault-priority"),
    ],
)
async def test_a_fault_of_the_test_is_shown_at_its_field(
    console: ConsoleServer, field: str, text: str, fault: str
) -> None:
    await subscribe(console, "all")
    response = await console.post(f"{PAGE}/test", PAGE, subject="kept", **{field: text})
    assert response.status_code == 422
    assert fault in response.text
    assert 'value="kept"' in response.text
    assert HOSTILE not in response.text
    assert html.escape(text, quote=False).partition("&")[0] in response.text


async def test_a_picture_has_a_bounded_number_of_subscriptions(console: ConsoleServer) -> None:
    names = [f"one-{number:03d}" for number in range(SHOWN_BRANCHES + 1)]
    for name in names:
        await subscribe(console, name)
    page = await console.page(PAGE)
    assert list(drawn(page)) == names[:-1]
    assert f"The first {SHOWN_BRANCHES} are shown" in page
    assert list(drawn(await console.page(f"{PAGE}?find={names[-1].upper()}"))) == names[-1:]
    assert "No subscription has" in await console.page(f"{PAGE}?find=four")


async def test_a_topic_without_subscriptions_says_that_its_messages_go_nowhere(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/events", {})
    assert "its messages go nowhere" in await console.page(PAGE)
    assert (await console.get("/topics/lost")).status_code == 404


@pytest.mark.parametrize(
    ("right", "pattern", "seen"),
    [
        (Right.BROWSE, "shop.*", ["shop.orders"]),
        (Right.BROWSE, "*", ["private", "shop.orders"]),
        (Right.SEND, "*", []),
        (Right.LISTEN, "*", []),
        (Right.MANAGE, "*", []),
    ],
)
async def test_the_list_has_what_a_key_may_browse(
    console_with_keys: ConsoleServer, right: Right, pattern: str, seen: list[str]
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    for name in ("shop.orders", "private"):
        await api.request("PUT", f"/topics/{name}", {})
    await console_with_keys.sign_in(await api.new_key(right, patterns=(pattern,)))
    assert re.findall(r'href="/console/topics/([^"]+)"', await console_with_keys.page("/topics")) == seen
