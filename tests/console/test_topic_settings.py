"""Topics and subscriptions are created and changed by forms, with the rights and the limits of the API."""

import html
import re
from typing import Any

import pytest

from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of

NEW_TOPIC, SETTINGS = "/new-topic", "/topics/shop/settings"
NEW_SUBSCRIPTION, SUBSCRIPTION = "/topics/shop/new-subscription", "/topics/shop/subscriptions/eu"
LONG = "t" * 128
TEAM = '{"team": "payments"}'


def etag_in(page: str) -> str:
    """The version that a form changes."""
    (etag,) = re.findall(r'name="etag" value="([^"]*)"', page)
    return etag


async def subscription(console: ConsoleServer, name: str = "eu") -> Any:
    """A subscription, as the API answers it."""
    return await console.api.request_json("GET", f"/topics/shop/subscriptions/{name}")


async def test_a_topic_that_was_created_takes_subscriptions_and_messages(console: ConsoleServer) -> None:
    assert f'href="/console{NEW_TOPIC}"' in await console.page("/topics")
    created = await console.post(NEW_TOPIC, NEW_TOPIC, name="shop", description="About orders", labels=TEAM)
    page = await console.following(created)
    assert "Topic shop was created." in page
    assert f'href="/console{NEW_SUBSCRIPTION}"' in page
    response = await console.post(NEW_SUBSCRIPTION, NEW_SUBSCRIPTION, name="eu", filter="message.priority > 3")
    assert "Subscription eu was created." in await console.following(response)
    for priority in (1, 9):
        await console.api.request_json("POST", "/topics/shop/messages", {"body": 1, "priority": priority})
    assert await console.api.counts("shop.eu") == {"available": 1}
    found = await console.api.request_json("GET", "/topics/shop")
    assert (found["description"], found["labels"]) == ("About orders", {"team": "payments"})


async def test_a_subscription_has_the_settings_of_the_form(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    await console.api.request_json("PUT", "/queues/orders", {})
    fields = {"name": "eu", "target_queue": "orders", "property_name": "from", "property_type": "text"}
    fields["property_value"] = "shop"
    response = await console.post(
        NEW_SUBSCRIPTION, NEW_SUBSCRIPTION, **fields, remove_properties="trace\r\nspan\r\n", labels=TEAM
    )
    assert response.status_code == 303
    found = await subscription(console)
    assert (found["target_queue"], found["filter"]) == ("orders", None)
    assert (found["set_properties"], found["remove_properties"]) == ({"from": "shop"}, ["trace", "span"])
    assert found["labels"] == {"team": "payments"}
    page = html.unescape(await console.page(SUBSCRIPTION))
    assert '<input name="property_value" value="shop"' in page
    assert "trace\nspan</textarea>" in page


async def test_an_unchanged_form_changes_nothing(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {"description": "a <b>"})
    settings = {"filter": "message.subject == 'x'", "set_properties": {"n": 1}, "remove_properties": ["a b"]}
    settings["labels"] = {"a<": 'b"', "c": ""}
    await console.api.request_json("PUT", "/topics/shop/subscriptions/eu", settings)
    before = await subscription(console)
    page = await console.page(SUBSCRIPTION)
    fields = dict(re.findall(r'<input (?:id="\w+" |type="hidden" )name="(\w+)" value="([^"]*)"', page))
    fields |= dict(re.findall(r'<textarea id="\w+" name="(\w+)"[^>]*>\n([^<]*)</textarea>', page))
    fields |= dict(re.findall(r'<input name="(property_name|property_value)" value="([^"]+)"', page))
    fields |= {"property_type": re.findall(r"<option selected>([a-z ]+)</option>", page)[0]}
    unchanged = {name: html.unescape(text) for name, text in fields.items()}
    assert (await console.http.post(f"/console{SUBSCRIPTION}", data=unchanged)).status_code == 303
    assert await subscription(console) == before


async def test_settings_are_changed_unless_others_have_changed_them_meanwhile(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    await console.api.request_json("PUT", "/topics/shop/subscriptions/eu", {})
    of_topic, of_subscription = [etag_in(await console.page(path)) for path in (SETTINGS, SUBSCRIPTION)]
    changed = await console.post(SETTINGS, SETTINGS, etag=of_topic, description="mine")
    assert "The settings were changed." in await console.following(changed)
    late = await console.post(SETTINGS, SETTINGS, etag=of_topic, description="late")
    assert (late.status_code, 'value="late"' in late.text) == (412, True)
    assert "Load the settings as they are now" in late.text
    fields = {"target_queue": "shop.eu", "filter": "message.priority > 3"}
    assert (await console.post(SUBSCRIPTION, "", etag=of_subscription, **fields)).status_code == 303
    late = await console.post(SUBSCRIPTION, "", etag=of_subscription, target_queue="shop.eu", filter="true")
    assert (late.status_code, "Load the subscription as it is now" in late.text) == (412, True)
    assert (await subscription(console))["filter"] == "message.priority > 3"
    assert (await console.api.request_json("GET", "/topics/shop"))["description"] == "mine"


async def test_a_queue_that_is_named_needs_send_and_a_new_one_manage(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    admin = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    await api.request("PUT", "/topics/shop", {}, headers=admin)
    await api.request("PUT", "/queues/shop.us", {}, headers=admin)
    rights = (Right.BROWSE, Right.MANAGE)
    await console_with_keys.sign_in(await api.new_key(*rights, patterns=("shop", "shop.*")))
    named = await console_with_keys.post(NEW_SUBSCRIPTION, "", name="us", target_queue="shop.us")
    assert (named.status_code, "right send" in named.text) == (403, True)
    assert (await console_with_keys.post(NEW_SUBSCRIPTION, "", name="eu")).status_code == 303


async def test_a_target_queue_that_stays_needs_no_right(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    admin = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    await api.request("PUT", "/topics/shop", {}, headers=admin)
    await api.request("PUT", "/queues/orders", {}, headers=admin)
    await api.request("PUT", "/topics/shop/subscriptions/eu", {"target_queue": "orders"}, headers=admin)
    await console_with_keys.sign_in(await api.new_key(*Right, patterns=("shop",)))
    etag = etag_in(await console_with_keys.page(SUBSCRIPTION))
    changed = await console_with_keys.post(SUBSCRIPTION, "", etag=etag, target_queue="orders", filter="true")
    assert changed.status_code == 303


async def test_a_form_that_is_refused_as_late_creates_no_queue(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    await console.api.request_json("PUT", "/queues/orders", {})
    await console.api.request_json("PUT", "/topics/shop/subscriptions/eu", {"target_queue": "orders"})
    late = await console.post(SUBSCRIPTION, "", etag="late", target_queue="")
    assert late.status_code == 412
    assert (await console.api.request("GET", "/queues/shop.eu")).status_code == 404


async def test_a_subscription_gets_another_queue(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    await console.api.request_json("PUT", "/queues/orders", {})
    await console.api.request_json("PUT", "/topics/shop/subscriptions/eu", {"target_queue": "orders"})
    etag = etag_in(await console.page(SUBSCRIPTION))
    assert (await console.post(SUBSCRIPTION, "", etag=etag, target_queue="")).status_code == 303
    assert (await subscription(console))["target_queue"] == "shop.eu"
    assert await console.api.counts("shop.eu") == {}


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("name", "", "Write a name."),
        ("name", "no name!", "A name has 1 to 128"),
        ("name", LONG, "is too long for the name of a queue"),
        ("target_queue", "missing", "There is no queue named missing"),
        ("target_queue", "no name!", "must match the pattern"),
        ("filter", "message.delivery_count > 1", "evaluated before a message is stored"),
        ("filter", "message.", ""),
        ("remove_properties", "n" * 129, "must have at most 128 characters"),
        ("labels", '{"a": 1}', "must be a string"),
        ("labels", "team", "This is not valid JSON"),
    ],
)
async def test_a_fault_of_a_subscription_is_shown_and_what_was_typed_stays(
    console: ConsoleServer, field: str, text: str, sentence: str
) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    fields = {"name": "eu", "filter": "true && true", field: text}
    response = await console.post(NEW_SUBSCRIPTION, NEW_SUBSCRIPTION, **fields)
    assert response.status_code in (404, 422)
    shown = html.unescape(response.text)
    assert sentence in shown
    assert 'role="alert">' in shown.partition("<main")[2]
    for typed in fields.values():
        assert typed in shown
    assert (await console.api.request_json("GET", "/topics/shop/subscriptions"))["items"] == []


async def test_an_unchanged_form_of_a_topic_changes_nothing(console: ConsoleServer) -> None:
    body = {"description": "a <b>", "labels": {"a<": 'b"', "c": ""}}
    before = await console.api.request_json("PUT", "/topics/shop", body)
    page = await console.page(SETTINGS)
    (labels,) = re.findall(r'<textarea id="labels" name="labels"[^>]*>\n([^<]*)</textarea>', page)
    fields = {"etag": etag_in(page), "description": "a <b>", "labels": html.unescape(labels)}
    assert (await console.post(SETTINGS, SETTINGS, **fields)).status_code == 303
    assert await console.api.request_json("GET", "/topics/shop") == before


@pytest.mark.parametrize(("text", "sentence"), [('{"a": 1}', "must be a string"), ("team", "This is not valid JSON")])
async def test_a_fault_in_labels_of_a_topic_is_shown_and_what_was_typed_stays(
    console: ConsoleServer, text: str, sentence: str
) -> None:
    response = await console.post(NEW_TOPIC, NEW_TOPIC, name="shop", labels=text)
    assert (response.status_code, sentence in response.text) == (422, True)
    assert f"\n{text}</textarea>" in html.unescape(response.text)


async def test_a_topic_or_a_subscription_that_exists_stays_as_it_is(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {"description": "theirs"})
    await console.api.request_json("PUT", "/queues/orders", {})
    await console.api.request_json("PUT", "/topics/shop/subscriptions/eu", {"target_queue": "orders"})
    for path, kind, name in ((NEW_TOPIC, "topic", "shop"), (NEW_SUBSCRIPTION, "subscription", "eu")):
        response = await console.post(path, path, name=name)
        assert response.status_code == 409
        assert f"There is a {kind} named {name} already." in response.text
    assert (await console.api.request_json("GET", "/topics/shop"))["description"] == "theirs"
    assert await console.api.broker.store.queues.by_name("shop.eu") is None


async def test_a_field_that_a_form_does_not_have_is_refused(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    await console.api.request_json("PUT", "/topics/shop/subscriptions/eu", {})
    for path in (NEW_TOPIC, SETTINGS, NEW_SUBSCRIPTION, SUBSCRIPTION):
        response = await console.post(path, path, name="other", etag="1-1", ttl="5")
        assert response.status_code == 422, path
        assert "This form has no field" in response.text


async def test_what_is_not_there_has_no_page(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    for path in ("/topics/other/settings", "/topics/other/new-subscription", SUBSCRIPTION):
        assert (await console.get(path)).status_code == 404, path
    assert (await console.get("/topics/shop/subscriptions/no%20name")).status_code == 404


async def test_a_key_without_the_right_changes_nothing(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await api.request_json("PUT", "/topics/shop", {})
    await api.request_json("PUT", "/topics/shop/subscriptions/eu", {})
    await console_with_keys.sign_in(await api.new_key(*(right for right in Right if right is not Right.MANAGE)))
    for path in ("/topics", "/topics/shop", SUBSCRIPTION):
        page = await console_with_keys.page(path)
        assert not re.search("Create a|Change the|Delete", page)
    for path in (NEW_TOPIC, SETTINGS, NEW_SUBSCRIPTION):
        assert (await console_with_keys.get(path)).status_code == 403
    for path in (NEW_TOPIC, SETTINGS, NEW_SUBSCRIPTION, SUBSCRIPTION):
        fields = {"csrf_token": token_of(page), "name": "other"}
        assert (await console_with_keys.http.post(f"/console{path}", data=fields)).status_code == 403, path


async def test_a_topic_is_created_by_a_key_that_may_manage_its_name(console_with_keys: ConsoleServer) -> None:
    rights = (Right.MANAGE, Right.BROWSE)
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*rights, patterns=("shop.*",)))
    assert (await console_with_keys.post(NEW_TOPIC, NEW_TOPIC, name="shop.eu")).status_code == 303
    refused = await console_with_keys.post(NEW_TOPIC, NEW_TOPIC, name="other", description="kept")
    assert (refused.status_code, 'value="kept"' in refused.text) == (403, True)


async def test_a_target_queue_needs_the_rights_that_it_needs_in_the_api(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await api.request_json("PUT", "/topics/shop", {})
    await api.request_json("PUT", "/queues/private", {})
    await console_with_keys.sign_in(await api.new_key(*Right, patterns=("shop",)))
    for target in ("private", ""):
        fields = {"name": "eu", "target_queue": target}
        response = await console_with_keys.post(NEW_SUBSCRIPTION, NEW_SUBSCRIPTION, **fields)
        assert response.status_code == 403
    assert await api.broker.store.queues.by_name("shop.eu") is None
