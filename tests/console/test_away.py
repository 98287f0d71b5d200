"""While the database is away, the console shows what it has in memory to people it knows, and says how old that is."""

import re
from dataclasses import replace
from typing import Any

from app.broker.access.keys import Authenticator
from app.broker.access.sessions import _CACHE_SECONDS
from app.console.access import COOKIE
from app.console.known_visitors import KEPT_SECONDS, MAX_VISITORS, KnownVisitor, KnownVisitors
from app.domain.access import ANONYMOUS, Right
from app.domain.refusals import StoreUnavailable
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer, token_of
from tests.virtual_clock import VirtualClock

AWAY = "The database cannot be reached."


async def away(*_: object) -> None:
    """The database does not answer."""
    raise StoreUnavailable(AWAY)


async def take_the_database_away(console: ConsoleServer, seconds: float = 60) -> None:
    """Let the database answer no more, and some time pass."""
    console.take_queues_away(page=away)
    console.take_sessions_away(key_of=away, delete=away)
    await console.api.clock.advance(max(seconds, _CACHE_SECONDS + 1))


async def sign_in(console: ConsoleServer, *patterns: str) -> None:
    """Make queues, and sign in with a key that may do everything with some of them."""
    key = await console.api.new_key(*Right, patterns=("*",))
    for queue in ("orders", "payments"):
        headers = {"authorization": f"Bearer {key}"}
        await console.api.request("POST", f"/queues/{queue}/messages", {"body": 1}, headers=headers)
    await console.sign_in(await console.api.new_key(*Right, principal="operator", patterns=patterns or ("*",)))
    await console.page()


def rows(page: str) -> list[str]:
    """The queues of the overview."""
    return re.findall(r'<tr data-row="([^"]*)"', page)


async def test_the_overview_shows_the_last_known_figures_and_their_age(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    assert re.search(r"data-old hidden", await console_with_keys.page())
    await take_the_database_away(console_with_keys, 123)
    page = await console_with_keys.get()
    assert page.status_code == 200
    assert rows(page.text) == ["orders", "payments"]
    assert re.search(r"data-old>Last known figures, <span data-age>2 min 0\d s</span> old", page.text)
    assert "data-store-away>" in page.text


async def test_it_shows_no_more_than_the_visitor_may_see(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys, "orders")
    await take_the_database_away(console_with_keys)
    assert rows((await console_with_keys.get()).text) == ["orders"]


async def test_an_open_server_shows_it_too(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    await console.page()
    await console.page()
    console.take_queues_away(page=away)
    assert rows((await console.get()).text) == ["orders"]


async def test_a_visitor_of_a_server_without_keys_stays_known(console_with_keys: ConsoleServer) -> None:
    console, keys = console_with_keys, console_with_keys.api.broker.store.keys
    keys_away: Any = ChangedStore(keys, list_all=away)
    for store in (keys, keys_away):
        authenticator = Authenticator(store, console.api.clock, anonymous_without_keys=True)
        console.application.state.context = replace(console.context, authenticator=authenticator)
        responses = [await console.get() for _ in range(2)]
        assert [response.status_code for response in responses] == [200, 200]
    foreign = await console.get(headers={"origin": "https://evil.test"})
    assert (foreign.status_code, rows(foreign.text)) == (503, [])
    assert (await console.get("/topics")).status_code == 503


async def test_a_browser_that_the_process_does_not_know_sees_nothing(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    async with console_with_keys.browser() as stranger:
        stranger.cookies.set("peeklock_session", "another")
        response = await stranger.get("/console")
    assert response.status_code == 503
    assert rows(response.text) == []
    assert "last known figures" not in response.text


async def test_a_visitor_is_known_for_an_hour(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys, KEPT_SECONDS - 60)
    assert (await console_with_keys.get()).status_code == 200
    await console_with_keys.api.clock.advance(60)
    assert (await console_with_keys.get()).status_code == 503


async def test_a_visitor_who_has_signed_out_is_not_known(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    cookies = dict(console_with_keys.http.cookies)
    await console_with_keys.post("/sign-out")
    console_with_keys.http.cookies.update(cookies)
    await take_the_database_away(console_with_keys)
    assert (await console_with_keys.get()).status_code == 503


async def test_a_visitor_whose_key_was_seen_to_be_revoked_is_not_known(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    store = console_with_keys.api.broker.store.keys
    for key in await store.list_all():
        await store.revoke(key.id)
    await console_with_keys.api.clock.advance(_CACHE_SECONDS + 1)
    assert (await console_with_keys.get()).status_code == 303
    await take_the_database_away(console_with_keys)
    assert (await console_with_keys.get()).status_code == 503


async def test_a_visitor_whose_key_was_revoked_on_a_page_is_not_known(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    secret = console_with_keys.http.cookies[COOKIE]
    assert console_with_keys.context.visitors.find(secret) is not None
    key_id = next(
        key.id for key in await console_with_keys.api.broker.store.keys.list_all() if key.principal == "operator"
    )
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right, principal="admin"))
    assert (await console_with_keys.post(f"/keys/{key_id}/revoke", "/keys", name="operator")).status_code == 303
    console_with_keys.http.cookies.set(COOKIE, secret, domain="peeklock.test", path="/console")
    await take_the_database_away(console_with_keys)
    assert (await console_with_keys.get()).status_code == 503


async def test_visitors_without_a_key_are_not_known_once_one_is_needed(console: ConsoleServer) -> None:
    await console.page()
    secret = console.http.cookies[COOKIE]
    assert console.context.visitors.find(secret) is not None
    key = {"principal": "admin", "rights": list(Right), "patterns": "*"}
    async with console.browser() as admin:
        token = token_of((await admin.get("/console/keys")).text)
        assert "The key of admin" in (await admin.post("/console/keys", data={"csrf_token": token, **key})).text
    assert console.context.visitors.find(secret) is None


async def test_without_figures_in_memory_the_overview_says_that_it_waits(console: ConsoleServer) -> None:
    console.take_queues_away(page=away)
    response = await console.get()
    assert response.status_code == 503
    assert "There is no queue yet" not in response.text


async def test_other_pages_say_what_still_works(console_with_keys: ConsoleServer) -> None:
    await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    response = await console_with_keys.get("/queues/orders?x=1")
    assert response.status_code == 503
    assert AWAY in response.text
    assert "The database does not answer" in response.text
    assert "the last known figures of the queues" in response.text
    assert "The figures are the last known ones." not in response.text
    assert '<meta http-equiv="refresh" content="5">' in response.text


def test_the_oldest_of_too_many_visitors_is_dropped() -> None:
    visitors, visitor = KnownVisitors(VirtualClock()), KnownVisitor(ANONYMOUS, is_signed_in=False)
    for number in range(MAX_VISITORS + 1):
        visitors.remember(str(number), visitor)
        visitors.remember("1", visitor)
    assert visitors.find("0") is None
    assert visitors.find("1") == visitor
