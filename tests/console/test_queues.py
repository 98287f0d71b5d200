"""The page of a queue shows what it holds, why it stands still and who holds its messages; it pauses and resumes the queue."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from app.console.activity import SAMPLE_SECONDS
from app.console.groups import MAX_GROUPS
from app.console.queues import MAX_LOCKED
from app.domain.access import Right
from app.domain.instant import SECOND
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer, token_of


def totals(page: str) -> dict[str, str]:
    """The numbers above the plots, by their labels."""
    return dict(re.findall(r"<dt>([^<]*)</dt><dd[^>]*>([^<]*)</dd>", page))


async def test_the_page_has_the_messages_in_each_state(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    await console.api.send(body=2, delay_seconds=60)
    found = totals(await console.page("/queues/orders"))
    assert (found["Available"], found["Scheduled"], found["Locked"], found["Oldest"]) == ("1", "1", "0", "5 s")


async def test_the_page_explains_why_the_queue_stands_still(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    explained = await console.api.request_json("GET", "/queues/orders/explain")
    page = await console.page("/queues/orders")
    assert explained["text"].partition(" ")[0] in page
    assert re.search(r'class="explanation"[^>]*>[^<]{20,}<', page)


async def test_a_locked_message_has_its_receiver_and_the_time_left(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    await console.api.receive(receiver_id="<b>worker</b>", lock_seconds=60)
    page = await console.page("/queues/orders")
    assert "&lt;b&gt;worker&lt;/b&gt;" in page
    assert "<b>worker</b>" not in page
    assert f"{60 - SAMPLE_SECONDS:.0f} s" in page


async def test_the_plots_have_the_events_of_each_sample(console: ConsoleServer) -> None:
    await console.api.send(body=0)
    await console.page()
    for body in range(10):
        await console.api.send(body=body)
    await console.page()
    plots = (await console.get("/queues/orders/plots")).json()
    assert plots["events"]["Sent"][-1] == 10 / SAMPLE_SECONDS
    assert plots["times"][-1] == round(console.api.clock.now() / SECOND, 1)
    assert plots["depth"]["Waiting"] == [1, 11]
    assert plots["times"][1] - plots["times"][0] == SAMPLE_SECONDS


async def test_the_plots_tell_completed_deliveries_from_failed_ones(console: ConsoleServer) -> None:
    for body in range(4):
        await console.api.send(body=body)
    for verb in ("complete", "abandon", "abandon", "dead-letter"):
        (message,) = await console.api.receive()
        await console.api.settle(message, verb)
    await console.page()
    found = (await console.get("/queues/orders/plots")).json()["events"]
    assert {name: counts[-1] * SAMPLE_SECONDS for name, counts in found.items()} == {
        "Sent": 4, "Delivered": 4, "Completed": 1, "Failed": 2,
    }  # fmt: skip


async def test_the_locked_messages_are_those_of_a_time_and_at_most_a_number(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    assert "No message was locked at <time" in await console.page("/queues/orders")
    await console.api.send(body=1)
    await console.api.request_json("POST", "/queues/orders/messages/receive", {})
    page = await console.page("/queues/orders")
    assert "These messages were locked at <time" in page
    assert f"At most {MAX_LOCKED} messages are shown." in page


async def test_a_blocked_message_that_ends_during_the_look_stands_behind_none(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"group_in_flight": 1})
    for _ in range(2):
        await console.api.send(body=1, group_id="g")
    await console.api.receive()
    broker = console.context.broker

    async def nothing(*_: object) -> None:
        return None

    store: Any = ChangedStore(broker.store, read_facts=nothing, read_end=nothing)
    changed = replace(broker, administration=replace(broker.administration, store=store))
    console.application.state.context = replace(console.context, broker=changed)
    page = await console.page("/queues/orders")
    (group,) = re.findall(r'<th scope="row" class="wrap">(.*?)</tr>', page, re.DOTALL)
    assert group.startswith("g")
    assert 'class="tag"' not in group


async def test_blocked_groups_name_the_message_that_they_stand_behind(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"group_in_flight": 1})
    for group_id in ("<b>a</b>", "<b>a</b>", "<b>a</b>", "alone"):
        await console.api.send(body=1, group_id=group_id)
    await console.api.receive()
    page = await console.page("/queues/orders")
    (group,) = re.findall(r'<th scope="row" class="wrap">(.*?)</tr>', page, re.DOTALL)
    assert group.startswith("&lt;b&gt;a&lt;/b&gt;")
    assert re.findall(r">(\w+)</(?:td|a|span)>", group) == ["2", "2", "1", "locked"]


async def test_the_first_blocked_groups_are_on_the_page(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"group_in_flight": 1})
    for number in range(MAX_GROUPS + 1):
        for _ in range(2):
            await console.api.send(body=1, group_id=f"group-{number:02d}")
    await console.api.receive(max_messages=MAX_GROUPS + 1)
    page = await console.page("/queues/orders")
    groups = re.findall(r'<th scope="row" class="wrap">(group-\d+)', page)
    assert groups == [f"group-{number:02d}" for number in range(MAX_GROUPS)]


async def test_receivers_that_wait_here_are_counted(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    assert "No receiver waits for a message" in await console.page("/queues/orders")
    waiting = asyncio.ensure_future(console.api.receive(wait_seconds=20))
    await console.api.clock.advance(1)
    assert "1 receiver waits for a message" in await console.page("/queues/orders")
    await console.api.clock.advance(20)
    assert await waiting == []


async def test_the_plots_have_the_average_times_of_deliveries(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    await console.api.send(body=2)
    await console.api.clock.advance(3)
    first, second = await console.api.receive(max_messages=2)
    await console.page()
    await console.api.settle(first, "complete")
    await console.api.clock.advance(4)
    await console.api.settle(second, "abandon")
    await console.page()
    seconds = (await console.get("/queues/orders/plots")).json()["seconds"]
    assert seconds == {"Waiting for a receiver": [3, None], "With a receiver": [None, SAMPLE_SECONDS + 2]}


async def test_a_status_that_another_person_has_changed_stays(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"status": "send_disabled"})
    response = await console.post("/queues/orders/status", "/queues/orders", status="receive_disabled", seen="active")
    assert response.status_code == 409
    assert "The status of this queue has changed" in response.text
    assert (await console.api.request_json("GET", "/queues/orders"))["status"] == "send_disabled"
    assert 'name="seen" value="send_disabled"' in await console.page("/queues/orders")


async def test_a_change_of_the_status_that_is_sent_twice_is_made_once(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {})
    for _ in range(2):
        response = await console.post("/queues/orders/status", "/queues/orders", status="disabled", seen="active")
        assert response.status_code == 303


@pytest.mark.parametrize("fields", [{"status": "<b>", "seen": "active"}, {"status": "active"}, {}])
async def test_an_unknown_status_is_refused(console: ConsoleServer, fields: dict[str, str]) -> None:
    await console.api.request("PUT", "/queues/orders", {})
    assert (await console.post("/queues/orders/status", "/queues/orders", **fields)).status_code == 422


@pytest.mark.parametrize("status", ["receive_disabled", "send_disabled", "disabled", "active"])
async def test_sends_and_receives_are_paused_and_resumed(console: ConsoleServer, status: str) -> None:
    await console.api.send(body=1)
    response = await console.post("/queues/orders/status", "/queues/orders", status=status, seen="active")
    assert (response.status_code, response.headers["location"]) == (303, "/console/queues/orders")
    assert (await console.api.request_json("GET", "/queues/orders"))["status"] == status
    page = await console.page("/queues/orders")
    assert ("Resume receives" in page) == (status in ("receive_disabled", "disabled"))
    assert ("Resume sends" in page) == (status in ("send_disabled", "disabled"))


async def test_an_unknown_queue_is_not_found(console: ConsoleServer) -> None:
    response = await console.get("/queues/unknown")
    assert response.status_code == 404
    assert "unknown" in response.text


async def test_what_a_key_may_not_do_is_not_offered_and_refused(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders", "payments"):
        await api.request("PUT", f"/queues/{queue}", {}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("orders",)))
    page = await console_with_keys.page("/queues/orders")
    assert "Pause receives" not in page
    fields = {"csrf_token": token_of(page), "status": "disabled", "seen": "active"}
    for queue in ("orders", "payments"):
        response = await console_with_keys.http.post(f"/console/queues/{queue}/status", data=fields)
        assert response.status_code == 403
    assert (await console_with_keys.get("/queues/payments")).status_code == 403
    assert (await api.request_json("GET", "/queues/orders", headers=everything))["status"] == "active"
