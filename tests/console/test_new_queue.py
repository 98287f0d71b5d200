"""A queue is created by a form with the API's limits. What was typed stays in a form that is refused."""

import html
import re
from typing import Any

import pytest

from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of

PATH = "/new-queue"


async def create(console: ConsoleServer, **fields: str) -> Any:
    """Fill in the form and send it."""
    return await console.post(PATH, PATH, **fields)


async def test_a_queue_that_was_created_takes_messages(console: ConsoleServer) -> None:
    assert f'href="/console{PATH}"' in await console.page()
    response = await create(console, name=" orders ", description="Orders of the shop")
    assert "Queue orders was created." in await console.following(response)
    assert '<tr data-row="orders"' in (await console.get()).text
    await console.api.send(body=1)
    assert await console.api.counts() == {"available": 1}
    assert (await console.api.request_json("GET", "/queues/orders"))["description"] == "Orders of the shop"


async def test_a_new_queue_has_the_settings_of_the_form(console: ConsoleServer) -> None:
    settings = {"lock_duration": "2 min", "default_ttl": "7 d", "archive_retention": "0", "history": "true"}
    settings |= {"default_delay": "1 min 30 s", "default_wait": "20 s", "labels": '{"team": "payments"}'}
    policy = {"retry": "list", "retry_delays": "1 s, 1 min"}
    response = await create(console, name="orders", max_delivery_count="3", **settings, **policy)
    assert response.status_code == 303
    queue = await console.api.request_json("GET", "/queues/orders")
    assert (queue["lock_duration_seconds"], queue["default_ttl_seconds"]) == (120, 604800)
    assert (queue["archive_retention_seconds"], queue["history"], queue["max_delivery_count"]) == (0, True, 3)
    assert (queue["default_delay_seconds"], queue["default_wait_seconds"]) == (90, 20)
    assert queue["labels"] == {"team": "payments"}
    assert queue["retry"] == {"kind": "list", "delays_seconds": [1, 60]}


async def test_an_unchanged_form_creates_a_queue_with_the_defaults(console: ConsoleServer) -> None:
    page = await console.page(f"{PATH}?name=orders")
    fields = dict(re.findall(r'<input id="\w+" name="(\w+)" value="([^"]*)"', page))
    assert (fields["name"], fields["lock_duration"], fields["archive_retention"]) == ("orders", "30 s", "7 d")
    assert (await create(console, **fields)).status_code == 303
    await console.api.request_json("PUT", "/queues/other", {})
    created, other = [await console.api.request_json("GET", f"/queues/{name}") for name in ("orders", "other")]
    for name in ("name", "created_at", "updated_at"):
        assert created.pop(name)
        assert other.pop(name)
    assert created == other


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("name", "", "Write a name."),
        ("name", "-orders", "A name has 1 to 128 letters, digits, dots, underscores or hyphens"),
        ("name", "<script>", "A name has 1 to 128"),
        ("name", "a" * 129, "A name has 1 to 128"),
        ("lock_duration", "13 h", "This is too long or too short. From 1 s to 12 h."),
        ("lock_duration", "half an hour", "Write a duration such as 30 s, 2 min, 1 h 30 min or 7 d."),
        ("default_delay", "8 d", "This is too long or too short. From 0 s to 7 d."),
        ("max_messages", "many", "must be an integer"),
        ("max_delivery_count", "0", "must be an integer of at least 1"),
        ("forward_to", "no name!", "must match the pattern"),
        ("forward_to", "missing", "There is no queue named missing."),
    ],
)
async def test_a_fault_is_shown_at_its_field_and_what_was_typed_stays(
    console: ConsoleServer, field: str, text: str, sentence: str
) -> None:
    typed = {"name": "orders", "description": "kept", field: text}
    response = await create(console, **typed)
    assert response.status_code == 422
    (fault,) = re.findall(rf'id="fault-{field}" role="alert">([^<]*)<', response.text)
    assert sentence in html.unescape(fault)
    assert 'value="kept"' in response.text
    assert f'value="{html.escape(text)}"' in response.text
    assert (await console.api.request_json("GET", "/queues"))["items"] == []


async def test_a_queue_that_exists_stays_as_it_is(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"description": "theirs"})
    response = await create(console, name="orders", description="typed")
    assert response.status_code == 409
    assert "There is a queue named orders already." in response.text
    assert 'value="typed"' in response.text
    assert (await console.api.request_json("GET", "/queues/orders"))["description"] == "theirs"


async def test_the_delays_are_drawn_before_the_queue_is_created(console: ConsoleServer) -> None:
    fields = {"retry": "fixed", "retry_delay": "5 s", "max_delivery_count": "3", "draw": "true"}
    response = await create(console, name="orders", **fields)
    assert response.status_code == 200
    assert re.findall(r'<span class="number">([^<]*)</span>', response.text) == ["5 s", "5 s"]
    assert 'value="orders"' in response.text
    refused = await create(console, name="orders", **fields | {"retry_delay": "soon"})
    assert (refused.status_code, "fault-retry_delay" in refused.text) == (422, True)
    assert (await console.api.request_json("GET", "/queues"))["items"] == []


async def test_a_field_that_the_form_does_not_have_is_refused(console: ConsoleServer) -> None:
    response = await create(console, name="orders", max_message_count="5")
    assert response.status_code == 422
    assert "This form has no field `max_message_count`." in response.text


async def test_a_queue_is_created_by_a_key_that_may_manage_its_name(console_with_keys: ConsoleServer) -> None:
    key = await console_with_keys.api.new_key(Right.MANAGE, Right.BROWSE, patterns=("orders.*",))
    await console_with_keys.sign_in(key)
    assert (await create(console_with_keys, name="orders.eu")).status_code == 303
    refused = await create(console_with_keys, name="payments", description="kept")
    assert refused.status_code == 403
    assert "does not hold the right manage on queue payments" in refused.text
    assert 'value="kept"' in refused.text
    forwarding = await create(console_with_keys, name="orders.us", forward_to="payments")
    assert forwarding.status_code == 403


async def test_a_key_without_the_right_sees_no_form_and_creates_nothing(console_with_keys: ConsoleServer) -> None:
    rights = [right for right in Right if right is not Right.MANAGE]
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*rights))
    page = await console_with_keys.page()
    assert "Create a queue" not in page
    assert (await console_with_keys.get(PATH)).status_code == 403
    fields = {"csrf_token": token_of(page), "name": "orders"}
    assert (await console_with_keys.http.post(f"/console{PATH}", data=fields)).status_code == 403
    assert await console_with_keys.api.broker.store.queues.by_name("orders") is None


@pytest.mark.parametrize(("text", "sentence"), [('{"a": 1}', "must be a string"), ("team", "This is not valid JSON")])
async def test_a_fault_in_labels_is_shown_and_what_was_typed_stays(
    console: ConsoleServer, text: str, sentence: str
) -> None:
    response = await create(console, name="orders", labels=text)
    assert response.status_code == 422
    assert sentence in response.text
    assert f"\n{text}</textarea>" in html.unescape(response.text)
