"""Authorization: every operation refuses clients without its right."""

from collections.abc import Mapping

import httpx
import pytest

from app.api.application import Application, OperationRoute
from app.api.openapi.document import openapi_document
from app.domain.access import Right
from app.http.authorize import IS_AUTHENTICATED
from tests.api.api_server import METRICS_KEY, ApiServer, problem
from tests.api.expected_rights import ANY, GUARDED, OWN, PAGES, PATH_VALUES, PUBLIC, RIGHTS
from tests.bounds import bounded
from tests.walks import for_each

DOCUMENTED_OPERATIONS = {
    (method.upper(), path): promise
    for path, methods in openapi_document()["paths"].items()
    for method, promise in methods.items()
}

NEEDED = [(method, path, Right(right)) for (method, path), right in GUARDED.items()]


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_every_route_of_the_application_is_in_the_table_of_rights(api: ApiServer) -> None:
    routes = Application(api.context).routes
    operations = [route.handler.operation for route in routes if isinstance(route, OperationRoute)]
    assert len(operations) == len(routes)
    assert sorted((operation.method, operation.path) for operation in operations) == sorted(RIGHTS)


def test_the_document_names_the_right_of_each_operation() -> None:
    assert {asked: promise.get("x-peeklock-right", PUBLIC) for asked, promise in DOCUMENTED_OPERATIONS.items()} == {
        asked: right for asked, right in RIGHTS.items() if not asked[1].startswith(PAGES)
    }
    for (method, path), promise in DOCUMENTED_OPERATIONS.items():
        if RIGHTS[method, path] == PUBLIC:
            assert promise["security"] == []
            assert "Needs no API key." in promise["description"]
        elif RIGHTS[method, path] == ANY:
            assert "security" not in promise
            assert "Needs an API key with any right." in promise["description"]
        else:
            kinds = {"{queue}": "the queue", "{topic}": "the topic", "{key}": "the state"}
            where = next((kind for name, kind in kinds.items() if name in path), "all queues")
            assert "security" not in promise
            assert f"Needs the right `{RIGHTS[method, path]}` on {where}." in promise["description"]


@pytest.mark.parametrize("path", [path for (method, path), right in RIGHTS.items() if (method, right) == ("GET", ANY)])
async def test_any_key_is_enough_for_these_paths(api_with_keys: ApiServer, path: str) -> None:
    problem(await api_with_keys.http.get(path.format(**PATH_VALUES)), 401, "unauthenticated")
    for right in Right:
        key = await api_with_keys.new_key(right, patterns=("one-queue",), principal=right)
        answer = await api_with_keys.http.get(path.format(**PATH_VALUES), headers=bearer(key))
        # A key that is not enough is refused before anything is looked up.
        assert answer.status_code in (200, 404)


@for_each(("method", "path", "right"), NEEDED)
async def test_a_request_without_a_key_is_refused(
    api_with_keys: ApiServer, method: str, path: str, right: Right
) -> None:
    answer = await api_with_keys.http.request(method, path.format(**PATH_VALUES))
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@for_each(("method", "path", "right"), NEEDED)
async def test_a_key_without_the_right_is_refused(
    api_with_keys: ApiServer, method: str, path: str, right: Right
) -> None:
    headers = bearer(await api_with_keys.new_key(*{*Right} - {right}, principal=f"{method} {path}"))
    problem(await api_with_keys.http.request(method, path.format(**PATH_VALUES), headers=headers), 403, "forbidden")


@for_each(("method", "path", "right"), NEEDED)
async def test_the_right_on_other_queues_is_not_enough(
    api_with_keys: ApiServer, method: str, path: str, right: Right
) -> None:
    # A key without a pattern for a whole range of names may list nothing.
    patterns = ("invoices", "order", "orders.*", "Orders", *(("a?",) if (method, path) in OWN else ()))
    headers = bearer(await api_with_keys.new_key(*Right, patterns=patterns, principal=f"{method} {path}"))
    problem(await api_with_keys.http.request(method, path.format(**PATH_VALUES), headers=headers), 403, "forbidden")


@pytest.mark.parametrize(("method", "path", "right"), NEEDED, ids=[f"{method} {path}" for method, path in GUARDED])
async def test_the_right_alone_is_enough(api_with_keys: ApiServer, method: str, path: str, right: Right) -> None:
    pattern = "ord*" if any(name in path for name in ("{queue}", "{topic}", "{key}")) else "*"
    headers = bearer(await api_with_keys.new_key(right, patterns=(pattern,)))
    answer = await api_with_keys.http.request(method, path.format(**PATH_VALUES), headers=headers)
    assert answer.status_code not in (401, 403, 500)


async def test_a_client_without_the_right_does_not_learn_which_queues_exist(api_with_keys: ApiServer) -> None:
    async def refusals() -> dict[str, object]:
        return {
            f"{method} {path}": (await api_with_keys.http.request(method, path.format(**PATH_VALUES))).json()
            | {"tracking_id": ""}
            for method, path, _ in NEEDED
        }

    unknown = await refusals()
    await api_with_keys.broker.queue_cache.by_name_for_send("orders")
    assert await refusals() == unknown


@pytest.mark.parametrize("path", [path for (_, path), right in RIGHTS.items() if right == PUBLIC])
async def test_these_paths_need_no_key(api_with_keys: ApiServer, path: str) -> None:
    assert (await api_with_keys.http.get(path, follow_redirects=True)).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Bearer nonsense", "Bearer " + "x" * 10_000, "Bearer \xff"],
)
async def test_an_invalid_key_is_refused(api_with_keys: ApiServer, authorization: str) -> None:
    headers = {"Authorization": authorization.encode("latin-1")}
    problem(await api_with_keys.request("GET", "/queues", headers=headers), 401, "unauthenticated")


async def test_the_scheme_may_be_written_in_any_case(api_with_keys: ApiServer) -> None:
    secret = await api_with_keys.new_key(Right.BROWSE)
    assert (await api_with_keys.request("GET", "/queues", headers={"authorization": f"bEARER  {secret} "})).is_success


async def test_two_authorization_headers_are_refused(api_with_keys: ApiServer) -> None:
    secret = await api_with_keys.new_key(Right.BROWSE)
    headers = [("authorization", f"Bearer {secret}"), ("authorization", "Bearer nonsense")]
    problem(await api_with_keys.http.get("/v1/queues", headers=headers), 401, "unauthenticated")


async def test_redriving_to_another_queue_needs_the_right_to_send_there(api_with_keys: ApiServer) -> None:
    await api_with_keys.broker.queue_cache.by_name_for_send("orders")
    await api_with_keys.broker.queue_cache.by_name_for_send("repairs")
    headers = bearer(await api_with_keys.new_key(Right.MANAGE, Right.SEND, patterns=("orders",)))
    path, body = "/queues/orders/dead-letter/redrive", {"to_queue": "repairs"}
    problem(await api_with_keys.request("POST", path, body, headers=headers), 403, "forbidden")
    headers = bearer(await api_with_keys.new_key(Right.MANAGE, Right.SEND))
    assert await api_with_keys.request_json("POST", path, body, headers=headers) == {"moved": 0}


async def test_the_body_of_an_unauthorized_request_is_not_read(api_with_keys: ApiServer) -> None:
    async def endless():
        for _ in bounded("the request is refused"):
            yield b"x"

    answer = await api_with_keys.request("POST", "/queues/orders/messages", content=endless())
    problem(answer, 401, "unauthenticated")


async def is_authenticated(
    api: ApiServer, path: str, secret: str | None, headers: Mapping[str, str] | None = None
) -> bool:
    """Return whether the server counts the client of a request as authenticated: its connection then keeps its place."""
    state: dict[str, bool] = {}
    transport = httpx.ASGITransport(lambda scope, *rest: api.middleware({**scope, "state": state}, *rest))
    async with httpx.AsyncClient(transport=transport, base_url="http://peeklock.test") as http:
        await http.get(path, headers={**(headers or {}), **({} if secret is None else bearer(secret))})
    return state.get(IS_AUTHENTICATED, False)


async def test_a_client_with_a_key_is_authenticated_also_without_the_right(api_with_keys: ApiServer) -> None:
    allowed, other = [await api_with_keys.new_key(right, principal=right) for right in (Right.BROWSE, Right.SEND)]
    for path in ("/v1/queues", "/metrics"):
        authenticated = [
            await is_authenticated(api_with_keys, path, secret) for secret in (allowed, other, "nonsense", None)
        ]
        assert authenticated == [True, True, False, False], path


async def test_the_metrics_key_authenticates_a_client_of_metrics_alone(api_with_keys: ApiServer) -> None:
    assert await is_authenticated(api_with_keys, "/metrics", METRICS_KEY)
    assert not await is_authenticated(api_with_keys, "/v1/queues", METRICS_KEY)


async def test_a_server_without_keys_counts_clients_that_it_accepts_as_authenticated(api: ApiServer) -> None:
    assert [await is_authenticated(api, path, None) for path in ("/v1/queues", "/metrics", "/livez")] == [
        True,
        True,
        False,
    ]


async def test_a_server_without_keys_counts_no_client_that_it_refuses_as_authenticated(api: ApiServer) -> None:
    from_another_site = {"Sec-Fetch-Site": "cross-site"}
    problem(await api.request("GET", "/queues", headers=from_another_site), 403, "forbidden")
    assert not await is_authenticated(api, "/v1/queues", None, from_another_site)
