"""The page of problem codes."""

from __future__ import annotations

from app.api.http.problems import TITLES
from developing.reference import markdown, words
from developing.reference.contract import errors

INTRODUCTION = """
Every error is a problem document (RFC 9457) with a `code`. A code does not change between versions, so compare it.
`retryable` says whether the same request may succeed later. [Errors](../http.md#errors) in the HTTP guide says how to
repeat. [Problem](http-types.md#problem) lists the members of the document.
"""


def page() -> str:
    """Return the page: a table of all codes, then a section for each status."""
    known = errors()
    said = words.of(words.WORDS, "problems", known)
    rows = [
        (markdown.code(code), str(status), "yes" if retryable else "no", said[code]["meaning"], said[code]["action"])
        for code, (status, retryable) in sorted(known.items(), key=lambda entry: (entry[1][0], entry[0]))
    ]
    header = ("code", "status", "retryable", "meaning", "what to do")
    titles = markdown.table(("status", "title"), [(str(status), title) for status, title in TITLES.items()])
    return markdown.page(
        "Problem codes", INTRODUCTION, markdown.table(header, rows), "## Titles\n\n`title` names the status.", titles
    )
