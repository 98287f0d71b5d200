"""The page of operations, from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from app.http.problems import TITLES
from developing.reference import markdown, schemas, words
from developing.reference.contract import DOCUMENT, METHODS, SCHEMAS, errors

PROBLEMS = """
Every other answer is a [Problem](http-types.md#problem). [Problem codes](problems.md) lists them all.
"""
INTRODUCTION = """
The operations of a server, from its OpenAPI document `/openapi.json`. The server shows the same document at `/docs`, where
you can try requests. [The HTTP guide](../http.md) explains how they work together, with examples.
"""
REPEATS = """
The last column says what a repeat of the same request does where the first one took effect but its answer was lost. See
[Broken connections](../http/broken-connections.md).
"""


class Operation(NamedTuple):
    """A call of the document."""

    method: str
    path: str
    about: dict[str, Any]

    @property
    def id(self) -> str:
        """The operation id."""
        return self.about["operationId"]

    @property
    def call(self) -> str:
        """The method and the path."""
        return f"{self.method.upper()} {self.path}"

    @property
    def successes(self) -> dict[str, Any]:
        """The answers that are not errors, by status."""
        return {status: answer for status, answer in self.about["responses"].items() if status < "400"}


def operations() -> Iterator[Operation]:
    """Yield every operation, in the order of the document."""
    for path, calls in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in calls:
                yield Operation(method, path, calls[method])


def page() -> str:
    """Return the page: a table of all operations, then a section for each, by subject."""
    known = list(operations())
    parts: list[str] = [INTRODUCTION, DOCUMENT["info"]["description"], "## All operations", _overview(known), REPEATS]
    for tag in DOCUMENT["tags"]:
        parts += [f"## {tag['name'].capitalize()}", tag["description"]]
        parts += [_section(operation) for operation in known if operation.about["tags"] == [tag["name"]]]
    return markdown.page("HTTP reference", *parts)


def _overview(known: list[Operation]) -> str:
    repeats = words.of(words.WORDS, "repeats", (operation.id for operation in known))
    rows = [
        (
            f"`{operation.call}`",
            f"[`{operation.id}`](#{operation.id})",
            operation.about.get("x-peeklock-right", "none"),
            ", ".join(status for status in operation.successes if status != "304"),
            repeats[operation.id],
        )
        for operation in known
    ]
    return markdown.table(("call", "operation", "right", "answers", "repeat after a lost answer"), rows)


def _section(operation: Operation) -> str:
    about = operation.about
    parts = [
        f"### {operation.id}",
        markdown.block("text", operation.call),
        _purpose(about["summary"].removesuffix(".") + ".", about.get("description", "")),
        _parameters(about.get("parameters", [])),
        *_body(about.get("requestBody", {})),
        _answers(operation),
        *_answer_examples(operation),
    ]
    return "\n\n".join(part.strip() for part in parts if part)


def _purpose(summary: str, description: str) -> str:
    """Return the summary and the description. A description that begins with the summary is enough."""
    return description if " ".join(description.split()).startswith(summary) else f"{summary}\n\n{description}"


def _parameters(parameters: list[dict[str, Any]]) -> str:
    rows = [
        (
            f"`{one['name']}`{', required' if one.get('required') else ''}",
            one["in"],
            schemas.kind_of(one.get("schema", {})),
            one.get("description", ""),
        )
        for one in parameters
    ]
    return markdown.table(("parameter", "in", "type", "meaning"), rows)


def _body(body: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of a JSON body, or its type, and an example."""
    for media_type, content in body.get("content", {}).items():
        schema = content.get("schema", {})
        name = schema.get("$ref", "").rpartition("/")[2]
        yield f"Body: {schemas.kind_of(schema)} as `{media_type}`{', required' if body.get('required') else ''}."
        if name and schemas.is_object(name):
            yield schemas.fields_table(SCHEMAS[name])
        if "example" in content and media_type == "application/json":
            yield markdown.block("json", json.dumps(content["example"], indent=2, ensure_ascii=False))


def _answers(operation: Operation) -> str:
    rows = []
    for status, answer in operation.successes.items():
        found = schemas.resolve(answer)
        kinds = " or ".join(
            schemas.kind_of(content.get("schema", {})) if media == "application/json" else f"`{media}`"
            for media, content in found.get("content", {}).items()
        )
        headers = ", ".join(f"`{name}`" for name in found.get("headers", {}) if name != "X-Request-Id")
        rows.append((status, kinds, headers, found["description"]))
    rows += [(str(status), "[Problem](http-types.md#problem)", "", codes) for status, codes in _problems(operation)]
    return markdown.table(("answer", "body", "headers", "meaning"), rows)


def _problems(operation: Operation) -> Iterator[tuple[int, str]]:
    """Yield each status of the problems of an operation, with their codes."""
    known = errors()
    statuses = {code: known[code][0] for code in operation.about.get("x-peeklock-problems", ())}
    for status in sorted(set(statuses.values())):
        anchor = f"problems.md#{status}-{TITLES[status].lower().replace(' ', '-')}"
        yield status, ", ".join(f"[`{code}`]({anchor})" for code, at in statuses.items() if at == status)


def _answer_examples(operation: Operation) -> Iterator[str]:
    for status, answer in operation.successes.items():
        content = schemas.resolve(answer).get("content", {}).get("application/json", {})
        if "example" in content:
            yield f"Example of an answer {status}:"
            yield markdown.block("json", json.dumps(content["example"], indent=2, ensure_ascii=False))
            return
