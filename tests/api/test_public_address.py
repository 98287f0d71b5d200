"""Behind a proxy with a root path, requests work with and without it, and every path in an answer begins with it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from app.api.application import build_application
from app.api.endpoints.routes import OPERATIONS
from app.api.openapi.pages import VIEWER_FILES
from app.domain.public_address import OWN_SEGMENTS, PublicAddress, parse_networks
from app.http.public_address import at_public_address
from app.http.request_id import RequestIdMiddleware
from tests.api.api_server import ApiServer, problem

PROXY, OTHER = "10.0.0.7", "192.0.2.1"
ROOT = "/apps/peeklock"
TRUSTING = PublicAddress("", parse_networks("10.0.0.0/8"))
FORWARDED = {
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "broker.example:8443",
    "X-Forwarded-Prefix": ROOT,
}


def proxied(api: ApiServer, address: PublicAddress, client: str = PROXY) -> httpx.AsyncClient:
    """A client whose requests reach the server from this address."""
    application = RequestIdMiddleware(at_public_address(build_application(api.context), address))
    transport = httpx.ASGITransport(application, client=(client, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://peeklock.test")


def test_a_server_without_these_settings_has_no_middleware(api: ApiServer) -> None:
    application = build_application(api.context)
    assert at_public_address(application, PublicAddress()) is application


@pytest.mark.parametrize("prefix", ["", ROOT], ids=["removed", "passed on"])
@pytest.mark.parametrize(
    ("address", "headers"),
    [(PublicAddress(ROOT), {}), (TRUSTING, FORWARDED), (PublicAddress("/other", TRUSTING.trusted_proxies), FORWARDED)],
    ids=["by the setting", "by the header", "by the header ahead of the setting"],
)
async def test_answers_name_the_whole_path(
    api: ApiServer, address: PublicAddress, headers: dict[str, str], prefix: str
) -> None:
    http = proxied(api, address)
    http.headers.update(headers)
    for name in ("orders", "orders.eu", "a%2Fb"):
        created = await http.put(f"{prefix}/v1/queues/{name}", json={})
        if "%" in name:
            problem(created, 422, "invalid-request")
        else:
            assert created.headers["location"] == f"{ROOT}/v1/queues/{name}"
    page = await http.get(f"{prefix}/v1/queues?limit=1")
    assert page.links["next"]["url"].startswith(f"{ROOT}/v1/queues?limit=1&cursor=")
    index = (await http.get(prefix or "/")).json()
    assert index["links"]["document"] == f"{ROOT}/openapi.json"
    document = (await http.get(f"{prefix}/openapi.json")).json()
    assert [server["url"] for server in document["servers"]] == [ROOT]
    problem(await http.get(f"{prefix}/nothing"), 404, "not-found")


async def test_a_server_of_several_root_paths_names_that_of_each_request(api: ApiServer) -> None:
    http = proxied(api, TRUSTING)
    for path in ("/a", "/b", "/a"):
        answer = await http.get("/openapi.json", headers={"X-Forwarded-Prefix": path})
        assert answer.json()["servers"][0]["url"] == path
    servers = (await http.get("/openapi.json")).json()["servers"]
    assert [server["url"] for server in servers] == ["http://127.0.0.1:8080", "/"]


async def test_forwarded_headers_of_other_clients_are_ignored(api: ApiServer) -> None:
    http = proxied(api, TRUSTING, OTHER)
    created = await http.put("/v1/queues/orders", json={}, headers=FORWARDED | {"X-Forwarded-Proto": "ftp"})
    assert created.headers["location"] == "/v1/queues/orders"
    problem(await http.get(f"{ROOT}/v1/queues/orders", headers=FORWARDED), 404, "not-found")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Forwarded-Proto", "ftp"),
        ("X-Forwarded-Proto", "https, http"),
        ("X-Forwarded-Host", "a.example, b.example"),
        ("X-Forwarded-Host", "user@a.example"),
        ("X-Forwarded-Host", ""),
        ("X-Forwarded-Prefix", "peeklock"),
        ("X-Forwarded-Prefix", "//evil.test"),
        ("X-Forwarded-Prefix", "/v1"),
    ],
)
async def test_an_invalid_forwarded_header_of_a_trusted_proxy_is_refused(api: ApiServer, name: str, value: str) -> None:
    answer = await proxied(api, TRUSTING).get("/livez", headers={name: value})
    assert [fault["pointer"] for fault in problem(answer, 422, "invalid-request")["errors"]] == [f"#/header/{name}"]


async def test_a_header_that_a_client_has_sent_beside_that_of_the_proxy_is_refused(api: ApiServer) -> None:
    headers = [("X-Forwarded-Prefix", "/forged"), ("X-Forwarded-Prefix", ROOT)]
    problem(await proxied(api, TRUSTING).get("/livez", headers=headers), 422, "invalid-request")


async def test_the_forwarded_host_is_that_of_the_request(api: ApiServer) -> None:
    """A page of the public host is of the same site, and a page of the host of the connection is not."""
    http = proxied(api, TRUSTING)
    for origin, status in (("https://broker.example:8443", 201), ("http://peeklock.test", 403)):
        headers = FORWARDED | {"Origin": origin}
        answer = await http.post("/v1/queues/orders/messages", json={"body": 1}, headers=headers)
        assert answer.status_code == status, answer.text


def test_no_root_path_can_be_taken_for_a_path_of_the_server() -> None:
    paths = [*(operation.path for operation in OPERATIONS), *VIEWER_FILES, "/openapi.json", "/console"]
    assert {path.split("/")[1] for path in paths} - {""} == OWN_SEGMENTS


def test_the_published_document_names_no_root_path() -> None:
    published = json.loads((Path(__file__).parents[2] / "openapi/openapi.json").read_text())
    assert published["servers"][1]["url"] == "/"
