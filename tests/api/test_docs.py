"""The document is shown at `/docs` by a viewer that loads nothing from other servers."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import app
from app.api.application import build_application
from app.api.openapi.pages import FILES, VIEWER_FILES
from app.http.request_id import RequestIdMiddleware
from tests.api.api_server import ApiServer, problem

ROOT = Path(app.__file__).parents[1]
PAGES = ("/openapi.json", "/docs", "/docs/code-samples.json", *VIEWER_FILES)
FETCHED = ("/openapi.json", "/docs/code-samples.json")
"""What the script of the page asks for."""
OWN_FILES = [file for file in FILES.iterdir() if file.suffix in (".html", ".js", ".css")]

each_page = pytest.mark.parametrize("path", PAGES)


@each_page
async def test_a_page_is_sent_once_and_then_confirmed(api: ApiServer, path: str) -> None:
    first = await api.http.get(path)
    assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
    for tags in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
        again = await api.http.get(path, headers={"If-None-Match": tags})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert "content-length" not in again.headers
    assert (await api.http.get(path, headers={"If-None-Match": '"other"'})).content == first.content


@pytest.mark.parametrize(("path", "file"), [(path, name) for path, (name, _) in VIEWER_FILES.items()])
async def test_each_file_of_the_viewer_is_served(api: ApiServer, path: str, file: str) -> None:
    answer = await api.http.get(path)
    assert answer.content == (FILES / file).read_bytes()
    kinds = {".js": "text/javascript", ".css": "text/css", ".png": "image/png"}
    assert answer.headers["content-type"].partition(";")[0] == kinds[Path(file).suffix]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_policy_allows_this_server_alone(api: ApiServer) -> None:
    policy = (await api.http.get("/docs")).headers["content-security-policy"]
    sources = dict(directive.split(" ", 1) for directive in policy.split("; "))
    assert sources.pop("default-src") == "'none'"
    assert {source for values in sources.values() for source in values.split()} <= {"'self'", "'none'", "data:"}
    assert [name for name, values in sources.items() if "data:" in values] == ["img-src"]


async def test_the_page_refers_only_to_files_of_this_server(api: ApiServer) -> None:
    page = (await api.http.get("/docs")).text
    references = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert {f"/{name}" for name in references} == {*VIEWER_FILES, "/openapi.json"}
    script = (FILES / "docs.js").read_text()
    assert [path for path in FETCHED if f'"{path.removeprefix("/")}"' not in script] == []
    assert not re.findall(r"<script>|<style|\son\w+=|style=", page)


def test_no_own_file_of_the_viewer_names_another_server() -> None:
    assert len(OWN_FILES) == 3
    assert [file.name for file in OWN_FILES if re.search(r"(?:https?:)?//\w", file.read_text())] == []


@pytest.mark.parametrize("has_console", [False, True])
@pytest.mark.parametrize("has_guide", [False, True])
async def test_the_page_leads_to_the_other_pages_that_the_server_has(
    api: ApiServer, tmp_path: Path, has_console: bool, has_guide: bool
) -> None:
    (tmp_path / "index.html").write_text("<!-- links of the server -->")
    guide_dir = tmp_path if has_guide else None
    application = build_application(replace(api.context, has_console=has_console, guide_dir=guide_dir))
    transport = httpx.ASGITransport(RequestIdMiddleware(application))
    async with httpx.AsyncClient(transport=transport, base_url="http://peeklock.test") as client:
        page = (await client.get("/docs")).text
        assert ('<a href="docs/guide/">Guide</a>' in page) == has_guide
        assert ('<a href="console">Console</a>' in page) == has_console
        if has_guide:
            console = '<a href="../../console">Console</a>' if has_console else ""
            assert (await client.get("/docs/guide/")).text == f'<a href="../../docs">API</a>{console}'


async def test_a_slash_at_the_end_of_the_address_leads_to_the_viewer(api: ApiServer) -> None:
    answer = await api.http.get("/docs/")
    assert (answer.status_code, answer.headers["location"]) == (308, "../docs")
    assert (await api.http.get("/docs/", follow_redirects=True)).url.path == "/docs"


async def test_a_directory_of_the_viewer_is_not_found(api: ApiServer) -> None:
    for path in ("/docs/swagger-ui/LICENSE", "/docs/..%2fdocs.html", "/docs/README.md"):
        problem(await api.http.get(path), 404, "not-found")


async def test_the_pages_stay_open_when_keys_are_needed(api_with_keys: ApiServer) -> None:
    assert {(await api_with_keys.http.get(path)).status_code for path in PAGES} == {200}


def test_every_file_of_the_viewer_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["app"]
    packaged = {file for pattern in patterns for file in (ROOT / "app").glob(pattern)}
    assert {file for file in FILES.rglob("*") if file.is_file()} <= packaged
    assert (FILES / "swagger-ui/LICENSE").read_text().strip().startswith("Apache License")
