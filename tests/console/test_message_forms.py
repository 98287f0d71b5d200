"""Forms send, edit and cancel messages with the limits of the API. A fault is shown at its field, and what was typed stays."""

import base64
import html
import re
from datetime import datetime
from itertools import pairwise
from typing import Any

import httpx
import pytest

from app.domain.access import Right
from app.domain.refusals import StoreUnavailable
from tests.console.console_server import ConsoleServer, token_of

QUEUE, SEND, MESSAGE = "/queues/orders", "/queues/orders/send", "/queues/orders/messages/1"
HOSTILE = '</textarea><script>alert(1)</script>"'


async def message(console: ConsoleServer, number: int = 1) -> Any:
    """A message as the API has it."""
    return await console.api.request_json("GET", f"{QUEUE}/messages/{number}")


async def save(console: ConsoleServer, **fields: object) -> httpx.Response:
    """Send the form that edits the first message."""
    page = (await console.get(f"{MESSAGE}/edit")).text
    (etag,) = re.findall(r'name="etag" value="(\w+)"', page)
    return await console.post(f"{MESSAGE}/edit", f"{MESSAGE}/edit", **{"etag": etag, **fields})


@pytest.mark.parametrize(
    ("fields", "stored"),
    [
        ({"body_form": "json", "body": '{"order": 17}'}, {"body": {"order": 17}}),
        ({"body_form": "json", "body": ""}, {}),
        ({"body_form": "text", "body": "a\r\nb <i>"}, {"body": "a\nb <i>", "content_type": "text/plain"}),
        ({"body_form": "base64", "body": "AAEC"}, {"body_base64": base64.b64encode(b"\0\1\2").decode()}),
        ({"body": "1", "subject": "s", "priority": "9", "properties": '{"n": 1.5}'}, {"subject": "s", "priority": 9}),
    ],
)
async def test_a_message_is_sent(console: ConsoleServer, fields: dict[str, str], stored: dict[str, Any]) -> None:
    await console.api.request("PUT", QUEUE, {})
    response = await console.post(SEND, SEND, **fields)
    assert (response.status_code, response.headers["location"]) == (303, f"/console{MESSAGE}")
    found = await message(console)
    assert {name: found.get(name) for name in stored} == stored
    assert ("body" in found or "body_base64" in found) == bool(fields["body"])


async def test_a_body_of_an_unknown_form_is_refused(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {})
    response = await console.post(SEND, SEND, body="1", body_form="xml")
    assert (response.status_code, 'id="fault-body_form"' in response.text) == (422, True)
    assert await console.api.counts() == {}


async def test_a_form_that_is_sent_twice_stores_one_message(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {})
    page = await console.page(SEND)
    (key,) = re.findall(r'name="idempotency_key" value="([^"]+)"', page)
    once, again = [await console.post(SEND, SEND, body="1", idempotency_key=key) for _ in range(2)]
    assert once.headers["location"] == again.headers["location"] == f"/console{MESSAGE}"
    assert await console.api.counts() == {"available": 1}
    assert key not in await console.page(SEND)


async def test_what_was_typed_stays_while_the_store_is_away(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {})

    async def away(*_: object) -> None:
        raise StoreUnavailable("The database cannot be reached.")

    console.take_sends_away(send_or_replay=away)
    response = await console.post(SEND, SEND, body='"typed"', idempotency_key="k")
    assert response.status_code == 503
    assert "The database cannot be reached." in response.text
    assert "&#34;typed&#34;" in response.text
    assert 'name="idempotency_key" value="k"' in response.text


async def test_a_form_with_another_content_is_another_message(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {})
    for body in ("1", "2"):
        await console.post(SEND, SEND, body=body, idempotency_key="k")
    await console.post("/queues/others/send", SEND, body="2", idempotency_key="k")
    assert await console.api.counts() == {"available": 2}


async def test_the_form_of_another_principal_is_another_message(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    keys = [await api.new_key(*Right, principal=principal) for principal in ("a", "b")]
    api.http.headers["authorization"] = f"Bearer {keys[0]}"
    await api.request("PUT", QUEUE, {})
    for key in keys:
        await console_with_keys.sign_in(key)
        await console_with_keys.post(SEND, SEND, body="1", idempotency_key="k")
    assert await api.counts() == {"available": 2}


async def test_a_delayed_message_is_scheduled(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {})
    await console.post(SEND, SEND, body="1", delay="1 min 30.5 s", ttl="2 h")
    assert await console.api.counts() == {"scheduled": 1}
    found = await message(console)
    lasts = [datetime.fromisoformat(found[name]) for name in ("enqueued_at", "available_at", "expires_at")]
    assert [(later - earlier).total_seconds() for earlier, later in pairwise(lasts)] == [90.5, 7200]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("body", "{", "This is not valid JSON"),
        ("body", "[" * 600, "at most 500 levels"),
        ("properties", '{"a": [1]}', "must be"),
        ("properties", "[1]", "must be an object"),
        ("priority", "10", "must be an integer of at most 9"),
        ("delay", "-1 s", "Write a duration such as 30 s"),
        ("delay", "60", "This number has no unit."),
        ("delay", "9999 d", "This is too long or too short."),
        ("ttl", "soon", "Write a duration such as 30 s"),
        ("content_type", "é", "must match the pattern"),
        ("subject", "x" * 1025, "must have at most 1024 characters"),
    ],
)
async def test_a_fault_is_shown_at_its_field(console: ConsoleServer, field: str, value: str, fault: str) -> None:
    await console.api.request("PUT", QUEUE, {})
    response = await console.post(SEND, SEND, **{"body": "1", "message_id": HOSTILE, field: value})
    assert response.status_code == 422
    assert re.search(rf'id="fault-{field}" role="alert">[^<]*{fault}', html.unescape(response.text)), response.text
    assert f'aria-describedby="fault-{field}"' in response.text
    assert HOSTILE not in response.text
    assert html.escape(HOSTILE, quote=False).replace('"', "&#34;") in response.text
    assert value in html.unescape(response.text)
    assert await console.api.counts() == {}


async def test_a_refused_send_says_why(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {"status": "send_disabled"})
    response = await console.post(SEND, SEND, body='"kept"')
    assert response.status_code == 403
    assert "&#34;kept&#34;" in response.text


async def test_a_message_is_edited(console: ConsoleServer) -> None:
    await console.api.send(body=1, properties={"region": "eu", "old": 1}, delay_seconds=60)
    response = await save(console, priority="7", delay="0", properties='{"region": "us"}')
    assert (response.status_code, response.headers["location"]) == (303, f"/console{MESSAGE}")
    found = await message(console)
    assert (found["priority"], found["properties"], found["state"]) == (7, {"region": "us"}, "available")


async def test_what_the_form_leaves_as_it_was_does_not_change(console: ConsoleServer) -> None:
    await console.api.send(body=1, properties={"region": "eu"}, priority=2, delay_seconds=60)
    before = await message(console)
    page = (await console.get(f"{MESSAGE}/edit")).text
    (properties,) = re.findall(r'<textarea id="properties"[^>]*>\n([^<]*)</textarea>', page)
    await save(console, priority="2", properties=html.unescape(properties))
    assert await message(console) == before
    await save(console, properties="")
    assert "properties" not in await message(console)


async def test_a_message_that_has_changed_is_not_edited(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    response = await save(console, etag="0" * 24, priority="7", properties='{"typed": 1}')
    assert response.status_code == 412
    assert "The message was changed" in response.text
    assert "Load the message as it is now" in response.text
    assert "&#34;typed&#34;: 1" in response.text
    assert (await message(console))["priority"] == 4


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"available_at": "tomorrow"}, "available_at"),
        ({"available_at": "2030-01-01T00:00:00Z", "delay": "1 s"}, "delay"),
        ({"delay": "1"}, "delay"),
        ({"available_at": "9999-01-01T00:00:00Z"}, "available_at"),
        ({"priority": "12"}, "priority"),
        ({"properties": "{"}, "properties"),
    ],
)
async def test_a_fault_of_an_edit_is_shown_at_its_field(
    console: ConsoleServer, fields: dict[str, str], field: str
) -> None:
    await console.api.send(body=1)
    response = await save(console, **fields)
    assert response.status_code == 422
    assert f'id="fault-{field}"' in response.text


async def test_a_locked_message_is_neither_edited_nor_cancelled(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    page = await console.page(MESSAGE)
    (etag,) = re.findall(r'name="etag" value="(\w+)"', page)
    await console.api.receive()
    assert "Cancel" not in await console.page(MESSAGE)
    for verb in ("edit", "cancel"):
        response = await console.post(f"{MESSAGE}/{verb}", MESSAGE, etag=etag)
        assert response.status_code == 409
    assert await console.api.counts() == {"locked": 1}


async def test_a_message_is_cancelled_as_it_was_shown(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    page = await console.page(MESSAGE)
    (etag,) = re.findall(r'name="etag" value="(\w+)"', page)
    assert "data-confirm" in page
    await console.api.request("PATCH", f"{QUEUE}/messages/1", {"priority": 9})
    assert (await console.post(f"{MESSAGE}/cancel", MESSAGE, etag=etag)).status_code == 412
    (etag,) = re.findall(r'name="etag" value="(\w+)"', await console.page(MESSAGE))
    assert (await console.post(f"{MESSAGE}/cancel", MESSAGE, etag=etag)).status_code == 303
    assert await console.api.counts() == {}
    assert '<span class="tag" data-state="ended">ended</span>' in await console.page(MESSAGE)


async def test_what_a_key_may_not_do_is_not_offered_and_refused(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    await api.request("POST", f"{QUEUE}/messages", {"body": 1}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE))
    page = await console_with_keys.page(MESSAGE)
    assert [name for name in (">Send<", ">Edit<", ">Cancel<") if name in page] == []
    for path in (SEND, f"{MESSAGE}/edit", f"{MESSAGE}/cancel"):
        fields = {"csrf_token": token_of(page), "body": "1"}
        assert (await console_with_keys.http.post(f"/console{path}", data=fields)).status_code == 403
    for path in (SEND, f"{MESSAGE}/edit"):
        assert (await console_with_keys.get(path)).status_code == 403


async def test_a_key_that_may_only_send_is_told_what_was_sent(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    await api.request("PUT", QUEUE, {}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.SEND))
    response = await console_with_keys.post(SEND, SEND, body="1")
    assert response.headers["location"] == f"/console{SEND}?sent=1"
    assert "Message 1 was sent." in await console_with_keys.page(f"{SEND}?sent=1")
