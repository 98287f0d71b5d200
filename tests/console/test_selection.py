"""The selected messages of a list are redriven, resubmitted or purged as a plan shows, and the others stay."""

import dataclasses
import html
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from msgspec import structs

from app.broker.administration.browse import read_named
from app.broker.administration.dead_letter_groups import dead_since
from app.broker.administration.queues import reload_queue
from app.console.plan_digest import plan_digest
from app.console.results import NOTHING_SELECTED
from app.console.selection import MAX_SELECTED, OUTDATED, TOO_MANY
from app.domain.access import Right
from app.domain.message import MessageState
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer, token_of
from tests.console.test_dead_letters import DEAD, dead_letter
from tests.walks import for_each

SELECTED = "/queues/orders/selected"
ACTIONS = {"redrive": "redriven", "resubmit": "resubmitted", "purge": "purged"}


def address(action: str, *numbers: object, **fields: str) -> str:
    """The address of a plan."""
    return f"{SELECTED}?{urlencode([('action_name', action), *fields.items(), *(('number', number) for number in numbers)])}"


async def form_of(console: ConsoleServer, path: str) -> dict[str, Any]:
    """The fields of the form that carries the plan out."""
    page = await console.page(path)
    (form,) = re.findall(r'<form class="start"[^>]*>.*?</form>', page, re.DOTALL)
    fields: dict[str, Any] = {"number": re.findall(r'name="number" value="(\d+)"', form)}
    found = re.findall(r'name="(\w+)" value="([^"]*)"', form)
    return {name: html.unescape(value) for name, value in found if name != "number"} | fields


async def confirm(console: ConsoleServer, fields: dict[str, Any]) -> httpx.Response:
    """Send the form of a plan."""
    return await console.http.post(f"/console{SELECTED}", data=fields)


async def dead_numbers(console: ConsoleServer) -> list[int]:
    """The numbers of the dead letters."""
    found = await console.api.request_json("GET", "/queues/orders/messages?state=dead_lettered")
    return [message["sequence_number"] for message in found["items"]]


# ---- what is done ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
async def test_the_selected_are_changed_and_the_unselected_stay(console: ConsoleServer, action: str) -> None:
    await dead_letter(console, *"abcd", subject="order")
    page = await console.page(address(action, 2, 4))
    assert f"2 messages with 6 B will be {ACTIONS[action]}." in page
    response = await confirm(console, await form_of(console, address(action, 2, 4)))
    assert response.status_code == 303
    assert await dead_numbers(console) == [1, 3]
    assert await console.api.counts() == {"dead_lettered": 2} | ({} if action == "purge" else {"available": 2})
    listed = await console.page(response.headers["location"].removeprefix("/console"))
    assert f"2 messages were {ACTIONS[action]}." in listed


async def test_a_redriven_message_keeps_its_number_and_a_resubmitted_one_gets_another(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b", subject="order", properties={"n": 1}, priority=7, message_id="id")
    await confirm(console, await form_of(console, address("redrive", 1)))
    await confirm(console, await form_of(console, address("resubmit", 2)))
    first, second = await console.api.receive(max_messages=10)
    assert (first["sequence_number"], first["message_id"], first["failure_count"]) == (1, "id", 0)
    assert (second["sequence_number"], second["message_id"] != "id") == (3, True)
    kept = ("body", "subject", "properties", "priority")
    assert [second[name] for name in kept] == ["b", "order", {"n": 1}, 7]


async def test_a_message_that_is_selected_twice_is_one(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    page = await console.page(address("resubmit", 1, 1))
    assert "<h2>Resubmit 1 message</h2>" in page
    assert page.count('name="number" value="1"') == 1


async def test_a_purge_of_the_selected_is_undone(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    response = await confirm(console, await form_of(console, address("purge", 1)))
    page = await console.page(response.headers["location"].removeprefix("/console"))
    (undo,) = re.findall(r'1 message was purged. <a href="/console([^"]*)">Undo', page)
    assert "1 message with" in await console.page(html.unescape(undo))


async def test_messages_in_any_unlocked_state_are_purged(console: ConsoleServer) -> None:
    await dead_letter(console, "a")
    await console.api.send(body="available")
    await console.api.send(body="later", delay_seconds=60)
    await console.api.send(body="kept", delay_seconds=60)
    response = await confirm(console, await form_of(console, address("purge", 1, 2, 3, list="messages")))
    assert response.headers["location"].startswith("/console/queues/orders/messages?action_name=purge&done=3")
    assert await console.api.counts() == {"scheduled": 1}


async def test_what_is_no_dead_letter_any_more_is_not_purged_from_their_list(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    await confirm(console, await form_of(console, address("redrive", 1)))
    assert "is available: only dead letters are purged" in await console.page(address("purge", 1, 2))
    await confirm(console, await form_of(console, address("purge", 1, 2)))
    assert await console.api.counts() == {"available": 1}


async def test_the_list_keeps_its_filter_and_its_states(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    chosen = {"list": "messages", "filter": "message.priority < 9", "state": "dead_lettered"}
    page = await console.page(f"/queues/orders/messages?{urlencode(chosen)}")
    form = page.partition("data-selection")[2].partition("</form>")[0]
    sent = {
        name: html.unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    }
    assert sent == chosen
    response = await confirm(console, await form_of(console, address("redrive", 1, **chosen)))
    back = httpx.URL(response.headers["location"])
    assert back.path == "/console/queues/orders/messages"
    assert (back.params["filter"], back.params["state"]) == (chosen["filter"], "dead_lettered")


async def test_the_page_of_a_dead_letter_redrives_it_first(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    page = await console.page("/queues/orders/messages/1")
    assert re.findall(r"<(?:button|a)[^>]*>(Redrive|Edit and resubmit|Edit|Cancel)<", page)[0] == "Redrive"
    (form,) = re.findall(r'<form class="first".*?</form>', page, re.DOTALL)
    response = await confirm(console, dict(re.findall(r'name="(\w+)" value="([^"]*)"', form)))
    assert response.headers["location"] == "/console/queues/orders/messages/1"
    assert await console.api.counts() == {"available": 1, "dead_lettered": 1}
    assert 'class="first"' not in await console.page("/queues/orders/messages/1")


# ---- the plan ------------------------------------------------------------------------------------------------------------


async def test_a_plan_says_which_messages_stay_and_why(console: ConsoleServer) -> None:
    await console.api.send(body="locked")
    await console.api.receive()
    await dead_letter(console, "a")
    await console.api.send(body="available")
    page = await console.page(address("redrive", 1, 2, 3, 99))
    assert "1 message with 3 B will be redriven. 3 messages stay as before." in page
    stay = re.findall(r">Message (\d+)</a> ([^<]*)\.</li>", page)
    assert stay == [
        ("1", "is locked: a receiver holds it"),
        ("3", "is available: only dead letters are redriven"),
        ("99", "has left the queue"),
    ]
    await confirm(console, await form_of(console, address("redrive", 1, 2, 3, 99)))
    assert await console.api.counts() == {"locked": 1, "available": 2}


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_outdated_plan_does_nothing_and_is_made_again(console: ConsoleServer, action: str) -> None:
    await dead_letter(console, "a", "b")
    fields = await form_of(console, address(action, 1, 2))
    await confirm(console, await form_of(console, address("redrive", 1)))
    response = await confirm(console, fields)
    assert (response.status_code, OUTDATED in response.text) == (409, True)
    assert await dead_numbers(console) == [2]
    (digest,) = re.findall(r'name="plan" value="(\w+)"', response.text)
    assert (await confirm(console, {**fields, "plan": digest})).status_code == 303
    assert await dead_numbers(console) == []


async def test_a_form_that_is_sent_twice_takes_effect_once(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    fields = await form_of(console, address("resubmit", 1, 2))
    assert [(await confirm(console, fields)).status_code for _ in range(2)] == [303, 409]
    assert await console.api.counts() == {"available": 2}


async def test_a_plan_is_that_of_its_action(console: ConsoleServer) -> None:
    await dead_letter(console, "a")
    fields = await form_of(console, address("redrive", 1))
    assert (await confirm(console, {**fields, "action_name": "purge"})).status_code == 409
    assert await dead_numbers(console) == [1]


async def test_a_plan_is_outdated_by_each_change_of_a_message(console: ConsoleServer) -> None:
    await dead_letter(console, "a", priority=3, properties={"n": 1})
    ports = console.context.broker.administration
    queue = await reload_queue(ports, "orders")
    [message] = await read_named(ports, queue, [1])
    changed = [
        structs.replace(message, state=MessageState.AVAILABLE),
        structs.replace(message, priority=4),
        structs.replace(message, available_at=message.available_at + 1),
        structs.replace(message, delivery_count=message.delivery_count + 1),
        structs.replace(message, failure_count=message.failure_count + 1),
        structs.replace(message, dead_lettered_at=dead_since(message) + 1),
        structs.replace(message, dead_letter_reason="b"),
        structs.replace(message, envelope=structs.replace(message.envelope, properties=b'{"n":2}')),
    ]
    digests = {plan_digest("purge", queue, [one]) for one in (message, *changed)}
    assert (
        len(digests | {plan_digest("purge", dataclasses.replace(queue, id=queue.id + 1), [message])})
        == len(changed) + 2
    )


async def test_a_refusal_of_the_broker_is_shown_with_the_plan(console: ConsoleServer) -> None:
    await dead_letter(console, "a")
    await console.api.request("PATCH", "/queues/orders", {"status": "send_disabled"})
    for action in ("redrive", "resubmit"):
        response = await confirm(console, await form_of(console, address(action, 1)))
        assert (response.status_code, 'role="alert"' in response.text) == (403, True)
    assert await dead_numbers(console) == [1]


async def test_resubmissions_that_are_refused_leave_the_others_and_say_why(console: ConsoleServer) -> None:
    await dead_letter(console, "a")
    await dead_letter(console, "b", body="b" * 500)
    await console.api.request("PATCH", "/queues/orders", {"max_message_bytes": 100})
    response = await confirm(console, await form_of(console, address("resubmit", 1, 2)))
    assert (response.status_code, "1 of 2 messages were resubmitted." in response.text) == (409, True)
    assert "max_message_bytes" in response.text
    assert await dead_numbers(console) == [2]


# ---- what happens between the plan and its action ---------------------------------------------------------------------------


def before_the_act(console: ConsoleServer, change: Callable[[], Awaitable[object]]) -> None:
    """Let a change happen once, after the plan of a form was found to be the plan still, and before the action."""
    broker = console.context.broker
    changes = [change]

    async def now() -> int:
        if changes:
            await changes.pop()()
        return await broker.store.now()

    store: Any = ChangedStore(broker.store, now=now)
    console.context = dataclasses.replace(console.context, broker=dataclasses.replace(broker, store=store))
    console.application.state.context = console.context


async def die_again(console: ConsoleServer) -> None:
    """Redrive message 1, and dead-letter it again a second later."""
    await console.api.request_json(
        "POST", "/queues/orders/dead-letter/redrive", {"filter": "message.sequence_number == 1"}
    )
    (received,) = await console.api.receive()
    await console.api.clock.advance(1)
    assert (await console.api.settle(received, "dead-letter", reason="again")).is_success


@pytest.mark.parametrize("action", ["redrive", "purge"])
async def test_a_message_that_is_dead_lettered_again_since_its_plan_stays(console: ConsoleServer, action: str) -> None:
    await dead_letter(console, "a")
    fields = await form_of(console, address(action, 1))
    before_the_act(console, lambda: die_again(console))
    response = await confirm(console, fields)
    assert (response.status_code, f"0 of 1 message was {ACTIONS[action]}." in response.text) == (409, True)
    assert await dead_numbers(console) == [1]


async def test_a_message_that_changes_after_its_plan_is_not_resubmitted(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    fields = await form_of(console, address("resubmit", 1, 2))
    edit = {"priority": 9}
    before_the_act(console, lambda: console.api.request_json("PATCH", "/queues/orders/messages/1", edit))
    response = await confirm(console, fields)
    assert (response.status_code, "1 of 2 messages were resubmitted." in response.text) == (409, True)
    assert await dead_numbers(console) == [1]


async def test_a_message_that_leaves_after_its_plan_does_not_end_a_resubmission(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    fields = await form_of(console, address("resubmit", 1, 2))
    selection = {"filter": "message.sequence_number == 1", "states": ["dead_lettered"]}
    before_the_act(console, lambda: console.api.request_json("POST", "/queues/orders/purge", selection))
    response = await confirm(console, fields)
    assert (response.status_code, "1 of 2 messages were resubmitted." in response.text) == (409, True)
    assert await dead_numbers(console) == []


# ---- what is refused -----------------------------------------------------------------------------------------------------


@for_each(
    ("fields", "fault"),
    [
        ({"action_name": "destroy"}, "This is not one of the actions"),
        ({"list": "//elsewhere"}, "This is not a list of messages."),
        ({"number": []}, NOTHING_SELECTED),
        ({"number": ["x"]}, "A sequence number is a whole number"),
        ({"number": [str(number) for number in range(1, MAX_SELECTED + 2)]}, TOO_MANY),
        ({"filter": "x" * 1025}, "A filter has at most"),
        ({"filtre": "false"}, "This form has no field `filtre`."),
        ({"action_name": ["redrive", "purge"]}, "This form gives the field `action_name` twice."),
    ],
)
async def test_what_a_form_may_not_have_is_refused(console: ConsoleServer, fields: dict[str, Any], fault: str) -> None:
    await dead_letter(console, "a")
    (number,) = await dead_numbers(console)
    response = await confirm(console, {**await form_of(console, address("purge", number)), **fields})
    assert (response.status_code, fault in response.text) == (422, True)
    assert await dead_numbers(console) == [number]
    await console.api.request_json("POST", "/queues/orders/purge", {})


async def test_nothing_selected_returns_to_the_list_which_says_so(console: ConsoleServer) -> None:
    await dead_letter(console, "a")
    response = await console.get(address("redrive", list="messages", state="dead_lettered"))
    assert (response.status_code, response.headers["location"].partition("?")[0]) == (
        303,
        "/console/queues/orders/messages",
    )
    assert NOTHING_SELECTED in await console.page(response.headers["location"].removeprefix("/console"))


@pytest.mark.parametrize(
    ("right", "allowed"),
    [(Right.MANAGE, ["redrive", "purge"]), (Right.LISTEN, []), (Right.SEND, []), (None, [])],
)
async def test_an_action_needs_its_rights(
    console_with_keys: ConsoleServer, right: Right | None, allowed: list[str]
) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    await api.request("POST", "/queues/orders/messages", {"body": 1}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, *([right] if right else [])))
    page = await console_with_keys.page("/queues/orders/messages")
    assert re.findall(r'name="action_name" value="(\w+)"', page) == allowed
    assert ('type="checkbox" name="number"' in page) == bool(allowed)
    for action in ACTIONS:
        status = 200 if action in allowed else 403
        assert (await console_with_keys.get(address(action, 1))).status_code == status
        fields = {"csrf_token": token_of(page), "action_name": action, "number": "1", "plan": "old"}
        assert (await confirm(console_with_keys, fields)).status_code == (409 if action in allowed else 403)


async def test_a_form_of_another_page_is_refused(console: ConsoleServer) -> None:
    await dead_letter(console, "a")
    fields = await form_of(console, address("purge", 1))
    assert (await confirm(console, {**fields, "csrf_token": "x"})).status_code == 403
    headers = {"origin": "http://elsewhere.test"}
    assert (await console.http.post(f"/console{SELECTED}", data=fields, headers=headers)).status_code == 403
    assert await dead_numbers(console) == [1]


async def test_every_row_of_the_dead_letters_can_be_checked(console: ConsoleServer) -> None:
    await dead_letter(console, *["a"] * (MAX_SELECTED + 1))
    page = await console.page(DEAD)
    assert re.findall(r'name="number" value="(\d+)"', page) == [str(number) for number in range(1, MAX_SELECTED + 1)]
    numbers = range(1, MAX_SELECTED + 1)
    assert (await confirm(console, await form_of(console, address("redrive", *numbers)))).status_code == 303
    assert await dead_numbers(console) == [MAX_SELECTED + 1]
