"""The site of the documentation for the server that `python3 dev.py run` starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from developing.environment import digest, environment_lock
from developing.paths import BIN, REQUIREMENTS, ROOT
from developing.processes import call, say

SITE = ROOT / "build/site"
BUILT_FROM = ROOT / "build/site.sha256"
"""The digest of the sources of the site that was built last."""
PAGES = ("*.md", "*/README.md", "helm/peeklock/README.md")
"""The pages outside docs/. Those that the site does not show do no harm here."""


def build_site() -> Path:
    """Return the directory of the site, which is built again only if a source has changed. Raises `Refusal` if that fails."""
    with environment_lock():  # two servers may start at the same time
        wanted = digest(*sources())
        if not (SITE / "index.html").exists() or not BUILT_FROM.exists() or BUILT_FROM.read_text() != wanted:
            say("building the site of the documentation")
            call(BIN / "mkdocs", "build", "--quiet")
            BUILT_FROM.write_text(wanted)
    return SITE


def sources() -> Iterator[Path]:
    """Yield the files of which the site is made."""
    yield from (ROOT / "mkdocs.yml", ROOT / "developing/site_hooks.py", REQUIREMENTS / "docs.txt")
    yield from sorted(file for file in (ROOT / "docs").rglob("*") if file.is_file())
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))
