"""The page of samples: every operation in each language."""

from __future__ import annotations

from app.api.openapi.code_samples import code_samples
from developing.reference import markdown
from developing.reference.contract import DOCUMENT, operations

INTRODUCTION = """
Every operation in curl, Python, TypeScript, Java and Go. The samples use the HTTP client of the language and nothing of
Peeklock; those in Python need `httpx`. The page `/docs` of a server has the same samples. Names, numbers and tokens are
examples. If the server needs an API key, add the header `Authorization: Bearer <key>`.

Programs in Python are shorter with [the client](../../client/README.md), and programs in other languages with
[an SDK](../sdks.md).
"""
KINDS = {"curl": "sh", "Python": "python", "TypeScript": "ts", "Java": "java", "Go": "go"}
"""How a block of each language is marked."""


def page() -> str:
    """Return the page: a section for each operation, with a sample in each language."""
    calls = {name.strip("`"): call for call, name, *_ in operations()}
    parts = [INTRODUCTION]
    for name, sources in code_samples(DOCUMENT).items():
        parts += [f"## {name}", f"{calls[name]}:"]
        parts += [
            f"In {language}:\n\n{markdown.block(KINDS[language], source.rstrip())}"
            for language, source in sources.items()
        ]
    return markdown.page("Samples in five languages", *parts)
