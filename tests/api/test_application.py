"""Each route that is added to the application is found, guarded and documented."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from app.api.application import Application, OperationRoute
from app.domain.access import Right
from app.http.asgi import Receive, Scope, Send
from app.http.operation import Operation, operation
from app.http.operation_handler import OperationHandler
from app.http.request import Request
from app.http.request_id import RequestIdMiddleware
from app.http.response import Response
from tests.api.api_server import MAX_REQUEST_BYTES, ApiServer, problem


class Added(BaseModel):
    """The answer of an added route."""

    name: str


def add_routes(application: Application) -> None:
    """Add a route in each way that FastAPI offers."""

    @application.get("/added/{name}")
    async def read_added(name: str) -> Added:
        return Added(name=name)

    router = APIRouter(prefix="/included")
    router.add_api_route("/{name}", read_added)
    application.include_router(router)

    mounted = FastAPI()
    mounted.add_api_route("/{name}", read_added)
    application.mount("/mounted", mounted)

    async def read_plain(request: object) -> PlainTextResponse:
        return PlainTextResponse("plain")

    application.add_route("/plain/{name}", read_plain)
    application.host("added.test", Mount("/", routes=[Route("/host/{name}", read_plain)]))

    @application.post("/uploads")
    async def upload(added: Added) -> Added:
        return added


@operation("GET", "/v1/added/{queue}", right=Right.BROWSE, tag="queues", responses={200: bytes})
async def read_declared(request: Request[None]) -> Response:
    """Get what was added."""
    return Response(content=request.path["queue"].encode())


ADDED = ("/added/{name}", "/included/{name}", "/mounted/{name}", "/plain/{name}")

each_added = pytest.mark.parametrize("path", ADDED)


@pytest.fixture
def application(api_with_keys: ApiServer) -> Application:
    """The application of a server that needs API keys, with more routes."""
    application = Application(api_with_keys.context)
    add_routes(application)
    declared: Operation = read_declared
    handler = OperationHandler(declared, api_with_keys.context)
    application.router.routes.append(OperationRoute(handler))
    return application


@pytest.fixture
async def http(application: Application) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(RequestIdMiddleware(application))
    async with httpx.AsyncClient(transport=transport, base_url="http://peeklock.test") as client:
        yield client


@pytest.fixture
async def manager(api_with_keys: ApiServer) -> dict[str, str]:
    """The headers of a client that may manage every queue."""
    return {"Authorization": f"Bearer {await api_with_keys.new_key(Right.MANAGE, principal='manager')}"}


@each_added
async def test_an_added_route_is_found(http: httpx.AsyncClient, manager: dict[str, str], path: str) -> None:
    answer = await http.get(path.format(name="one"), headers=manager)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]
    assert answer.text in ("plain", '{"name":"one"}')


async def test_routes_of_another_host_are_found(http: httpx.AsyncClient, manager: dict[str, str]) -> None:
    assert (await http.get("http://added.test/host/one", headers=manager)).text == "plain"
    problem(await http.get("http://added.test/host/one"), 401, "unauthenticated")


@each_added
async def test_an_added_route_needs_the_right_to_manage(
    http: httpx.AsyncClient, api_with_keys: ApiServer, path: str
) -> None:
    path = path.format(name="one")
    problem(await http.get(path), 401, "unauthenticated")
    other_rights = await api_with_keys.new_key(*{*Right} - {Right.MANAGE}, principal="other")
    problem(await http.get(path, headers={"Authorization": f"Bearer {other_rights}"}), 403, "forbidden")
    one_queue = await api_with_keys.new_key(*Right, patterns=("orders",), principal="one queue")
    problem(await http.get(path, headers={"Authorization": f"Bearer {one_queue}"}), 403, "forbidden")


@each_added
async def test_an_escaped_slash_is_part_of_the_segment_of_an_added_route(
    http: httpx.AsyncClient, manager: dict[str, str], path: str
) -> None:
    path = path.format(name="one")
    for place in [place for place, character in enumerate(path) if character == "/" and place > 0]:
        problem(await http.get(f"{path[:place]}%2f{path[place + 1 :]}", headers=manager), 404, "not-found")
    assert (await http.get(f"{path}%2Ftwo", headers=manager)).text in ("plain", '{"name":"one%2Ftwo"}')


async def test_an_added_operation_is_found_and_guarded(http: httpx.AsyncClient, api_with_keys: ApiServer) -> None:
    problem(await http.get("/v1/added/orders"), 401, "unauthenticated")
    key = await api_with_keys.new_key(Right.BROWSE, patterns=("orders",))
    answer = await http.get("/v1/added/orders", headers={"Authorization": f"Bearer {key}"})
    assert answer.text == "orders"
    problem(await http.post("/v1/added/orders"), 405, "method-not-allowed")


async def test_added_routes_are_in_the_document(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    paths = document["paths"]
    assert paths["/v1/added/{queue}"]["get"]["x-peeklock-right"] == "browse"
    for path in ("/added/{name}", "/included/{name}"):
        assert paths[path]["get"]["x-peeklock-right"] == "manage"
    assert "security" not in paths["/added/{name}"]["get"]
    assert paths["/livez"]["get"]["security"] == []
    assert {"Added", "Problem"} <= document["components"]["schemas"].keys()


async def test_an_added_route_has_only_its_own_methods(http: httpx.AsyncClient, manager: dict[str, str]) -> None:
    answer = await http.put("/added/one", headers=manager)
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET"


async def test_the_body_of_an_added_route_is_limited(http: httpx.AsyncClient, manager: dict[str, str]) -> None:
    answer = await http.post("/uploads", content=b" " * (MAX_REQUEST_BYTES + 1), headers=manager)
    assert answer.status_code == 413


async def test_head_answers_as_get_without_the_body(http: httpx.AsyncClient, manager: dict[str, str]) -> None:
    for path in ("/added/one", "/livez", "/docs"):
        head, get = await http.head(path, headers=manager), await http.get(path, headers=manager)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("event", [{"headers": ((b"x-own", b"1"),)}, {"headers": [(b"x-own", b"1")]}, {}])
async def test_the_headers_of_a_mounted_application_stay_as_they_are(
    application: Application, http: httpx.AsyncClient, manager: dict[str, str], event: dict[str, Any]
) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, **event})
        await send({"type": "http.response.body", "body": b"own"})

    application.mount("/own", answer)
    before = copy.deepcopy(event)
    for request_id in ("first", "second"):
        response = await http.get("/own/", headers={**manager, "X-Request-Id": request_id})
        assert (response.text, response.headers.get_list("x-request-id")) == ("own", [request_id])
    assert event == before


async def test_the_application_speaks_only_http(application: Application) -> None:
    with pytest.raises(NotImplementedError, match="websocket"):
        await application({"type": "websocket", "path": "/added/one"}, _never, _never)


async def _never(*_: object) -> Any:
    raise AssertionError("It is not called.")
