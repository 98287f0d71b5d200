"""The start page names the server and leads to pages that exist."""

from pathlib import Path

import app
from tests.api.api_server import ApiServer

ROOT = Path(app.__file__).parents[1]


async def test_the_start_page_names_the_server_and_its_version(api: ApiServer) -> None:
    index = (await api.http.get("/")).json()
    assert (index["name"], index["version"]) == ("Peeklock", app.__version__)


async def test_each_link_of_the_start_page_is_answered_without_a_key(api_with_keys: ApiServer) -> None:
    index = (await api_with_keys.http.get("/")).json()
    statuses = {path: (await api_with_keys.http.get(path)).status_code for path in index["links"].values()}
    assert statuses == dict.fromkeys(("/docs", "/openapi.json", "/livez", "/readyz", "/metrics"), 200)


async def test_the_start_page_lists_every_guide(api: ApiServer) -> None:
    guides = (await api.http.get("/")).json()["guides"]
    assert sorted(guides) == sorted(f"docs/{guide.name}" for guide in (ROOT / "docs").glob("*.md"))


async def test_the_start_page_answers_while_the_server_stops(api: ApiServer) -> None:
    api.middleware.is_draining = True
    assert (await api.http.get("/")).status_code == 200
