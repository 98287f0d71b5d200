"""The site of the documentation: it is built without a warning, has every page, and loads nothing from other servers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.api.openapi.code_samples import LANGUAGES
from app.api.openapi.guide import LINKS_PLACE
from developing.paths import ENVIRONMENT, ROOT
from developing.reference.contract import operations
from developing.site_hooks import LINK, OUTSIDE, navigation, with_links, with_samples, with_tabs
from tests.console.browser import faults_of_accessibility, open_browser, open_screen
from tests.guides import BLOCK
from tests.peeklock_process import PeeklockProcess
from tests.walks import for_each

FAULTS_OF_THE_THEME = {"landmark-unique"}
"""The button that copies a block of code is in a landmark without a name."""

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "form": "action"}
"""The attributes by which a browser loads a file."""

SAMPLES_WITH_TABS = re.compile(
    r'<p><a href="../reference/samples.html#(\w+)">.*?</a></p>\s*<div class="tabbed-set .*?'
    r'<div class="tabbed-labels">(.*?)</div>'
)
"""A link to the samples of an operation, and the labels of the tabs below it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `python3 dev.py docs` builds it."""
    directory = tmp_path_factory.mktemp("site")
    program = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [program, "build", "--strict", "--quiet", "--site-dir", directory],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return directory


class References(HTMLParser):
    """What a page loads, and its scripts, styles and handlers that stand in the page itself."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if address := given.get(LOADED.get(tag, "")):
            self.loaded.append(address)
        is_data = tag == "script" and given.get("type") == "application/json"
        if (tag == "style" or (tag == "script" and "src" not in given)) and not is_data:
            self.inline.append(tag)
        self.inline += [name for name in given if name.startswith("on") or name == "style"]


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_each_page_of_the_list_is_in_the_site(site: Path) -> None:
    listed = [page for section in navigation((ROOT / "docs/README.md").read_text()) for page in leaves(section)]
    assert len(listed) == len(set(listed))
    built = {re.sub(r"README$", "index", page.removesuffix(".md")) + ".html" for page in listed}
    assert built == {str(page.relative_to(site)) for page in pages(site)}


def test_the_navigation_has_the_sections_of_the_list() -> None:
    text = "# All\n\n## Do\n\nBuild:\n\n- [Workers](guides/workers.md)\n\nOperate:\n\n- [Chart](../helm/peeklock/README.md)\n"
    build, operate = {"Build": [{"Workers": "guides/workers.md"}]}, {"Operate": [{"Chart": "project/chart.md"}]}
    assert navigation(text) == [{"Contents": "README.md"}, {"Do": [build, operate]}]


def test_each_page_can_be_found(site: Path) -> None:
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert {entry["location"].partition("#")[0] for entry in entries} == {
        str(page.relative_to(site)) for page in pages(site)
    }


def test_a_page_loads_nothing_from_other_servers(site: Path) -> None:
    for page in pages(site):
        references = References(page)
        assert references.loaded
        for address in references.loaded:
            parts = urlsplit(address)
            assert (parts.scheme, parts.netloc) == ("", "")
            assert not parts.path or (page.parent / parts.path).exists(), address


def test_no_style_sheet_loads_anything_from_other_servers(site: Path) -> None:
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()) == []


def test_a_page_has_no_script_or_style_of_its_own(site: Path) -> None:
    assert {str(page): References(page).inline for page in pages(site) if References(page).inline} == {}


def test_a_link_leads_to_the_page_in_the_site() -> None:
    text = "[a](../README.md#x), [b](http.md), [c](#d), [e](../helm/peeklock), [f](https://example.com/)"
    assert with_links(text, "docs/deploy.md") == (
        "[a](project/peeklock.md#x), [b](http.md), [c](#d), [e](project/chart.md), [f](https://example.com/)"
    )
    assert with_links("[a](docs/http.md)", "README.md") == "[a](../http.md)"


def test_samples_that_follow_one_another_become_tabs() -> None:
    one, two = "In Go:\n\n```go\na()\n\nb()\n```\n", "In Java, with `x`:\n\n```java\nc();\n```\n"
    text = f"Before.\n\n{one}\n{two}\nAfter.\n"
    assert with_tabs(text) == (
        'Before.\n\n=== "Go"\n\n    ```go\n    a()\n\n    b()\n    ```\n\n'
        '=== "Java, with x"\n\n    ```java\n    c();\n    ```\n\nAfter.\n'
    )
    assert with_tabs(f"{one}\nAnd then\n\n{two}") == f"{one}\nAnd then\n\n{two}"


def test_the_samples_that_a_line_links_to_stand_below_it() -> None:
    one, two = "In curl:\n\n```sh\na\n```\n", "In Go:\n\n```go\nb()\n```\n"
    samples = f"# Samples\n\n## peek\n\n`GET /`:\n\n{one}\n{two}\n## poke\n\n`PUT /`:\n\n{two}\n{one}"
    link = "[`peek` in five languages](../reference/samples.md#peek)"
    assert with_samples(f"Before.\n\n{link}\n\nAfter.\n", samples) == f"Before.\n\n{link}\n\n{one}\n{two}\nAfter.\n"
    assert with_samples(f"See {link}.\n", samples) == f"See {link}.\n"


def test_a_link_to_samples_that_do_not_exist_is_refused() -> None:
    with pytest.raises(KeyError, match="peek"):
        with_samples("[`peek` in five languages](../reference/samples.md#peek)\n", "# Samples\n")


def test_the_http_guide_shows_every_operation_in_five_languages(site: Path) -> None:
    shown = [
        found for page in sorted(site.glob("http/*.html")) for found in SAMPLES_WITH_TABS.findall(page.read_text())
    ]
    assert sorted(name for name, _ in shown) == sorted(name.strip("`") for _, name, *_ in operations())
    assert {tuple(re.findall(r"<label .*?>(.*?)</label>", labels)) for _, labels in shown} == {tuple(LANGUAGES)}


def test_the_home_page_begins_with_four_cards(site: Path) -> None:
    (cards,) = re.findall(r'<ul class="cards">(.*?)</ul>', (site / "index.html").read_text(), re.DOTALL)
    names = ["Try it", "Use it", "Run it", "Understand it"]
    assert re.findall(r"<li><strong><a [^>]*>(.*?)</a></strong>", cards) == names


def test_each_page_has_one_place_for_the_links_of_a_server(site: Path) -> None:
    place = LINKS_PLACE.decode()
    assert [str(page) for page in pages(site) if page.read_text().count(place) != 1] == []


def test_an_image_in_html_is_that_of_the_site() -> None:
    text = '<source srcset="docs/images/dark.png"> <img src="docs/images/light.png" alt="a"> <img src="https://a.example/b.png">'
    assert with_links(text, "README.md") == (
        '<source srcset="../images/dark.png"> <img src="../images/light.png" alt="a"> <img src="https://a.example/b.png">'
    )


def test_a_link_to_a_source_file_becomes_its_text_and_a_wrong_one_stays() -> None:
    text = "[`the document`](../openapi/openapi.json) and [this](missing.md)"
    assert with_links(text, "docs/http.md") == "`the document` and [this](missing.md)"


@for_each("source", [*OUTSIDE, *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))])
def test_every_link_of_a_page_leads_to_a_file_of_the_repository(source: str) -> None:
    text = BLOCK.sub("", (ROOT / source).read_text("utf-8"))
    targets = {target.partition("#")[0] for _, target in LINK.findall(text) if ":" not in target}
    assert [target for target in targets if not ((ROOT / source).parent / target).exists()] == []


def test_every_page_from_elsewhere_exists() -> None:
    assert [name for name in OUTSIDE if not (ROOT / name).is_file()] == []


def leaves(section: dict[str, Any]) -> list[str]:
    """The pages of a section, and of the sections in it."""
    (content,) = section.values()
    return [content] if isinstance(content, str) else [page for entry in content for page in leaves(entry)]


@pytest.mark.full
@pytest.mark.parametrize("theme", ["dark", pytest.param("light", marks=pytest.mark.nightly)])
async def test_no_page_has_a_fault_of_accessibility(
    serve: Callable[..., PeeklockProcess], site: Path, theme: str
) -> None:
    service = serve(guide_dir=site)
    async with open_browser() as browser, open_screen(browser, service.url, theme=theme) as screen:
        for path in ("index.html", "http.html", "http/queues.html", "monitoring.html", "reference/problems.html"):
            await screen.page.goto(f"{service.url}/docs/guide/{path}")
            found = await faults_of_accessibility(screen.page)
            assert [fault for fault in found if fault[0] not in FAULTS_OF_THE_THEME] == []


@pytest.mark.full
async def test_an_old_link_into_the_http_guide_leads_to_the_new_page(
    serve: Callable[..., PeeklockProcess], site: Path
) -> None:
    old = f"{serve(guide_dir=site).url}/docs/guide/http.html"
    async with open_browser() as browser, open_screen(browser, old) as screen:
        for anchor, new in (("#groups", "/http/order.html#groups"), ("#topics", "/http/topics.html")):
            await screen.page.goto(f"{old}{anchor}")
            await screen.page.wait_for_url(f"**{new}")
            await screen.page.goto("about:blank")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
async def test_the_site_that_a_server_shows_is_searched_in_a_browser(
    serve: Callable[..., PeeklockProcess], site: Path, theme: str
) -> None:
    """The policy of the server allows everything that the pages do, or the browser would report a fault."""
    service = serve(guide_dir=site)
    async with open_browser() as browser, open_screen(browser, service.url, theme=theme) as screen:
        page = screen.page
        foreign: list[str] = []
        page.on("request", lambda request: request.url.startswith(service.url) or foreign.append(request.url))
        await page.goto(f"{service.url}/docs/guide")
        assert (
            await page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[theme]
        )
        await page.get_by_placeholder("Search").first.click()
        await page.keyboard.type("queue-full")
        await page.locator(".md-search-result__link").first.click()
        await page.wait_for_url(re.compile(r"/docs/guide/\w+"))
        assert foreign == []
