"""Settings are edited in a form with the API's limits. A preview says what a change does before it is made."""

import html
import re

import pytest

from app.domain.access import Right
from app.wire.queues import QueueSettingsBody
from tests.console.console_server import ConsoleServer, token_of

PATH = "/queues/orders/settings"


def form_fields(page: str) -> dict[str, str]:
    """What a browser would send of the form on this page."""
    fields = dict(re.findall(r'<input (?:id="\w+" |type="hidden" )name="(\w+)" value="([^"]*)"', page))
    fields |= dict(re.findall(r'<select id="\w+" name="(\w+)">.*?<option value="(\w+)" selected>', page, re.DOTALL))
    fields |= dict(re.findall(r'<input type="checkbox" name="(\w+)" value="(true)" checked>', page))
    return {name: html.unescape(value) for name, value in fields.items()}


async def change(console: ConsoleServer, **changes: str) -> str:
    """Fill the form in with these changes and return the preview."""
    fields = form_fields(await console.page(PATH)) | changes
    response = await console.http.post(f"/console{PATH}", data=fields)
    assert response.status_code == 200, response.text
    return response.text


async def confirm(console: ConsoleServer, preview: str) -> None:
    """Make the change of a preview."""
    response = await console.http.post(f"/console{PATH}", data=form_fields(preview) | {"confirmed": "true"})
    assert response.status_code == 303, response.text


async def settings(console: ConsoleServer) -> dict[str, object]:
    """The settings of the queue, as the API answers them."""
    return await console.api.request_json("GET", "/queues/orders")


async def test_the_form_has_every_setting(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"history": True, "dead_letter_on_expiry": True})
    names = form_fields(await console.page(PATH)).keys()
    assert names - {"csrf_token", "etag"} == {*QueueSettingsBody.__struct_fields__}


async def test_a_form_that_nothing_was_changed_in_changes_nothing(console: ConsoleServer) -> None:
    body = {"retry": {"kind": "exponential", "first_seconds": 1.5}, "default_ttl_seconds": 0.25, "history": True}
    await console.api.request("PUT", "/queues/orders", {**body, "description": 'a "b" <c>'})
    assert "Nothing changes." in await change(console)


async def test_a_preview_names_the_settings_and_the_locks_that_end(console: ConsoleServer) -> None:
    for body in range(2):
        await console.api.send(body=body)
    await console.api.receive(max_messages=2)
    preview = await change(console, lock_duration_seconds="60", max_messages="1000")
    rows = re.findall(r'<th scope="row">(\w+)</th><td>([^<]*)</td><td>([^<]*)</td>', preview)
    assert rows == [("lock_duration_seconds", "30", "60"), ("max_messages", "–", "1000")]
    assert "2 locks end." in preview
    assert (await settings(console))["lock_duration_seconds"] == 30
    await confirm(console, preview)
    changed = await settings(console)
    assert (changed["lock_duration_seconds"], changed["max_messages"]) == (60, 1000)
    assert (await console.api.counts()) == {"available": 2}


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({"status": "disabled"}, "Receives are refused from now on."),
        ({"status": "send_disabled"}, "Sends are refused from now on."),
        ({"group_in_flight": "1"}, "Messages of groups are blocked"),
        ({"description": "new"}, "No lock ends"),
        ({"lock_duration_seconds": "60"}, "No lock ends"),
    ],
)
async def test_a_preview_says_what_the_change_does(
    console: ConsoleServer, changes: dict[str, str], effect: str
) -> None:
    await console.api.request("PUT", "/queues/orders", {})
    assert effect in await change(console, **changes)


async def test_a_preview_names_no_effect_that_the_queue_has_already(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"status": "disabled"})
    preview = await change(console, description="new")
    assert "are refused from now on" not in preview
    assert "Messages of groups" not in preview


async def test_a_preview_of_one_lock_and_of_the_end_of_histories(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"history": True})
    await console.api.send(body=1)
    await console.api.receive()
    assert "1 lock ends." in await change(console, lock_duration_seconds="60")
    assert "lock ends." not in await change(console, description="new")
    fields = form_fields(await console.page(PATH))
    del fields["history"]
    preview = (await console.http.post(f"/console{PATH}", data=fields)).text
    assert "No further events are recorded." in preview


async def test_switches_and_empty_fields_restore_defaults(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"history": True, "default_ttl_seconds": 60, "description": "x"})
    fields = form_fields(await console.page(PATH)) | {"default_ttl_seconds": "", "description": ""}
    del fields["history"]
    preview = (await console.http.post(f"/console{PATH}", data=fields)).text
    await confirm(console, preview)
    changed = await settings(console)
    assert (changed["history"], changed["default_ttl_seconds"], changed["description"]) == (False, None, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_duration_seconds", "0"),
        ("max_delivery_count", "many"),
        ("retry", "{"),
        ("retry", '{"kind": "never"}'),
        ("forward_to", "no name!"),
    ],
)
async def test_a_fault_is_shown_at_its_field_and_nothing_is_lost(console: ConsoleServer, name: str, value: str) -> None:
    await console.api.request("PUT", "/queues/orders", {})
    fields = form_fields(await console.page(PATH)) | {name: value, "description": "typed"}
    response = await console.http.post(f"/console{PATH}", data=fields)
    assert response.status_code == 422
    assert f'id="fault-{name}"' in response.text
    assert 'value="typed"' in response.text


async def test_a_change_of_others_after_the_preview_is_not_overwritten(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {})
    preview = await change(console, max_messages="5")
    await console.api.request("PUT", "/queues/orders", {"description": "theirs"})
    response = await console.http.post(f"/console{PATH}", data=form_fields(preview) | {"confirmed": "true"})
    assert response.status_code == 412
    assert "Load the settings as they are now" in response.text
    assert (await settings(console))["description"] == "theirs"


async def test_a_key_that_may_not_change_settings_sees_them_alone(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    await api.request("PUT", "/queues/orders", {}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE))
    page = await console_with_keys.page(PATH)
    assert "Preview the change" not in page
    assert page.count("<fieldset disabled>") == 3
    fields = {"csrf_token": token_of(page), "etag": "1-1", "confirmed": "true"}
    assert (await console_with_keys.http.post(f"/console{PATH}", data=fields)).status_code == 403


@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_letters_to"])
async def test_forwarding_needs_the_right_to_send_to_the_target(console_with_keys: ConsoleServer, setting: str) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders", "private"):
        await api.request("PUT", f"/queues/{queue}", {}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, Right.MANAGE))
    fields = form_fields(await console_with_keys.page(PATH)) | {setting: "private"}
    assert (await console_with_keys.http.post(f"/console{PATH}", data=fields)).status_code == 403
