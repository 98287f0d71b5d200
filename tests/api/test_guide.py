"""The site of the documentation is served from the directory that a setting names, and from nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from app.api.application import build_application
from app.http.request_id import RequestIdMiddleware
from tests.api.api_server import ApiServer, problem

SITE = {
    "index.html": b"<a href='http.html'>HTTP</a>",
    "http.html": b"HTTP",
    "http/send.html": b"Send",
    "assets/site.css": b"body {}",
    "search/search_index.json": b"{}",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A small site, beside a file that is no part of it."""
    site = tmp_path / "site"
    for name, content in SITE.items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (tmp_path / "secret.txt").write_text("secret")
    (site / "link.txt").symlink_to(tmp_path / "secret.txt")
    return site


@pytest.fixture
async def guide(api_with_keys: ApiServer, directory: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with the site. The server needs keys, and the client has none."""
    async with client_of(api_with_keys, directory) as client:
        yield client


@pytest.mark.parametrize("name", SITE)
async def test_a_file_is_sent_once_and_then_confirmed(guide: httpx.AsyncClient, name: str) -> None:
    first = await guide.get(f"/docs/guide/{name}")
    assert (first.status_code, first.content, first.headers["cache-control"]) == (200, SITE[name], "no-cache")
    again = await guide.get(f"/docs/guide/{name}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_address_without_a_file_leads_to_the_home_page(guide: httpx.AsyncClient) -> None:
    answer = await guide.get("/docs/guide")
    assert (answer.status_code, answer.headers["location"]) == (308, "guide/")
    home = await guide.get("/docs/guide", follow_redirects=True)
    assert (home.url.path, home.content) == ("/docs/guide/", SITE["index.html"])


async def test_a_file_has_its_media_type_and_the_policy_of_the_pages(guide: httpx.AsyncClient) -> None:
    kinds = {name: (await guide.get(f"/docs/guide/{name}")).headers["content-type"] for name in SITE}
    assert kinds == {
        "index.html": "text/html; charset=utf-8",
        "http.html": "text/html; charset=utf-8",
        "http/send.html": "text/html; charset=utf-8",
        "assets/site.css": "text/css; charset=utf-8",
        "search/search_index.json": "application/json",
    }
    page, viewer = await guide.get("/docs/guide/"), await guide.get("/docs")
    for header in ("content-security-policy", "x-content-type-options", "referrer-policy"):
        assert page.headers[header] == viewer.headers[header]


@pytest.mark.parametrize(
    "path",
    [
        "missing.html", "assets", "assets/", "../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "link.txt",
        "assets/../../secret.txt", "/etc/passwd", "index.html/",
    ],
)  # fmt: skip
async def test_what_is_no_file_of_the_site_is_not_found(guide: httpx.AsyncClient, path: str) -> None:
    problem(
        await guide.get(httpx.URL("http://peeklock.test", raw_path=f"/docs/guide/{path}".encode())), 404, "not-found"
    )


async def test_a_browser_gets_a_page_that_leads_back_to_the_guide(guide: httpx.AsyncClient) -> None:
    accept = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    missing = await guide.get("/docs/guide/missing.html", headers=accept)
    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert missing.headers["content-security-policy"]
    assert '<a href="/docs/guide/">' in missing.text
    problem(await guide.get("/docs/none", headers=accept), 404, "not-found")


@pytest.mark.parametrize("name", [None, "missing", "site/assets"])
async def test_nothing_is_served_without_a_site(api: ApiServer, directory: Path, name: str | None) -> None:
    async with client_of(api, name and directory.parent / name) as client:
        for path in ("/docs/guide", "/docs/guide/", "/docs/guide/index.html", "/docs/guide/site.css"):
            problem(await client.get(path), 404, "not-found")


async def test_a_page_has_the_links_of_the_server_where_it_has_a_place_for_them(
    api: ApiServer, directory: Path
) -> None:
    place = "<b><!-- links of the server --></b>"
    for name in ("index.html", "http/send.html", "assets/site.css"):
        (directory / name).write_text(place)
    async with client_of(api, directory) as client:
        found = {
            path: (await client.get(f"/docs/guide/{path}")).text for path in ("", "http/send.html", "assets/site.css")
        }
    assert found == {
        "": '<b><a href="../../docs">API</a></b>',
        "http/send.html": '<b><a href="../../../docs">API</a></b>',
        "assets/site.css": place,
    }


async def test_the_site_is_no_part_of_the_document(guide: httpx.AsyncClient) -> None:
    assert [path for path in (await guide.get("/openapi.json")).json()["paths"] if "guide" in path] == []


def client_of(api: ApiServer, directory: Path | None) -> httpx.AsyncClient:
    """A client of a server with the site of this directory."""
    application = RequestIdMiddleware(build_application(replace(api.context, guide_dir=directory)))
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://peeklock.test")
