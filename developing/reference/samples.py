"""The page of samples: the calls of a sender and of a worker, in each language."""

from __future__ import annotations

from app.api.openapi.code_samples import code_samples
from developing.reference import markdown
from developing.reference.contract import DOCUMENT, operations

INTRODUCTION = """
The calls that most programs need, in curl, Python, TypeScript, Java and Go. They use the HTTP client of the language and
nothing of Peeklock; the sample in Python needs `httpx`. The page `/docs` of a server has such samples for every operation. Names,
numbers and tokens are examples. If the server needs an API key, add the header `Authorization: Bearer <key>`.

Programs in Python are shorter with [the client](../../client/README.md), and programs in other languages with
[an SDK](../sdks.md).
"""
SHOWN = ("send_message", "receive_messages", "complete_lock", "renew_lock", "abandon_lock", "publish_message")
KINDS = {"curl": "sh", "Python": "python", "TypeScript": "ts", "Java": "java", "Go": "go"}
"""How a block of each language is marked."""


def page() -> str:
    """Return the page: a section for each operation, with a sample in each language."""
    samples = code_samples(DOCUMENT)
    calls = {name.strip("`"): call for call, name, *_ in operations()}
    parts = [INTRODUCTION]
    for name in SHOWN:
        parts += [f"## {name}", f"{calls[name]}:"]
        parts += [
            f"In {language}:\n\n{markdown.block(KINDS[language], source.rstrip())}"
            for language, source in samples[name].items()
        ]
    return markdown.page("Samples in five languages", *parts)
