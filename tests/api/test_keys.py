"""API keys: made by whoever manages everything, shown once, ended at will."""

from typing import Any

import pytest

from app.domain.access import Right
from tests.api.house import House, pointers, problem


def bearer(secret: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {secret}"}}


@pytest.fixture
async def admin(guarded: House) -> dict[str, Any]:
    """How an administrator's request begins."""
    return bearer(await guarded.key(*Right, principal="admin"))


WANTED = {"principal": "shop", "rights": ["send"], "patterns": ["orders", "orders.*"]}


async def test_a_new_key_is_shown_once_and_works(guarded: House, admin: dict[str, Any]) -> None:
    answer = await guarded.call("POST", "/keys", WANTED, **admin)
    made = answer.json()
    secret = made.pop("secret")
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    assert len(secret) >= 43
    assert made.items() >= {**WANTED, "expires_at": None, "last_used_at": None, "revoked_at": None}.items()
    assert (await guarded.call("POST", "/queues/orders.eu/messages", **bearer(secret))).status_code == 201
    listed = await guarded.call("GET", "/keys", **admin)
    assert made in listed.json()["items"]
    assert secret not in listed.text


async def test_a_key_ends_when_its_time_is_over(guarded: House, admin: dict[str, Any]) -> None:
    made = await guarded.ask("POST", "/keys", {**WANTED, "expires_in_seconds": 60}, **admin)
    assert made["expires_at"] == "2027-01-15T08:01:00.000000Z"
    await guarded.clock.advance(59)
    assert (await guarded.call("POST", "/queues/orders/messages", **bearer(made["secret"]))).is_success
    await guarded.clock.advance(2)
    problem(await guarded.call("POST", "/queues/orders/messages", **bearer(made["secret"])), 401, "unauthenticated")


async def test_a_revoked_key_is_no_key(guarded: House, admin: dict[str, Any]) -> None:
    made = await guarded.ask("POST", "/keys", WANTED, **admin)
    assert (await guarded.call("POST", "/queues/orders/messages", **bearer(made["secret"]))).is_success
    assert (await guarded.call("DELETE", f"/keys/{made['id']}", **admin)).status_code == 204
    problem(await guarded.call("POST", "/queues/orders/messages", **bearer(made["secret"])), 401, "unauthenticated")
    problem(await guarded.call("DELETE", f"/keys/{made['id']}", **admin), 404, "key-not-found")
    (revoked,) = [key for key in (await guarded.ask("GET", "/keys", **admin))["items"] if key["id"] == made["id"]]
    assert revoked["revoked_at"] == "2027-01-15T08:00:00.000000Z"


async def test_a_principal_has_two_live_keys_at_most(guarded: House, admin: dict[str, Any]) -> None:
    first = await guarded.ask("POST", "/keys", WANTED, **admin)
    await guarded.ask("POST", "/keys", WANTED, **admin)
    problem(await guarded.call("POST", "/keys", WANTED, **admin), 409, "too-many-keys")
    await guarded.ask("DELETE", f"/keys/{first['id']}", **admin)
    await guarded.ask("POST", "/keys", WANTED, **admin)


async def test_keys_are_listed_in_pages(guarded: House, admin: dict[str, Any]) -> None:
    for n in range(4):
        await guarded.clock.advance(1)
        await guarded.ask("POST", "/keys", {**WANTED, "principal": f"p{n}"}, **admin)
    first = await guarded.ask("GET", "/keys", params={"limit": 3}, **admin)
    rest = await guarded.ask("GET", "/keys", params={"limit": 3, "cursor": first["next_cursor"]}, **admin)
    principals = [key["principal"] for key in (*first["items"], *rest["items"])]
    assert (principals, rest["next_cursor"]) == (["admin", "p0", "p1", "p2", "p3"], None)
    assert pointers(await guarded.call("GET", "/keys?cursor=none", **admin)) == ["#/query/cursor"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"principal": ""}, "/principal"),
        ({"principal": "nul\0"}, "/principal"),
        ({"rights": []}, "/rights"),
        ({"rights": ["everything"]}, "/rights/0"),
        ({"patterns": []}, "/patterns"),
        ({"patterns": ["a b"]}, "/patterns/0"),
        ({"patterns": ["[a-z]"]}, "/patterns/0"),
        ({"expires_in_seconds": 0}, "/expires_in_seconds"),
        ({"secret": "mine"}, "/secret"),
    ],
)
async def test_a_key_that_is_not_right_is_not_made(
    guarded: House, admin: dict[str, Any], change: dict[str, Any], pointer: str
) -> None:
    assert pointers(await guarded.call("POST", "/keys", {**WANTED, **change}, **admin)) == [pointer]
    assert len((await guarded.ask("GET", "/keys", **admin))["items"]) == 1


@pytest.mark.parametrize("key_id", ["nothing", "%00", "%F0%9F%94%91"])
async def test_an_id_that_is_none_is_not_found(guarded: House, admin: dict[str, Any], key_id: str) -> None:
    problem(await guarded.call("DELETE", f"/keys/{key_id}", **admin), 404, "key-not-found")


async def test_use_is_noted(guarded: House, admin: dict[str, Any]) -> None:
    await guarded.ask("GET", "/keys", **admin)
    assert guarded.doorkeeper is not None
    await guarded.doorkeeper.note_use()
    (key,) = (await guarded.ask("GET", "/keys", **admin))["items"]
    assert key["last_used_at"] == "2027-01-15T08:00:00.000000Z"
