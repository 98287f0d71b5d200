"""Two people on the same page: one of two changes takes effect, and the other person reads a sentence. Nothing fails."""

import asyncio
import html
import re
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of
from tests.console.test_dead_letters import dead_letter

QUEUE, SUBSCRIPTION = "/queues/orders", "/topics/shop/subscriptions/eu"


@pytest.fixture
async def people(console: ConsoleServer) -> AsyncIterator[Sequence[httpx.AsyncClient]]:
    """Two browsers."""
    async with console.browser() as one, console.browser() as other:
        yield one, other


async def fields_on(person: httpx.AsyncClient, path: str, button: str = "") -> dict[str, object]:
    """The fields of the form on a page that has this button, or of its last form."""
    page = (await person.get(f"/console{path}")).text
    forms = [form for form in re.findall(r'<form[^>]* method="post".*?</form>', page, re.DOTALL) if button in form]
    found: dict[str, object] = {}
    for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', forms[-1]):
        found[name] = html.unescape(value) if name != "number" else [*found.get(name, ()), value]  # type: ignore[misc]
    return {"csrf_token": token_of(page)} | found


async def both(
    people: Sequence[httpx.AsyncClient], path: str, forms: Sequence[dict[str, object]]
) -> list[httpx.Response]:
    """Send the forms of both people at the same time. Returns the answers, first that which leads to another page."""
    sent = [person.post(f"/console{path}", data=form) for person, form in zip(people, forms, strict=True)]
    answers = await asyncio.gather(*sent)
    assert [answer for answer in answers if answer.status_code >= 500] == []
    return sorted(answers, key=lambda answer: answer.status_code)


def sentence_of(answer: httpx.Response) -> str:
    """What a page of a refusal says."""
    main = answer.text.partition("<main")[2]
    return html.unescape(" ".join(re.findall(r'role="alert"[^>]*>([^<]+)|<p>([^<]+)', main).__str__().split()))


@pytest.mark.parametrize("action", ["redrive", "resubmit", "purge"])
async def test_selected_messages_are_changed_once(
    console: ConsoleServer, people: Sequence[httpx.AsyncClient], action: str
) -> None:
    await dead_letter(console, *"abc")
    path = f"{QUEUE}/selected?action_name={action}&number=1&number=2&number=3"
    forms = [await fields_on(person, path) for person in people]
    first, second = await both(people, f"{QUEUE}/selected", forms)
    assert (first.status_code, second.status_code) == (303, 409)
    assert "done=3" in first.headers["location"]
    assert re.search("have changed|is locked by a receiver", sentence_of(second))
    assert await console.api.counts() == ({} if action == "purge" else {"available": 3})


@pytest.mark.parametrize(
    ("path", "fields", "kind"),
    [
        ("/new-queue", {"name": "orders"}, "queue"),
        ("/new-topic", {"name": "orders"}, "topic"),
        ("/topics/shop/new-subscription", {"name": "eu"}, "subscription"),
    ],
)
async def test_one_of_two_creates_a_name(
    console: ConsoleServer, people: Sequence[httpx.AsyncClient], path: str, fields: dict[str, str], kind: str
) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    tokens = [{"csrf_token": token_of((await person.get(f"/console{path}")).text)} for person in people]
    typed: list[dict[str, str]] = [{}, {}] if kind == "subscription" else [{"description": text} for text in "ab"]
    first, second = await both(
        people, path, [{**token, **fields, **text} for token, text in zip(tokens, typed, strict=True)]
    )
    assert (first.status_code, second.status_code) == (303, 409)
    assert f"There is a {kind} named {fields['name']} already." in second.text
    assert f'value="{fields["name"]}"' in second.text


@pytest.mark.parametrize(
    ("path", "button", "change", "other"),
    [
        (
            f"{QUEUE}/settings",
            "Preview",
            {"description": "a", "confirmed": "true"},
            {"description": "b", "confirmed": "true"},
        ),
        ("/topics/shop/settings", "Change", {"description": "a"}, {"description": "b"}),
        (
            SUBSCRIPTION,
            "Change",
            {"target_queue": "shop.eu", "filter": "true"},
            {"target_queue": "shop.eu", "filter": "false"},
        ),
        (f"{QUEUE}/messages/1/edit", "Save", {"priority": "1"}, {"priority": "2"}),
        (f"{QUEUE}/delete", "Delete", {"name": "orders"}, {"name": "orders"}),
        ("/topics/shop/delete", "Delete", {"name": "shop"}, {"name": "shop"}),
        (f"{SUBSCRIPTION}/delete", "Delete", {"name": "eu"}, {"name": "eu"}),
    ],
)
async def test_one_of_two_changes_takes_effect(
    console: ConsoleServer,
    people: Sequence[httpx.AsyncClient],
    path: str,
    button: str,
    change: dict[str, str],
    other: dict[str, str],
) -> None:
    await console.api.send(body=1)
    await console.api.request_json("PUT", "/topics/shop", {})
    await console.api.request_json("PUT", SUBSCRIPTION, {})
    pages = [await fields_on(person, path, button) for person in people]
    forms = [{name: page[name] for name in ("csrf_token", "etag")} for page in pages]
    first, second = await both(people, path, [{**forms[0], **change}, {**forms[1], **other}])
    assert (first.status_code, second.status_code in (404, 409, 412)) == (303, True), second.text
    assert len(sentence_of(second)) > 20


async def test_the_settings_of_a_queue_that_was_deleted_are_refused_with_a_sentence(
    console: ConsoleServer, people: Sequence[httpx.AsyncClient]
) -> None:
    await console.api.request_json("PUT", QUEUE, {})
    form = await fields_on(people[0], f"{QUEUE}/settings", "Preview")
    delete = await fields_on(people[1], f"{QUEUE}/delete", "Delete")
    await people[1].post(f"/console{QUEUE}/delete", data={**delete, "name": "orders"})
    answer = await people[0].post(
        f"/console{QUEUE}/settings",
        data={"csrf_token": form["csrf_token"], "etag": form["etag"], "description": "typed"},
    )
    assert answer.status_code == 404
    assert "no queue" in answer.text
    assert "typed" in answer.text


async def test_a_person_whose_key_is_revoked_meanwhile_signs_in_again(console_with_keys: ConsoleServer) -> None:
    admin = await console_with_keys.api.new_key(*Right, principal="admin")
    clerk = await console_with_keys.api.new_key(*Right, principal="clerk")
    key = next(key for key in await console_with_keys.api.broker.store.keys.list_all() if key.principal == "clerk")
    async with console_with_keys.browser() as other:
        page = (await other.get("/console/sign-in")).text
        await other.post("/console/sign-in", data={"csrf_token": token_of(page), "api_key": clerk})
        token = token_of((await other.get("/console")).text)
        await console_with_keys.sign_in(admin)
        await console_with_keys.post(f"/keys/{key.id}/revoke", "", name="clerk")
        answer = await other.post("/console/new-queue", data={"csrf_token": token, "name": "orders"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/sign-in")
    again = await console_with_keys.post(f"/keys/{key.id}/revoke", "", name="clerk")
    assert (again.status_code, "No live API key has this id." in again.text) == (404, True)
