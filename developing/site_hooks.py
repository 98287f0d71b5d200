"""Hooks of MkDocs: the navigation is the list in docs/README.md, and links to other files of the repository work.

MkDocs loads this file by its name in mkdocs.yml. Only then is MkDocs imported.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path
from textwrap import indent
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
CONTENTS = "docs/README.md"
OUTSIDE = {
    "README.md": "project/peeklock.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "app/README.md": "project/service.md",
    "client/README.md": "project/python-client.md",
    "helm/peeklock/README.md": "project/chart.md",
    "pipeline/README.md": "project/pipeline.md",
    "requirements/README.md": "project/dependencies.md",
}
"""The pages of the site that stand elsewhere in the repository."""

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
IMAGE = re.compile(r'\b(src|srcset)="([^":]+)"')
"""An image in HTML, as pages have it that show another one in the dark."""
ENTRY = re.compile(r"^(?:- \[(.+?)\]\((\S+?)\)|([A-Z][\w ]*):)$", re.MULTILINE)
"""A page in the list of pages, or the name of the pages that follow."""
CARDS = re.compile(r"<!-- cards -->\s*<ul>")
"""The mark of a list whose entries stand side by side."""
SAMPLE = r"In ([^\n:]+):\n\n(```\w+\n.*?^```)\n"
"""A sample of code, after a line with its language."""
SAMPLES = re.compile(rf"^{SAMPLE}(?:\n{SAMPLE})+", re.MULTILINE | re.DOTALL)
SAMPLES_PAGE = "docs/reference/samples.md"
SAMPLES_LINK = re.compile(r"^\[`(\w+)` in five languages\]\(\S*reference/samples\.md#\1\)\n", re.MULTILINE)
"""A line that links to the samples of an operation."""
SEARCH_BUTTON = '<label class="md-header__button md-icon" for="__search">'
LINKS_PLACE = "<!-- links of the server -->"
"""Where a server that shows the site puts links to its other pages. app/api/openapi/guide.py does."""
SEARCH_DIALOG = 'data-md-component="search" role="dialog"'
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the list of pages."""
    config.nav = navigation((ROOT / CONTENTS).read_text("utf-8"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside docs/."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let the links of a page lead to pages of the site. A link to a source file becomes its text.

    Samples in several languages become tabs, also those that a line links to.
    """
    names = {name: source for source, name in OUTSIDE.items()}
    shown = with_samples(markdown, (ROOT / SAMPLES_PAGE).read_text("utf-8"))
    return with_tabs(with_links(shown, names.get(page.file.src_uri, f"docs/{page.file.src_uri}")))


def on_page_content(html: str, **_: object) -> str:
    """Let the entries of a list with the mark be cards."""
    return CARDS.sub('<ul class="cards">', html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move scripts from the page into files, so that a policy without inline scripts allows the site.

    The dialog of the search gets a name for screen readers, which the theme leaves out. The head of the page gets a place
    for the links of a server.
    """
    assets = Path(config.site_dir) / "assets/scripts"
    assets.mkdir(parents=True, exist_ok=True)

    def moved(script: re.Match[str]) -> str:
        name = f"{hashlib.sha256(script[1].encode()).hexdigest()[:16]}.js"
        (assets / name).write_text(script[1], "utf-8")
        folder = posixpath.dirname(page.file.dest_uri)
        return f'<script src="{posixpath.relpath(f"assets/scripts/{name}", folder or ".")}"></script>'

    named = output.replace(SEARCH_DIALOG, f'{SEARCH_DIALOG} aria-label="Search"')
    linked = named.replace(SEARCH_BUTTON, f'<div class="server-links">{LINKS_PLACE}</div>{SEARCH_BUTTON}')
    return INLINE_SCRIPT.sub(moved, linked)


def on_post_template(output_content: str, template_name: str, **_: object) -> str:
    """Leave out the page for what does not exist: who serves the site answers that."""
    return "" if template_name == "404.html" else output_content


def navigation(contents: str) -> list[Any]:
    """Return the navigation that a list of pages describes: a section for each heading, a page for each link.

    A word with a colon, alone in its line, begins a section within the section. A heading without pages is left out.
    """
    sections: list[Any] = [{"Contents": "README.md"}]
    for part in contents.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        pages: list[Any] = []
        inner = pages
        for name, target, group in ENTRY.findall(text):
            if group:
                inner = []
                pages.append({group: inner})
            else:
                inner.append({name: _site_path(target, CONTENTS) or target})
        if pages:
            sections.append({title: pages})
    return sections


def with_links(markdown: str, source: str) -> str:
    """Return the text of a page with links to pages and images of the site; a link to another file becomes its text.

    `source` is the page's path in the repository.
    """
    here = OUTSIDE.get(source, source.removeprefix("docs/"))

    def resolved(link: re.Match[str]) -> str:
        text, (target, mark, anchor) = link[1], link[2].partition("#")
        if not target or ":" in target:
            return link[0]
        if found := _site_path(target, source):
            return f"[{text}]({posixpath.relpath(found, posixpath.dirname(here) or '.')}{mark}{anchor})"
        return text

    def shown(image: re.Match[str]) -> str:
        found = _site_path(image[2], source)
        return f'{image[1]}="{posixpath.relpath(found, posixpath.dirname(here) or ".")}"' if found else image[0]

    return IMAGE.sub(shown, LINK.sub(resolved, markdown))


def with_samples(markdown: str, samples: str) -> str:
    """Return the text of a page with the samples of an operation below each line that links to them.

    `samples` is the page that has them. Raises KeyError for an operation that it does not have.
    """
    sections = (section.split("\n\n", 2) for section in samples.split("\n## ")[1:])
    samples_of = {operation: shown for operation, _, shown in sections}
    return SAMPLES_LINK.sub(lambda link: f"{link[0]}\n{samples_of[link[1]]}", markdown)


def with_tabs(markdown: str) -> str:
    """Return the text of a page with a tab for each of the samples that follow one another, each after "In LANGUAGE:"."""

    def tab(sample: re.Match[str]) -> str:
        return f'=== "{sample[1].replace("`", "")}"\n\n{indent(sample[2], "    ")}\n'

    def tabs(samples: re.Match[str]) -> str:
        return re.sub(rf"^{SAMPLE}", tab, samples[0], flags=re.MULTILINE | re.DOTALL)

    return SAMPLES.sub(tabs, markdown)


def _site_path(target: str, source: str) -> str | None:
    """Return the path in the site of what a page links to; None if it is not in the site."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    for candidate in (path, f"{path}/README.md"):
        if candidate in OUTSIDE:
            return OUTSIDE[candidate]
    return path.removeprefix("docs/") if path.startswith("docs/") else None
