"""Settings are edited in a form with the API's limits. A preview says what a change does before it is made."""

import html
import json
import re
from pathlib import Path

import pytest

from app.console.retry_form import FIELDS
from app.console.setting_fields import WORDS_OF_FORMS
from app.domain.access import Right
from app.wire.queues import QueueSettingsBody
from tests.console.console_server import ConsoleServer, token_of

PATH = "/queues/orders/settings"
OPENAPI = Path(__file__).parents[2] / "openapi/openapi.json"


def form_fields(page: str) -> dict[str, str]:
    """What a browser would send of the form on this page."""
    fields = dict(re.findall(r'<input (?:id="\w+" |type="hidden" )name="(\w+)" value="([^"]*)"', page))
    fields |= dict(re.findall(r'<textarea id="\w+" name="(\w+)"[^>]*>\n([^<]*)</textarea>', page))
    fields |= dict(re.findall(r'<input type="radio" name="(\w+)" value="(\w+)" checked', page))
    fields |= dict(
        re.findall(r'<select id="\w+" name="(\w+)"[^>]*>.*?<option value="(\w+)" selected>', page, re.DOTALL)
    )
    fields |= dict(re.findall(r'<input type="checkbox" name="(\w+)" value="(true)" checked', page))
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
    assert "The settings were changed." in await console.following(response)


async def settings(console: ConsoleServer) -> dict[str, object]:
    """The settings of the queue, as the API answers them."""
    return await console.api.request_json("GET", "/queues/orders")


async def test_the_form_has_every_setting(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"history": True, "dead_letter_on_expiry": True})
    names = form_fields(await console.page(PATH)).keys()
    settings = {name.removesuffix("_seconds") for name in QueueSettingsBody.__struct_fields__}
    assert names - {"csrf_token", "etag"} - {field.name for field in FIELDS} == settings


async def test_a_form_that_nothing_was_changed_in_changes_nothing(console: ConsoleServer) -> None:
    body = {"default_ttl_seconds": 0.25, "history": True, "description": 'a "b" <c>', "labels": {"a<": 'b"', "c": ""}}
    for retry in (
        {"kind": "exponential", "first_seconds": 1.5, "factor": 1.5, "jitter": 0.1, "max_seconds": 3600.000001},
        {"kind": "linear", "first_seconds": 0, "step_seconds": 90},
        {"kind": "fixed", "delay_seconds": 5400},
        {"kind": "list", "delays_seconds": [1, 60, 86400]},
        {"kind": "none"},
    ):
        await console.api.request_json("PUT", "/queues/orders", {**body, "retry": retry})
        assert "Nothing changes." in await change(console)


async def test_a_preview_offers_to_keep_the_locks_that_end(console: ConsoleServer) -> None:
    await console.api.send()
    (message,) = await console.api.receive()
    assert "keep_locks" not in await change(console, max_messages="1000")
    assert "keep_locks" not in await change(console, lock_duration="60 s", redelivery="on_request")
    preview = await change(console, lock_duration="60 s")
    assert re.search(r'<input type="checkbox" name="keep_locks" value="true">', preview)
    fields = form_fields(preview) | {"confirmed": "true", "keep_locks": "true"}
    response = await console.http.post(f"/console{PATH}", data=fields)
    assert "The settings were changed." in await console.following(response)
    assert (await settings(console))["lock_duration_seconds"] == 60
    assert (await console.api.settle(message, "complete")).status_code == 200


async def test_a_preview_names_the_settings_and_the_locks_that_end(console: ConsoleServer) -> None:
    for body in range(2):
        await console.api.send(body=body)
    await console.api.receive(max_messages=2)
    preview = await change(console, lock_duration="60 s", max_messages="1000")
    rows = re.findall(r'<code class="note">(\w+)</code></th><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)</td>', preview)
    assert rows == [("lock_duration_seconds", "30 s", "1 min"), ("max_messages", "–", "1000")]
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
        ({"lock_duration": "60 s"}, "No lock ends"),
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
    assert "1 lock ends." in await change(console, lock_duration="1 min")
    assert "lock ends." not in await change(console, description="new")
    fields = form_fields(await console.page(PATH))
    del fields["history"]
    preview = (await console.http.post(f"/console{PATH}", data=fields)).text
    assert "No further events are recorded." in preview


async def test_a_switch_is_on_or_absent(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"history": True})
    response = await console.post("/queues/orders/settings", history="false")
    assert (response.status_code, 'id="fault-history"' in response.text) == (422, True)


async def test_switches_and_empty_fields_restore_defaults(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"history": True, "default_ttl_seconds": 60, "description": "x"})
    fields = form_fields(await console.page(PATH)) | {"default_ttl": "", "description": ""}
    del fields["history"]
    preview = (await console.http.post(f"/console{PATH}", data=fields)).text
    await confirm(console, preview)
    changed = await settings(console)
    assert (changed["history"], changed["default_ttl_seconds"], changed["description"]) == (False, None, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_duration", "0"),
        ("lock_duration", "30"),
        ("lock_duration", "1 fortnight"),
        ("archive_retention", "-1 s"),
        ("max_delivery_count", "many"),
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
    assert f'value="{html.escape(value)}"' in response.text


async def test_a_policy_is_chosen_with_its_delays(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    preview = await change(console, retry="exponential", retry_first="2 s", retry_longest="1 min", retry_jitter="0.5")
    assert "2 s, then 2 times as long, at most 1 min, up to 50% shorter at random" in preview
    assert re.findall(r'<span class="number">([^<]*)</span>', preview)[:2] == ["1 s to 2 s", "2 s to 4 s"]
    await confirm(console, preview)
    policy = {"kind": "exponential", "first_seconds": 2.0, "factor": 2.0, "max_seconds": 60.0, "jitter": 0.5}
    assert (await settings(console))["retry"] == policy


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"retry": "never"}, "retry"),
        ({"retry": "fixed"}, "retry_delay"),
        ({"retry": "fixed", "retry_delay": "8 d"}, "retry_delay"),
        ({"retry": "linear", "retry_first": "1 s", "retry_step": "soon"}, "retry_step"),
        ({"retry": "exponential", "retry_first": "1 s", "retry_factor": "0.5"}, "retry_factor"),
        ({"retry": "exponential", "retry_first": "1 s", "retry_factor": "nan"}, "retry_factor"),
        ({"retry": "exponential", "retry_first": "1 s", "retry_jitter": "2"}, "retry_jitter"),
        ({"retry": "list", "retry_delays": "1 s, x"}, "retry_delays"),
        ({"retry": "list", "retry_delays": ",".join(["1 s"] * 101)}, "retry_delays"),
    ],
)
async def test_a_fault_of_a_policy_is_shown_at_its_field(
    console: ConsoleServer, fields: dict[str, str], fault: str
) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    response = await console.http.post(f"/console{PATH}", data=form_fields(await console.page(PATH)) | fields)
    assert response.status_code == 422
    assert re.findall(r'id="fault-(\w+)"', response.text) == [fault]
    assert 'class="drawing"' not in response.text


async def test_every_wrong_duration_is_named_at_once(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    wrong = {"lock_duration": "x", "default_ttl": "y", "retry": "fixed", "retry_delay": "z"}
    response = await console.http.post(f"/console{PATH}", data=form_fields(await console.page(PATH)) | wrong)
    assert re.findall(r'id="fault-(\w+)"', response.text) == ["lock_duration", "retry_delay", "default_ttl"]


async def test_the_delays_of_a_form_are_drawn_before_anything_is_changed(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"max_delivery_count": 3})
    fields = form_fields(await console.page(PATH)) | {"retry": "linear", "retry_first": "1 s", "retry_step": "4 s"}
    page = (await console.http.post(f"/console{PATH}", data=fields | {"draw": "true"})).text
    assert re.findall(r'<span class="number">([^<]*)</span>', page) == ["1 s", "5 s"]
    assert "Failure 3 dead-letters the message, 6 s of delays after the first one." in page
    assert 'value="4 s"' in page
    assert (await settings(console))["retry"] == {"kind": "none"}


async def test_a_drawing_says_whether_its_policy_is_stored(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"retry": {"kind": "fixed", "delay_seconds": 5}})
    page = await console.page(PATH)
    assert re.findall('<p class="help">([^:]*): Failure', page) == ["Now stored"]
    fields = form_fields(page) | {"retry_delay": "6 s", "draw": "true"}
    drawn = (await console.http.post(f"/console{PATH}", data=fields)).text
    assert re.findall('<p class="help">([^:]*): Failure', drawn) == ["As last drawn"]
    assert '<p class="help">By default: Each failed delivery' in await console.page("/new-queue")


async def test_a_field_that_the_form_does_not_have_is_refused(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    fields = form_fields(await console.page(PATH)) | {"lock_duration_seconds": "60", "confirmed": "true"}
    response = await console.http.post(f"/console{PATH}", data=fields)
    assert response.status_code == 422
    assert "This form has no field `lock_duration_seconds`." in response.text


async def test_each_setting_is_explained_as_the_document_of_the_api_does(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    page = re.sub(r"</?code[^>]*>", "`", await console.page(PATH))
    document = json.loads(OPENAPI.read_text())["components"]["schemas"]["QueueSettingsBody"]["properties"]
    for name, schema in document.items():
        said = schema["description"].partition(" Default: `")[0]
        for of_json, of_form in WORDS_OF_FORMS:
            said = said.replace(of_json, of_form)
        explained = f"`{name}` {html.escape(said, quote=False).split('. ')[0]}"
        assert explained in page, name


def test_a_form_has_other_words_for_words_that_the_document_has() -> None:
    document = OPENAPI.read_text()
    for of_json, _ in WORDS_OF_FORMS:
        assert of_json in document


async def test_a_choice_is_explained_in_its_own_words_after_its_name_in_the_api(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    page = await console.page(PATH)
    helps = dict(re.findall(r'id="help-(\w+)"><code class="api-name">([\w.]+)</code>', page))
    assert (helps["status"], helps["lock_duration"]) == ("status", "lock_duration_seconds")
    assert (helps["history"], helps["retry_first"]) == ("history", "retry.first_seconds")
    assert '<code class="api-name">status</code> A change ends the locks' in page
    assert '<code class="api-name">redelivery</code> On request: a message' in page
    assert "selected>It accepts both." in page
    assert '<input type="checkbox" name="history" value="true" id="history"' in page


async def test_the_page_of_a_message_without_a_history_leads_to_the_setting(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    assert f'<a href="/console{PATH}#history"><code>history</code></a>' in await console.page(
        "/queues/orders/messages/1"
    )


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
    assert page.count('<fieldset class="sheet" aria-label="Settings" disabled>') == 1
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
