"""API keys are listed with what they may do. A new one is shown once, and a revoked one is refused."""

import html
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.broker.access.keys import Authenticator, create_key, revoke_key
from app.console.keys import MAX_ENDED, MAX_LIVE
from app.domain.access import ApiKey, Grant, Right
from app.domain.instant import Instant
from app.domain.refusals import StoreUnavailable
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer, token_of

PAGE = "/keys"
FIELDS = {"principal": "shop", "rights": ["send", "browse"], "patterns": "orders orders.*", "expires_in": ""}
FIRST = {**FIELDS, "rights": [right.value for right in Right], "patterns": "*"}


def secret_in(page: str) -> str:
    """The secret on the page of a new key."""
    found = re.search(r'<pre id="secret"><code>(pk_[\w-]+)</code>', page)
    assert found, page
    return found[1]


class Answers:
    """Those of a database that goes away once it has stored a key."""

    def __init__(self, console: ConsoleServer) -> None:
        self.are_over = False
        self._keys = console.api.broker.store.keys
        broker = console.context.broker
        self._clock = broker.store
        store: Any = ChangedStore(broker.store, keys=self, now=self.now)
        console.application.state.context = replace(console.context, broker=replace(broker, store=store))

    async def add(self, *key: Any) -> bool:
        """Store a key."""
        self.are_over = await self._keys.add(*key)
        return self.are_over

    async def list_all(self) -> list[ApiKey]:
        """Return the keys."""
        self._check()
        return await self._keys.list_all()

    async def now(self) -> Instant:
        """Return the time of the database."""
        self._check()
        return await self._clock.now()

    def _check(self) -> None:
        if self.are_over:
            raise StoreUnavailable


async def send_with(console: ConsoleServer, secret: str, queue: str = "orders") -> httpx.Response:
    """Send a message with an API key."""
    headers = {"authorization": f"Bearer {secret}"}
    return await console.api.request("POST", f"/queues/{queue}/messages", {"body": 1}, headers=headers)


async def sign_in(console: ConsoleServer) -> None:
    """Sign in with a key that may do everything. It is older than all keys that a test makes."""
    await console.sign_in(await console.api.new_key(*Right, principal="operator"))
    await console.api.clock.advance(1)


async def test_a_new_key_is_shown_once_and_works(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    made = await console_with_keys.post(PAGE, PAGE, **FIELDS)
    assert made.headers["cache-control"] == "no-store"
    secret = secret_in(made.text)
    assert (await send_with(console_with_keys, secret)).status_code == 201
    assert (await send_with(console_with_keys, secret, "payments")).status_code == 403
    sqs_secret = re.search(r"AWS_SECRET_ACCESS_KEY=([\w-]{43})<", made.text)
    assert sqs_secret, made.text
    page = await console_with_keys.page(PAGE)
    assert secret not in page
    assert sqs_secret[1] not in page
    assert "<code>orders orders.*</code>" in page


async def test_a_key_that_was_made_is_shown_also_if_the_database_goes_away_then(console: ConsoleServer) -> None:
    answers = Answers(console)
    made = await console.post(PAGE, PAGE, **FIRST)
    assert (answers.are_over, made.status_code) == (True, 200)
    assert (await send_with(console, secret_in(made.text))).status_code == 201
    assert '<th scope="row" class="wrap">shop</th>' in made.text


async def test_a_new_key_has_no_sqs_secret_without_that_of_the_servers(console: ConsoleServer) -> None:
    console.application.state.context = replace(console.context, sqs_secret=None)
    assert "AWS_SECRET_ACCESS_KEY" not in (await console.post(PAGE, PAGE, **FIRST)).text


async def test_a_key_ends_after_its_time(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    secret = secret_in((await console_with_keys.post(PAGE, PAGE, **FIELDS | {"expires_in": "2 d"})).text)
    assert (await send_with(console_with_keys, secret)).status_code == 201
    await console_with_keys.api.clock.advance(2 * 24 * 3600)
    assert (await send_with(console_with_keys, secret)).status_code == 401


async def test_a_key_that_is_in_use_is_refused_once_it_is_revoked(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    secret = secret_in((await console_with_keys.post(PAGE, PAGE, **FIELDS)).text)
    assert (await send_with(console_with_keys, secret)).status_code == 201
    paths = re.findall(r'href="/console(/keys/\w+/revoke)"', await console_with_keys.page(PAGE))
    assert (await send_with(console_with_keys, secret)).status_code == 201
    await console_with_keys.post(paths[-1], PAGE, name="shop")
    assert (await send_with(console_with_keys, secret)).status_code == 401


async def test_a_revoked_key_is_refused(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    secret = secret_in((await console_with_keys.post(PAGE, PAGE, **FIELDS)).text)
    page = await console_with_keys.page(PAGE)
    paths = re.findall(r'href="/console(/keys/\w+/revoke)"', page)
    shown = await console_with_keys.page(paths[-1])
    assert "It was never used." in shown
    assert "It may browse, send on orders orders.*." in shown
    assert "your session ends too" in await console_with_keys.page(paths[0])
    wrong = await console_with_keys.post(paths[-1], PAGE, name="other")
    assert (wrong.status_code, 'value="other"' in wrong.text) == (422, True)
    assert (await send_with(console_with_keys, secret)).status_code == 201
    response = await console_with_keys.post(paths[-1], PAGE, name="shop")
    assert "The key was revoked." in await console_with_keys.following(response)
    assert (await send_with(console_with_keys, secret)).status_code == 401
    assert "revoked <time" in await console_with_keys.page(PAGE)
    assert (await console_with_keys.post(paths[-1], PAGE, name="shop")).status_code == 404
    assert (await console_with_keys.post("/keys/no-key/revoke", PAGE, name="shop")).status_code == 404


async def test_the_page_says_what_each_key_may_do_on_a_name(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    await console_with_keys.post(PAGE, PAGE, **FIELDS)
    page = await console_with_keys.page(f"{PAGE}?name=orders.eu")
    rows = [re.findall(r'<span class="tag">(\w+)</span>', row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)]
    rights = ["send", "listen", "browse", "manage"]
    assert rows[1:] == [["yours", *rights, *rights], ["send", "browse"] * 2]
    assert 'class="none">nothing' in await console_with_keys.page(f"{PAGE}?name=payments")
    assert "<script>" not in await console_with_keys.page(f"{PAGE}?name=<script>")


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("principal", "", "Give a name."),
        ("principal", " shop", "fault-principal"),
        ("rights", [], "Choose a right."),
        ("rights", ["own"], "fault-rights"),
        ("patterns", "", "Give a pattern."),
        ("patterns", "orders <b>", "fault-patterns"),
        ("expires_in", "0", "From 1 s to 3650 d."),
        ("expires_in", "9" * 5000, "Write a duration such as 30 s"),
        ("expires_in", "9999 d", "fault-expires_in"),
        ("expires_in", "90", "This number has no unit."),
        ("name", "orders", "This form has no field `name`."),
    ],
)
async def test_a_fault_is_shown_at_its_field_and_nothing_is_made(
    console: ConsoleServer, field: str, value: str | list[str], fault: str
) -> None:
    response = await console.post(PAGE, PAGE, **FIELDS | {field: value})
    assert response.status_code == 422
    assert fault in html.unescape(response.text)
    assert await console.api.broker.store.keys.list_all() == []


async def test_a_third_live_key_of_a_principal_is_refused(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    for _ in range(2):
        assert (await console_with_keys.post(PAGE, PAGE, **FIELDS)).status_code == 200
    response = await console_with_keys.post(PAGE, PAGE, **FIELDS)
    assert response.status_code == 409
    assert 'role="alert"' in response.text


def checked_rights(page: str) -> list[str]:
    """The rights that the form of a page proposes."""
    return re.findall(r'name="rights" value="(\w+)" checked', page)


async def test_the_form_proposes_every_right_until_a_key_may_manage_keys(console: ConsoleServer) -> None:
    keys, clock = console.api.broker.store.keys, console.api.clock
    assert checked_rights(await console.page(PAGE)) == ["send", "listen", "browse", "manage"]
    await create_key(keys, "shop", Grant(frozenset(Right), ("orders",)), clock.now())
    assert len(checked_rights(await console.page(PAGE))) == 4
    await create_key(keys, "admin", Grant(frozenset(Right)), clock.now())
    assert checked_rights(await console.page(PAGE)) == ["send"]


@pytest.mark.parametrize(("rights", "field"), [(["send", "browse"], "rights"), (["manage"], "patterns")])
async def test_a_first_key_that_may_not_manage_keys_is_refused(
    console: ConsoleServer, rights: list[str], field: str
) -> None:
    response = await console.post(PAGE, PAGE, **FIELDS | {"rights": rights})
    assert response.status_code == 422
    fault = "No key would hold the right manage on every name: keys could not be created or revoked any more."
    assert re.findall(r'id="fault-(\w+)" role="alert">([^<]*)', response.text) == [(field, fault)]
    assert await console.api.broker.store.keys.list_all() == []


async def test_the_revocation_of_the_last_key_that_manages_keys_says_so(console: ConsoleServer) -> None:
    keys, clock = console.api.broker.store.keys, console.api.clock
    first = await create_key(keys, "admin", Grant(frozenset(Right)), clock.now())
    shop = await create_key(keys, "shop", Grant(frozenset({Right.SEND})), clock.now())
    assert "It is the last key with the right manage" in await console.page(f"{PAGE}/{first.key.id}/revoke")
    assert "last key" not in await console.page(f"{PAGE}/{shop.key.id}/revoke")
    await create_key(keys, "deputy", Grant(frozenset(Right)), clock.now())
    assert "last key" not in await console.page(f"{PAGE}/{first.key.id}/revoke")


async def test_the_first_key_closes_an_open_server(console: ConsoleServer) -> None:
    made = await console.post(PAGE, PAGE, **FIRST)
    assert "From now on this server needs a key." in made.text


async def test_the_first_key_closes_the_console_of_an_open_server_at_once(console: ConsoleServer) -> None:
    authenticator = Authenticator(console.api.broker.store.keys, console.api.clock, anonymous_without_keys=True)
    console.application.state.context = replace(console.context, authenticator=authenticator)
    assert (await console.get("/topics")).status_code == 200
    secret_in((await console.post(PAGE, PAGE, **FIRST)).text)
    assert (await console.get("/topics")).status_code == 303
    await authenticator.close()


@pytest.mark.parametrize("patterns", [("*",), ("orders",)])
async def test_only_who_may_manage_everything_sees_or_makes_keys(
    console_with_keys: ConsoleServer, patterns: tuple[str, ...]
) -> None:
    rights = [Right.BROWSE, Right.SEND] if patterns == ("*",) else list(Right)
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*rights, patterns=patterns))
    page = await console_with_keys.page("/transactions")
    assert "/console/keys" not in page
    assert (await console_with_keys.get(PAGE)).status_code == 403
    for path in (PAGE, f"{PAGE}/1/revoke"):
        fields = {"csrf_token": token_of(page), **FIELDS}
        assert (await console_with_keys.http.post(f"/console{path}", data=fields)).status_code == 403


async def test_the_list_is_bounded_and_a_principal_finds_the_others(console: ConsoleServer) -> None:
    store, clock = console.api.broker.store.keys, console.api.clock
    for number in range(MAX_LIVE + 1):
        grant = Grant(frozenset({Right.SEND}), ("*",))
        await create_key(store, f"shop-{number:03d}", grant, clock.now())
        await clock.advance(0.001)
    page = (await console.get(PAGE)).text
    assert page.count("/revoke") == MAX_LIVE
    assert f"The first {MAX_LIVE} of {MAX_LIVE + 1} keys are shown." in page
    found = (await console.get(f"{PAGE}?find=SHOP-{MAX_LIVE}")).text
    assert (found.count("/revoke"), "are shown" in found) == (1, False)
    assert f"shop-{MAX_LIVE}" in found
    hostile = (await console.get(f"{PAGE}?find=<script>")).text
    assert "No key that works now has" in hostile
    assert "<script>" not in hostile.replace("<script src", "")


async def test_keys_that_have_ended_are_listed_from_the_newest_on(console: ConsoleServer) -> None:
    store, clock = console.api.broker.store.keys, console.api.clock
    for number in range(MAX_ENDED + 1):
        made = await create_key(store, f"shop-{number:03d}", Grant(frozenset({Right.SEND}), ("*",)), clock.now())
        await revoke_key(store, made.key.id)
        await clock.advance(0.001)
    ended = (await console.get(PAGE)).text.partition('id="ended-title"')[2]
    assert re.findall(r"shop-(\d+)", ended) == [f"{number:03d}" for number in range(MAX_ENDED, 0, -1)]
