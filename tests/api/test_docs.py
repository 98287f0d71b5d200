"""The document is shown at `/docs` by a viewer that loads nothing from other servers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import app
from app.api.openapi.pages import FILES, VIEWER_FILES
from tests.api.api_server import ApiServer, problem

ROOT = Path(app.__file__).parents[1]
PAGES = ("/openapi.json", *VIEWER_FILES)
OWN_FILES = [file for file in FILES.iterdir() if file.suffix in (".html", ".js")]

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
    kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".png": "image/png"}
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
    assert {f"/{name}" for name in references} == {*PAGES} - {"/docs"}
    assert not re.findall(r"<script>|<style|\son\w+=|style=", page)


def test_no_own_file_of_the_viewer_names_another_server() -> None:
    assert len(OWN_FILES) == 2
    assert [file.name for file in OWN_FILES if re.search(r"(?:https?:)?//\w", file.read_text())] == []


async def test_a_directory_of_the_viewer_is_not_found(api: ApiServer) -> None:
    for path in ("/docs/", "/docs/swagger-ui/LICENSE", "/docs/..%2fdocs.html", "/docs/README.md"):
        problem(await api.http.get(path), 404, "not-found")


async def test_the_pages_stay_open_when_keys_are_needed(api_with_keys: ApiServer) -> None:
    assert {(await api_with_keys.http.get(path)).status_code for path in PAGES} == {200}


def test_every_file_of_the_viewer_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["app"]
    packaged = {file for pattern in patterns for file in (ROOT / "app").glob(pattern)}
    assert {file for file in FILES.rglob("*") if file.is_file()} <= packaged
    assert (FILES / "swagger-ui/LICENSE").read_text().strip().startswith("Apache License")
