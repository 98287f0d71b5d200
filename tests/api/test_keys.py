"""API keys: created with the right `manage` on all queues, shown once, and revoked."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api.application import build_application
from app.broker.access.keys import get_key
from app.broker.access.signing_secret import signing_secret
from app.domain.access import Right
from app.http.request_id import RequestIdMiddleware
from tests.api.api_server import SQS_SECRET, ApiServer, pointers, problem


def bearer(secret: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {secret}"}}


@pytest.fixture
async def admin(api_with_keys: ApiServer) -> dict[str, Any]:
    """The headers of an administrator's request."""
    return bearer(await api_with_keys.new_key(*Right, principal="admin"))


KEY_REQUEST = {"principal": "shop", "rights": ["send"], "patterns": ["orders", "orders.*"]}


async def test_a_new_key_is_shown_once_and_works(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    answer = await api_with_keys.request("POST", "/keys", KEY_REQUEST, **admin)
    made = answer.json()
    secret, sqs_secret = made.pop("secret"), made.pop("sqs_secret_access_key")
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    assert len(secret) >= 43
    assert made.items() >= {**KEY_REQUEST, "expires_at": None, "last_used_at": None, "revoked_at": None}.items()
    assert (await api_with_keys.request("POST", "/queues/orders.eu/messages", {}, **bearer(secret))).status_code == 201
    listed = await api_with_keys.request("GET", "/keys", **admin)
    assert made in listed.json()["items"]
    assert secret not in listed.text
    assert sqs_secret not in listed.text


async def test_the_sqs_secret_of_a_key_is_shown_again(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    made = await api_with_keys.request_json("POST", "/keys", KEY_REQUEST, **admin)
    key = await get_key(api_with_keys.broker.store.keys, made["id"])
    assert made["sqs_secret_access_key"] == signing_secret(SQS_SECRET, key)
    shown = await api_with_keys.request("GET", f"/keys/{made['id']}/sqs", **admin)
    assert shown.json() == {"access_key_id": made["id"], "secret_access_key": made["sqs_secret_access_key"]}
    assert shown.headers["cache-control"] == "no-store"
    problem(await api_with_keys.request("GET", f"/keys/{'0' * 16}/sqs", **admin), 404, "key-not-found")


async def test_keys_have_no_sqs_secret_at_a_server_without_one(api: ApiServer) -> None:
    context = replace(api.context, sqs_secret=None)
    transport = httpx.ASGITransport(RequestIdMiddleware(build_application(context)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        made = (await client.post("/v1/keys", json=KEY_REQUEST, headers={"Peeklock-Local-Admin": "true"})).json()
        assert made["sqs_secret_access_key"] is None
        shown = (await client.get(f"/v1/keys/{made['id']}/sqs")).json()
        assert shown == {"access_key_id": made["id"], "secret_access_key": None}


async def test_a_key_expires(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    made = await api_with_keys.request_json("POST", "/keys", {**KEY_REQUEST, "expires_in_seconds": 60}, **admin)
    assert made["expires_at"] == "2027-01-15T08:01:00.000000Z"
    await api_with_keys.clock.advance(59)
    assert (await api_with_keys.request("POST", "/queues/orders/messages", {}, **bearer(made["secret"]))).is_success
    await api_with_keys.clock.advance(2)
    problem(
        await api_with_keys.request("POST", "/queues/orders/messages", {}, **bearer(made["secret"])),
        401,
        "unauthenticated",
    )


async def test_a_revoked_key_is_refused(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    made = await api_with_keys.request_json("POST", "/keys", KEY_REQUEST, **admin)
    assert (await api_with_keys.request("POST", "/queues/orders/messages", {}, **bearer(made["secret"]))).is_success
    assert (await api_with_keys.request("DELETE", f"/keys/{made['id']}", **admin)).status_code == 204
    problem(
        await api_with_keys.request("POST", "/queues/orders/messages", {}, **bearer(made["secret"])),
        401,
        "unauthenticated",
    )
    problem(await api_with_keys.request("DELETE", f"/keys/{made['id']}", **admin), 404, "key-not-found")
    (revoked,) = [
        key for key in (await api_with_keys.request_json("GET", "/keys", **admin))["items"] if key["id"] == made["id"]
    ]
    assert revoked["revoked_at"] == "2027-01-15T08:00:00.000000Z"


async def test_a_key_is_shown_by_its_id_without_its_secret(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    answer = await api_with_keys.request("POST", "/keys", KEY_REQUEST, **admin)
    made = answer.json()
    secret = made.pop("secret")
    del made["sqs_secret_access_key"]
    shown = await api_with_keys.request("GET", answer.headers["location"].removeprefix("/v1"), **admin)
    assert (shown.status_code, shown.json()) == (200, made)
    assert secret not in shown.text
    await api_with_keys.request_json("DELETE", f"/keys/{made['id']}", **admin)
    revoked = await api_with_keys.request_json("GET", f"/keys/{made['id']}", **admin)
    assert revoked == {**made, "revoked_at": "2027-01-15T08:00:00.000000Z"}


async def test_a_reader_without_the_right_learns_of_no_id(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    """The key is refused before the store is asked, so neither the answer nor its time depends on the id."""
    made = await api_with_keys.request_json("POST", "/keys", KEY_REQUEST, **admin)
    other = await api_with_keys.new_key(*Right, principal="other", patterns=("orders*",))
    for key_id in (made["id"], "0" * 16, "none"):
        for secret in (made["secret"], other):
            problem(await api_with_keys.request("GET", f"/keys/{key_id}", **bearer(secret)), 403, "forbidden")
        problem(await api_with_keys.request("GET", f"/keys/{key_id}"), 401, "unauthenticated")


async def test_a_principal_has_two_live_keys_at_most(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    first = await api_with_keys.request_json("POST", "/keys", KEY_REQUEST, **admin)
    await api_with_keys.request_json("POST", "/keys", KEY_REQUEST, **admin)
    problem(await api_with_keys.request("POST", "/keys", KEY_REQUEST, **admin), 409, "too-many-keys")
    await api_with_keys.request_json("DELETE", f"/keys/{first['id']}", **admin)
    await api_with_keys.request_json("POST", "/keys", KEY_REQUEST, **admin)


async def test_keys_are_listed_in_pages(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    for n in range(4):
        await api_with_keys.clock.advance(1)
        await api_with_keys.request_json("POST", "/keys", {**KEY_REQUEST, "principal": f"p{n}"}, **admin)
    first = await api_with_keys.request_json("GET", "/keys", params={"limit": 3}, **admin)
    rest = await api_with_keys.request_json(
        "GET", "/keys", params={"limit": 3, "cursor": first["next_cursor"]}, **admin
    )
    principals = [key["principal"] for key in (*first["items"], *rest["items"])]
    assert (principals, rest["next_cursor"]) == (["admin", "p0", "p1", "p2", "p3"], None)
    full = await api_with_keys.request_json("GET", "/keys", params={"limit": 5}, **admin)
    assert (len(full["items"]), full["next_cursor"]) == (5, None)
    assert pointers(await api_with_keys.request("GET", "/keys?cursor=none", **admin)) == ["#/query/cursor"]


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
async def test_an_invalid_key_is_not_created(
    api_with_keys: ApiServer, admin: dict[str, Any], change: dict[str, Any], pointer: str
) -> None:
    assert pointers(await api_with_keys.request("POST", "/keys", {**KEY_REQUEST, **change}, **admin)) == [pointer]
    assert len((await api_with_keys.request_json("GET", "/keys", **admin))["items"]) == 1


@pytest.mark.parametrize("key_id", ["0" * 16, "nothing", "%00", "%F0%9F%94%91"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_id_is_not_found(
    api_with_keys: ApiServer, admin: dict[str, Any], method: str, key_id: str
) -> None:
    problem(await api_with_keys.request(method, f"/keys/{key_id}", **admin), 404, "key-not-found")


async def test_the_last_use_of_a_key_is_recorded(api_with_keys: ApiServer, admin: dict[str, Any]) -> None:
    await api_with_keys.request_json("GET", "/keys", **admin)
    assert api_with_keys.authenticator is not None
    await api_with_keys.authenticator.record_use()
    (key,) = (await api_with_keys.request_json("GET", "/keys", **admin))["items"]
    assert key["last_used_at"] == "2027-01-15T08:00:00.000000Z"
