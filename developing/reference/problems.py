"""The page of problem codes."""

from __future__ import annotations

from app.http.problems import TITLES
from developing.reference import markdown, words
from developing.reference.contract import errors

INTRODUCTION = """
Every error is a problem document (RFC 9457) with a `code`. A code does not change between versions, so compare it.
`retryable` says whether the same request may succeed later. [Errors](../http/errors.md#errors) says how to repeat.
[Problem](http-types.md#problem) lists the members of the document. The headings are the statuses with their `title`.
"""


def page() -> str:
    """Return the page: a section for each status, with a table of its codes."""
    known = errors()
    said = words.of(words.WORDS, "problems", known)
    parts = [INTRODUCTION]
    for status in sorted({status for status, _ in known.values()}):
        rows = [
            (markdown.code(code), "yes" if retryable else "no", said[code]["meaning"], said[code]["action"])
            for code, (at, retryable) in sorted(known.items())
            if at == status
        ]
        table = markdown.table(("code", "retryable", "meaning", "what to do"), rows)
        parts += [f"## {status} {TITLES[status]}", table]
    return markdown.page("Problem codes", *parts)
