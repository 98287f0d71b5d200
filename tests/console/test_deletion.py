"""Queues, topics and subscriptions are deleted once their name was typed. A page says first what is lost."""

import re

import httpx
import pytest

from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of

QUEUE, TOPIC = "/queues/orders/delete", "/topics/shop/delete"
SUBSCRIPTION = "/topics/shop/subscriptions/eu/delete"


async def add_topic(console: ConsoleServer) -> None:
    """Create the topic `shop` with the subscriptions `eu` and `us`, and a message in each of their queues."""
    await console.api.request_json("PUT", "/topics/shop", {})
    for name in ("eu", "us"):
        await console.api.request_json("PUT", f"/topics/shop/subscriptions/{name}", {})
    await console.api.request_json("POST", "/topics/shop/messages", {"body": 1})


async def send_name(console: ConsoleServer, path: str, name: str) -> httpx.Response:
    """Type a name into the form of a page and send it."""
    page = await console.page(path)
    (etag,) = re.findall(r'name="etag" value="([^"]*)"', page)
    fields = {"csrf_token": token_of(page), "etag": etag, "name": name}
    return await console.http.post(f"/console{path}", data=fields)


async def delete(console: ConsoleServer, path: str, name: str) -> int:
    """Type a name into the form of a page and send it. Return the status of the answer."""
    return (await send_name(console, path, name)).status_code


async def exists(console: ConsoleServer, path: str) -> bool:
    """Return whether the API finds what is at a path."""
    return (await console.api.request("GET", path)).status_code == 200


async def test_a_queue_is_deleted_once_its_name_was_typed(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    assert f'href="/console{QUEUE}"' in await console.page("/queues/orders/settings")
    assert await delete(console, QUEUE, "order") == 422
    assert await exists(console, "/queues/orders")
    assert await delete(console, QUEUE, "orders") == 303
    assert not await exists(console, "/queues/orders")
    assert (await console.get(QUEUE)).status_code == 404


async def test_the_list_after_the_deletion_of_a_queue_says_so_and_has_no_row_of_it(console: ConsoleServer) -> None:
    for name in ("orders", "payments"):
        await console.api.request_json("PUT", f"/queues/{name}", {})
    response = await send_name(console, QUEUE, "orders")
    page = await console.following(response)
    assert '<p class="banner done boxed" role="status">Queue orders was deleted.</p>' in page
    assert re.findall(r'<tr data-row="([^"]*)"', page) == ["payments"]


@pytest.mark.parametrize(
    ("path", "name", "sentence"),
    [(TOPIC, "shop", "Topic shop was deleted."), (SUBSCRIPTION, "eu", "Subscription eu was deleted.")],
)
async def test_the_page_after_a_deletion_says_what_was_deleted(
    console: ConsoleServer, path: str, name: str, sentence: str
) -> None:
    await add_topic(console)
    response = await send_name(console, path, name)
    assert sentence in await console.following(response)


async def test_a_page_confirms_no_action_that_it_does_not_know(console: ConsoleServer) -> None:
    for query in (
        "action_name=delete-queue&done=<b>",
        "action_name=delete-queue",
        "action_name=boast&done=orders",
        "done=orders",
    ):
        assert 'class="banner done' not in await console.page(f"?{query}")


async def test_a_wrong_name_stays_in_the_form(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    response = await console.post(QUEUE, QUEUE, name="order<s", etag="1-1")
    assert response.status_code == 422
    assert "This is not the name of the queue. Nothing has changed." in response.text
    assert 'value="order&lt;s"' in response.text


async def test_the_page_counts_the_messages_that_are_lost(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"archive_retention_seconds": 0})
    await console.api.request_json("PUT", "/queues/near", {"forward_to": "orders"})
    for body in range(3):
        await console.api.request_json("POST", "/queues/orders/messages", {"body": body})
    await console.api.settle(*await console.api.receive(), "dead-letter", reason="broken")
    await console.api.receive()
    page = await console.page(QUEUE)
    assert "3 messages leave the queue: 1 available, 1 locked, 1 dead-lettered." in page
    assert "This queue keeps no archive, so they are lost." in page
    assert "Receivers lose the locks that they hold." in page
    assert "1 queue forwards to it: near." in page
    await console.api.request_json("PUT", "/queues/far", {"forward_dead_letters_to": "orders"})
    assert "2 queues forward to it: far, near." in await console.page(QUEUE)


async def test_the_page_says_how_long_the_archive_keeps_the_messages(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    page = await console.page(QUEUE)
    assert "1 message leaves the queue: 1 available." in page
    assert "The archive keeps messages of this queue for 7 d." in page


async def test_the_page_of_an_empty_queue_says_so(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    assert "The queue holds no message." in await console.page(QUEUE)


async def test_the_target_of_a_subscription_is_not_deleted(console: ConsoleServer) -> None:
    await add_topic(console)
    page = await console.page("/queues/shop.eu/delete")
    assert "Subscription eu of topic shop sends to queue shop.eu" in page
    assert 'name="etag"' not in page
    response = await console.post("/queues/shop.eu/delete", "", name="shop.eu", etag="")
    assert response.status_code in (409, 412)
    assert await exists(console, "/queues/shop.eu")


async def test_a_queue_whose_settings_changed_meanwhile_is_not_deleted(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    page = await console.page(QUEUE)
    (etag,) = re.findall(r'name="etag" value="([^"]*)"', page)
    await console.api.request_json("PUT", "/queues/orders", {"description": "theirs"})
    response = await console.post(QUEUE, "", name="orders", etag=etag)
    assert response.status_code == 412
    assert "Load this page again" in response.text
    assert await exists(console, "/queues/orders")


@pytest.mark.parametrize(
    ("path", "name", "changed"),
    [(TOPIC, "shop", {"description": "theirs"}), (SUBSCRIPTION, "eu", {"filter": "message.priority > 4"})],
)
async def test_what_was_changed_since_the_page_was_shown_is_not_deleted(
    console: ConsoleServer, path: str, name: str, changed: dict[str, str]
) -> None:
    await add_topic(console)
    page = await console.page(path)
    (etag,) = re.findall(r'name="etag" value="([^"]*)"', page)
    kept = path.removesuffix("/delete")
    await console.api.request_json("PUT", kept, changed)
    response = await console.post(path, path, name=name, etag=etag)
    assert (response.status_code, await exists(console, kept)) == (412, True)


async def test_a_topic_is_deleted_with_its_subscriptions_and_its_queues_stay(console: ConsoleServer) -> None:
    await add_topic(console)
    page = await console.page(TOPIC)
    assert "2 subscriptions end: eu, us." in page
    assert "Their queues stay, with their messages." in page
    assert await delete(console, TOPIC, "shops") == 422
    assert await exists(console, "/topics/shop")
    assert await delete(console, TOPIC, "shop") == 303
    assert not await exists(console, "/topics/shop")
    assert await console.api.counts("shop.eu") == {"available": 1}


async def test_a_topic_without_subscriptions_loses_none(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    assert "It has no subscription." in await console.page(TOPIC)


async def test_a_subscription_is_deleted_and_its_queue_stays(console: ConsoleServer) -> None:
    await add_topic(console)
    assert "Queue shop.eu stays, with 1 message." in await console.page(SUBSCRIPTION)
    assert await delete(console, SUBSCRIPTION, "us") == 422
    assert await delete(console, SUBSCRIPTION, "eu") == 303
    assert not await exists(console, "/topics/shop/subscriptions/eu")
    assert await exists(console, "/topics/shop/subscriptions/us")
    assert await console.api.counts("shop.eu") == {"available": 1}
    assert (await console.get(SUBSCRIPTION)).status_code == 404
    assert (await console.get("/topics/shop/subscriptions/-/delete")).status_code == 404


async def test_only_visitors_who_may_browse_the_queue_see_how_many_messages_it_has(
    console_with_keys: ConsoleServer,
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await add_topic(console_with_keys)
    await api.request_json("PUT", "/queues/shop", {})
    await api.request_json("PUT", "/queues/private", {"forward_to": "shop"})
    rights = (Right.BROWSE, Right.MANAGE)
    await console_with_keys.sign_in(await api.new_key(*rights, patterns=("shop",)))
    assert "Queue shop.eu stays." in await console_with_keys.page(SUBSCRIPTION)
    page = await console_with_keys.page("/queues/shop/delete")
    assert "Queues that you may not browse may forward to it too." in page
    assert "private" not in page


@pytest.mark.parametrize("path", [QUEUE, TOPIC, SUBSCRIPTION])
async def test_a_field_that_the_form_does_not_have_is_refused(console: ConsoleServer, path: str) -> None:
    await add_topic(console)
    await console.api.request_json("PUT", "/queues/orders", {})
    response = await console.post(path, path, name="orders", dry_run="true")
    assert response.status_code == 422
    assert "This form has no field `dry_run`." in response.text


@pytest.mark.parametrize("path", [QUEUE, TOPIC, SUBSCRIPTION])
async def test_a_key_without_the_right_deletes_nothing(console_with_keys: ConsoleServer, path: str) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await add_topic(console_with_keys)
    await api.request_json("PUT", "/queues/orders", {})
    await console_with_keys.sign_in(await api.new_key(*(right for right in Right if right is not Right.MANAGE)))
    token = token_of(await console_with_keys.page("/topics/shop"))
    assert (await console_with_keys.get(path)).status_code == 403
    for name in ("orders", "shop", "eu"):
        fields = {"csrf_token": token, "name": name, "etag": "1-1"}
        assert (await console_with_keys.http.post(f"/console{path}", data=fields)).status_code == 403
    for kept in ("/queues/orders", "/topics/shop", "/topics/shop/subscriptions/eu"):
        assert await exists(console_with_keys, kept)
