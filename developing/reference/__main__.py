"""Write the pages of docs/reference, or with `--check` tell whether they are as the code says."""

from __future__ import annotations

import sys
from collections.abc import Callable

from developing.paths import ROOT
from developing.reference import command_line, http_api, http_types, limits, metrics, problems, samples, settings

DIRECTORY = ROOT / "docs/reference"
PAGES: dict[str, Callable[[], str]] = {
    "http-api": http_api.page,
    "http-types": http_types.page,
    "samples": samples.page,
    "problems": problems.page,
    "command-line": command_line.page,
    "settings": settings.page,
    "metrics": metrics.page,
    "limits": limits.page,
}


def main() -> int:
    """Write what has changed, or name it. Return 1 if `--check` finds a page that is not as the code says."""
    is_check = sys.argv[1:] == ["--check"]
    stale = False
    for name, page in PAGES.items():
        file = DIRECTORY / f"{name}.md"
        text = page()
        if file.exists() and file.read_text("utf-8") == text:
            continue
        stale = True
        if is_check:
            print(f"docs/reference/{name}.md differs from the code: run `python3 dev.py docs --generate`", flush=True)
        else:
            file.write_text(text, "utf-8")
    return int(is_check and stale)


if __name__ == "__main__":
    sys.exit(main())
