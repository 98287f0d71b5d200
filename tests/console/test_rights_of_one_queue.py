"""A key with rights on one of two queues learns nothing of the other one in the console, and changes nothing there."""

import html
import re
from typing import Any

import pytest
from fastapi.routing import APIRoute

from app.console.application import ROUTERS
from app.domain.access import Right
from tests.console.console_server import ConsoleServer

OWN, OTHER, MISSING = "orders", "zebra", "quagga"
"""A queue of the key, one of others, and one that does not exist."""

TRACE = "trace-1"
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
NAMED = [route for route in ROUTES if {"queue", "topic", "key"} & set(re.findall(r"\{(\w+)", route.path))]


def path_of(route: APIRoute, name: str) -> str:
    """The path of a route, with this name for every part of it that is free."""
    return (
        re.sub(r"\{sequence_number\}", "1", route.path.removeprefix("/console"))
        .replace("{queue}", name)
        .replace("{topic}", name)
        .replace("{key}", name)
        .replace("{subscription}", "eu")
        .replace("{transaction_id}", "1")
        .replace("{key_id}", "1")
    )


async def set_up(console: ConsoleServer) -> dict[str, str]:
    """Two queues, two topics and two states, and a session of a key with all rights on the names of one. Returns the
    headers of an administrator."""
    api = console.api
    admin = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    await api.request("PUT", f"/queues/{OWN}", {}, headers=admin)
    await api.request("PUT", f"/queues/{OTHER}", {"forward_dead_letters_to": OWN}, headers=admin)
    for name, count in ((OWN, 2), (OTHER, 5)):
        await api.request("PUT", f"/topics/{name}", {}, headers=admin)
        await api.request("PUT", f"/topics/{name}/subscriptions/eu", {"target_queue": name}, headers=admin)
        for number in range(count):
            message = {"body": number, "message_id": f"{name}-{number}", "correlation_id": TRACE}
            await api.request("POST", f"/queues/{name}/messages", message, headers=admin)
    await api.request("PATCH", f"/queues/{OTHER}", {"status": "receive_disabled"}, headers=admin)
    await console.sign_in(await api.new_key(*Right, patterns=(OWN,), principal="clerk"))
    return admin


async def counts(console: ConsoleServer, admin: dict[str, str]) -> Any:
    """What the API says of the other queue, its topic and its subscription."""
    paths = (f"/queues/{OTHER}", f"/topics/{OTHER}", f"/topics/{OTHER}/subscriptions/eu")
    return [(await console.api.request("GET", path, headers=admin)).json() for path in paths]


async def test_no_page_names_or_counts_the_other_queue(console_with_keys: ConsoleServer) -> None:
    await set_up(console_with_keys)
    await console_with_keys.sample()
    paths = [path_of(route, OWN) for route in ROUTES if "GET" in (route.methods or ()) and "assets" not in route.path]
    found = {path for path in paths if path != "/live" and OTHER in (await console_with_keys.get(path)).text}
    assert found == set()
    for path in (f"/trail?id={TRACE}", "?span=24h", "/topics?after=a"):
        assert OTHER not in (await console_with_keys.get(path)).text, path
    for path in ("?find=NAME", "/trail?id=NAME-1", "/states?after=NAME"):
        found, missing = [
            (await console_with_keys.get(path.replace("NAME", name))).text.replace(name, "NAME")
            for name in (OTHER, MISSING)
        ]
        assert found == missing, path


async def test_the_sums_attention_and_plots_are_those_of_the_own_queue(console_with_keys: ConsoleServer) -> None:
    await set_up(console_with_keys)
    page = await console_with_keys.page()
    assert re.findall(r'data-total="available"[^>]*>([^<]+)', page) == ["2"]
    assert "1 queue<" in page
    assert "1 needs attention" not in page
    assert "2 wait now" in page


async def test_every_address_of_the_other_queue_is_answered_as_that_of_a_missing_one(
    console_with_keys: ConsoleServer,
) -> None:
    admin = await set_up(console_with_keys)
    before = await counts(console_with_keys, admin)
    for route in NAMED:
        for method in route.methods or ():
            answers = []
            for name in (OTHER, MISSING):
                path = path_of(route, name)
                response = await (console_with_keys.post(path) if method == "POST" else console_with_keys.get(path))
                answers.append((response.status_code, told(response.text.replace(name, "NAME"))))
            assert answers[0][0] == 403, (method, route.path)
            assert answers[0] == answers[1], (method, route.path)
    assert await counts(console_with_keys, admin) == before


def told(page: str) -> list[str]:
    """What a page of a refusal says."""
    return [html.unescape(text) for text in re.findall(r"<(?:h1|p)[^>]*>([^<]*)</", page.partition("<main")[2])]


async def test_the_deletion_of_a_queue_does_not_count_the_queues_of_others(console_with_keys: ConsoleServer) -> None:
    await set_up(console_with_keys)
    await console_with_keys.sample()
    page = await console_with_keys.page(f"/queues/{OWN}/delete")
    assert "1 queue forwards" not in page
    assert "Queues that you may not browse may forward to it too." in page


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (f"/queues/{OWN}/settings", {"forward_to": "NAME"}),
        (f"/queues/{OWN}/settings", {"forward_dead_letters_to": "NAME"}),
        ("/new-queue", {"name": "NAME"}),
        ("/new-topic", {"name": "NAME"}),
        (f"/topics/{OWN}/new-subscription", {"name": "all", "target_queue": "NAME"}),
        (f"/queues/{OWN}/dead-letters/redrive", {"to_queue": "NAME", "until": "1"}),
    ],
)
async def test_no_form_tells_the_other_queue_from_a_missing_one(
    console_with_keys: ConsoleServer, path: str, fields: dict[str, str]
) -> None:
    await set_up(console_with_keys)
    answers = []
    for name in (OTHER, MISSING):
        sent = {field: text.replace("NAME", name) for field, text in fields.items()}
        response = await console_with_keys.post(path, "", **sent)
        answers.append((response.status_code, re.findall(r'role="alert">([^<]+)', response.text.replace(name, "NAME"))))
    assert answers[0] == answers[1]
    assert answers[0][0] == 403
