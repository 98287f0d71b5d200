"""The files of the console are part of the server: a page loads nothing from elsewhere and runs no script of its own."""

import gzip
import re
from pathlib import Path

from app.console.assets import STATIC, asset_url, assets
from tests.console.console_server import ConsoleServer

OWN_FILES = [path for path in STATIC.iterdir() if path.is_file() and path.name != "icon.svg"]
TEMPLATES = list((STATIC.parent / "templates").glob("*.html"))


async def test_each_file_is_served_for_ever_as_it_is_and_compressed(console: ConsoleServer) -> None:
    for name in assets():
        url = asset_url(name).removeprefix("/console")
        response = await console.get(url, headers={"accept-encoding": "gzip"})
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["content-encoding"] == "gzip"
        assert response.content == (STATIC / name).read_bytes() == gzip.decompress(assets()[name].compressed)
        plain = await console.get(url, headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers


async def test_other_files_and_other_versions_are_not_served(console: ConsoleServer) -> None:
    url = asset_url("console.css").removeprefix("/console")
    for path in (
        url.replace("console.css", "vendor/README.md"),
        url.replace("console.css", "../pages.py"),
        "/assets/0/console.css",
    ):
        assert (await console.get(path)).status_code == 404


def test_no_own_file_or_template_names_another_server() -> None:
    found = [path.name for path in (*OWN_FILES, *TEMPLATES) if re.search(r"https?://(?!localhost)", path.read_text())]
    assert found == []


def test_templates_contain_no_script_no_style_and_no_unescaped_value() -> None:
    inline = re.compile(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|\|\s*safe|autoescape")
    assert [path.name for path in TEMPLATES if inline.search(path.read_text())] == []


def test_each_vendored_file_has_its_licence() -> None:
    vendored = Path(STATIC / "vendor")
    assert {path.name for path in vendored.glob("*.LICENSE")} == {"uPlot.LICENSE"}
