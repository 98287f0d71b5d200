"""A dead letter is edited and sent again: receivers get it once, as the form has it."""

import base64
import html
import re
from typing import Any

import httpx
import pytest

from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of

QUEUE, FORM = "/queues/orders", "/queues/orders/messages/1/resubmit"


async def dead_letter(console: ConsoleServer, **message: Any) -> None:
    """Send a message and dead-letter it."""
    await console.api.send(**message)
    (received,) = await console.api.receive()
    await console.api.settle(received, "dead-letter", reason="bad_address")


async def fields_of(console: ConsoleServer) -> dict[str, str]:
    """The fields of the form, as a browser has them."""
    page = await console.page(FORM)
    found = re.findall(r'<input[^>]*? name="(\w+)" value="([^"]*)"(?! checked)[^>]*>', page)
    fields = {name: html.unescape(value) for name, value in found if name != "body_form"}
    (fields["body_form"],) = re.findall(r'name="body_form" value="(\w+)" checked', page)
    texts = re.findall(r'<textarea id="\w+" name="(\w+)"[^>]*>\n([^<]*)</textarea>', page)
    return fields | {name: html.unescape(text) for name, text in texts}


async def resubmit(console: ConsoleServer, **changes: str) -> httpx.Response:
    """Send the form with these changes."""
    return await console.http.post(f"/console{FORM}", data={**await fields_of(console), **changes})


async def received(console: ConsoleServer) -> Any:
    """What receivers get: one message."""
    (message,) = await console.api.receive(max_messages=10)
    return message


async def test_receivers_get_the_edited_message_once(console: ConsoleServer) -> None:
    await dead_letter(console, body={"street": ""}, subject="order", properties={"n": 1}, reply_to="r", priority=7)
    assert "Edit and resubmit" in await console.page("/queues/orders/messages/1")
    response = await resubmit(console, body='{"street": "Main"}')
    assert response.headers["location"] == "/console/queues/orders/messages/2"
    message = await received(console)
    assert (message["body"], message["delivery_count"]) == ({"street": "Main"}, 1)
    kept = (message["subject"], message["properties"], message["reply_to"], message["priority"])
    assert kept == ("order", {"n": 1}, "r", 7)
    assert await console.api.counts() == {"locked": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"body": {"n": 12345678901234567890123, "<b>": "</textarea>"}},
        {"body": "text"},
        {"body": "line\nline\n", "content_type": "text/plain"},
        {"body_base64": base64.b64encode(b"\r\n\x00\xff").decode()},
        {},
    ],
)
async def test_what_the_form_leaves_as_it_was_does_not_change(console: ConsoleServer, message: dict[str, Any]) -> None:
    await dead_letter(console, **message)
    before = await console.api.request_json("GET", "/queues/orders/messages/1")
    assert (await resubmit(console)).status_code == 303
    after = await received(console)
    for name in ("body", "body_base64", "content_type", "priority", "properties"):
        assert after.get(name) == before.get(name)
    assert after["message_id"] != before["message_id"]


async def test_the_second_of_two_forms_is_refused_and_keeps_what_was_typed(console: ConsoleServer) -> None:
    await dead_letter(console, body=1)
    fields = await fields_of(console)
    await console.api.request("PATCH", "/queues/orders/messages/1", {"priority": 9})
    response = await console.http.post(f"/console{FORM}", data={**fields, "body": '"typed"'})
    assert response.status_code == 412
    assert "&#34;typed&#34;" in response.text
    assert await console.api.counts() == {"dead_lettered": 1}
    assert (await resubmit(console)).status_code == 303
    assert (await console.http.post(f"/console{FORM}", data=fields)).status_code == 404
    assert await console.api.counts() == {"available": 1}


async def test_a_fault_is_shown_at_its_field(console: ConsoleServer) -> None:
    await dead_letter(console, body=1)
    response = await resubmit(console, body="{", priority="3")
    assert response.status_code == 422
    assert 'id="fault-body"' in response.text
    assert await console.api.counts() == {"dead_lettered": 1}


async def test_only_a_dead_letter_with_a_body_that_fits_has_the_form(console: ConsoleServer) -> None:
    await dead_letter(console, body="x" * 70_000)
    assert (await console.get(FORM)).status_code == 409
    await console.api.send(body=1)
    assert (await console.get("/queues/orders/messages/2/resubmit")).status_code == 409
    assert "Edit and resubmit" not in await console.page("/queues/orders/messages/2")


@pytest.mark.parametrize("missing", [Right.BROWSE, Right.LISTEN, Right.SEND])
async def test_a_resubmission_needs_the_rights_to_read_receive_and_send(
    console_with_keys: ConsoleServer, missing: Right
) -> None:
    api = console_with_keys.api
    await api.new_key(*Right)
    await console_with_keys.sign_in(await api.new_key(*(right for right in Right if right is not missing)))
    fields = {"csrf_token": token_of((await console_with_keys.get()).text), "body": "1"}
    assert (await console_with_keys.get(FORM)).status_code == 403
    assert (await console_with_keys.http.post(f"/console{FORM}", data=fields)).status_code == 403


async def test_a_key_that_may_not_manage_is_offered_the_resubmission_alone(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await dead_letter(console_with_keys, body=1)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, Right.LISTEN, Right.SEND))
    page = await console_with_keys.page("/queues/orders/messages/1")
    offered = [name for name in ("Edit and resubmit", ">Edit<", ">Cancel<") if name in page]
    assert offered == ["Edit and resubmit"]
    assert (await resubmit(console_with_keys)).status_code == 303


@pytest.mark.parametrize("missing", [Right.LISTEN, Right.SEND])
async def test_a_resubmission_that_would_be_refused_is_not_offered(
    console_with_keys: ConsoleServer, missing: Right
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await dead_letter(console_with_keys, body=1)
    await console_with_keys.sign_in(await api.new_key(*(right for right in Right if right is not missing)))
    assert "Edit and resubmit" not in await console_with_keys.page("/queues/orders/messages/1")
