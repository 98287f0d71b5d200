"""The pages for people who begin are short, their links lead somewhere, their figures were measured, and the index lists every page of docs/."""

from __future__ import annotations

import re
from pathlib import Path

from app.settings import Settings
from tests.docs.pages import DOCS, PAGES
from tests.walks import for_each

CHECKED = (*PAGES, "compare.md", "README.md")
HTTP_GUIDE = ("http.md", *sorted(str(page.relative_to(DOCS)) for page in (DOCS / "http").glob("*.md")))
MAX_LINES = 160
"""Of a page, without its lists of links."""
TO_LOOK_UP = ("sqs.md",)
"""Pages with tables of all that exists, which are as long as these."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FIGURE = re.compile(r"(?<![\d.])\d[\d,.]*(?: ms\b|×|/s\b| messages/s\b| % of a core)|p50 [\d.]+ ms|\b\d+ MiB\b(?= \|)")
"""A figure that only a measurement can give: CPU, a rate, a ratio, memory in a table."""
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@for_each("page", (*CHECKED, *HTTP_GUIDE))
def test_each_link_leads_to_a_page_and_a_heading(page: str) -> None:
    text = FENCED.sub("", (DOCS / page).read_text())
    for link in LINK.findall(text):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (DOCS / page).parent / file if file else DOCS / page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


@for_each("page", [page for page in CHECKED if page not in TO_LOOK_UP])
def test_a_page_is_short_and_has_no_indented_commands(page: str) -> None:
    text = (DOCS / page).read_text()
    assert len([line for line in text.splitlines() if not line.startswith("- [")]) <= MAX_LINES
    assert not re.search(r"\n\n {4}\S", FENCED.sub("", text))


@for_each("page", CHECKED)
def test_each_measured_figure_is_one_of_the_last_run(page: str) -> None:
    measured = (DOCS / "performance.md").read_text()
    assert [figure[0] for figure in FIGURE.finditer((DOCS / page).read_text()) if figure[0] not in measured] == []


OF_CLIENTS = {"PEEKLOCK_URL", "PEEKLOCK_API_KEY", "PEEKLOCK_PUSH_SECRET"}


@for_each("page", CHECKED)
def test_each_setting_that_a_page_names_exists(page: str) -> None:
    known = {f"PEEKLOCK_{name.upper()}" for name in Settings.model_fields} | OF_CLIENTS
    assert set(re.findall(r"PEEKLOCK_[A-Z_]+", (DOCS / page).read_text())) - known == set()


def test_the_index_lists_each_page() -> None:
    linked = LINK.findall((DOCS / "README.md").read_text())
    every = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert every - set(linked) == set()


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
