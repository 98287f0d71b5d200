"""Samples of every operation in curl, Python, TypeScript, Java and Go, made from the OpenAPI document.

Each language has one template. An operation gives its method, its path and the example of its body. The samples are no part of
the document, because generators of clients and servers read all of it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from textwrap import indent
from typing import Any

from app.http.local_access import LOCAL_ADMIN
from app.http.response import OCTET_STREAM

SERVER = "http://localhost:8080"
"""The server in every sample."""

EXAMPLE_VALUES: Mapping[str, str] = {
    "queue": "orders",
    "topic": "events",
    "subscription": "eu",
    "key": "order.17",
    "consumer": "web-1",
    "sequence_number": "17",
    "lock_token": "17.1c66d937e0ceeec78eb91ef100ded6eb",
    "key_id": "7022c1fdfc584c22",
    "transaction_id": "5d0a1f6f2b0c4d51a2f5a0b8a1c9e7d3",
    "move_id": "0b2cc5b08a5b4e0c8f7d5f6f3f0e1a9d",
}
"""The value of each parameter of a path."""

EXAMPLE_QUERIES: Mapping[str, str] = {
    "browse_messages": "state=dead_lettered&limit=10",
    "receive_raw": "wait_seconds=20",
}
"""The queries of operations whose samples have one."""

RAW_BODY, RAW_TYPE = '<order number="17"/>', "application/xml"
"""The body of a raw send, and its type."""

MAX_LINE = 80
"""Characters of a line in a sample. A longer value is written on several lines."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """The request that the samples of an operation make. `body` is a JSON value or, with `is_raw`, a text; None without one."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: Any
    is_raw: bool = False

    @property
    def text(self) -> str | None:
        """The body as it is sent, None without one."""
        return self.body if self.is_raw or self.body is None else _json(self.body)


def code_samples(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the samples of each operation of a document: by the id of the operation, and then by language."""
    return {
        operation["operationId"]: {language: write(request) for language, write in LANGUAGES.items()}
        for operation, request in sample_requests(document)
    }


def sample_requests(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], SampleRequest]]:
    """Yield each operation of a document with the request of its samples."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            query = EXAMPLE_QUERIES.get(operation["operationId"], "")
            url = f"{SERVER}{path.format_map(EXAMPLE_VALUES)}{'?' if query else ''}{query}"
            yield operation, _request(operation, method.upper(), url)


def _request(operation: Mapping[str, Any], method: str, url: str) -> SampleRequest:
    headers: dict[str, str] = {}
    if any(parameter["name"] == LOCAL_ADMIN for parameter in operation.get("parameters", ())):
        headers[LOCAL_ADMIN] = "true"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if kind == OCTET_STREAM.decode():
            return SampleRequest(method, url, {**headers, "Content-Type": RAW_TYPE}, RAW_BODY, is_raw=True)
        if "example" in content:
            return SampleRequest(method, url, {**headers, "Content-Type": kind}, content["example"])
    return SampleRequest(method, url, headers, None)


# ---- the templates ---------------------------------------------------------------------------------------------------


def _curl(request: SampleRequest) -> str:
    implied = "GET" if request.body is None else "POST"
    method = "" if request.method == implied else f" -X {request.method}"
    words = [f"curl -s{method} {_in_shell(request.url)}"]
    words += [f"-H {_in_shell(f'{name}: {value}')}" for name, value in request.headers.items()]
    if request.text is not None:
        words.append(f"{'--data-binary' if request.is_raw else '-d'} {_in_shell(request.text)}")
    return " \\\n  ".join(words) + "\n"


def _python(request: SampleRequest) -> str:
    arguments = [json.dumps(request.method), json.dumps(request.url)]
    if request.headers:
        arguments.append(f"headers={_written(dict(request.headers), PYTHON, '    ')}")
    if request.body is not None:
        arguments.append(f"{'content' if request.is_raw else 'json'}={_written(request.body, PYTHON, '    ')}")
    arguments.append("timeout=60")
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"import httpx\n\nanswer = httpx.request(\n{lines})\nprint(answer.status_code, answer.text)\n"


def _typescript(request: SampleRequest) -> str:
    options = [f"method: {json.dumps(request.method)}"]
    if request.headers:
        options.append(f"headers: {_json(dict(request.headers))}")
    if request.text is not None:
        value = json.dumps(request.text) if request.is_raw else f"JSON.stringify({_nested(request.text, '  ')})"
        options.append(f"body: {value}")
    lines = "".join(f"  {option},\n" for option in options)
    return f"""\
const answer = await fetch({json.dumps(request.url)}, {{
{lines}}});
console.log(answer.status, await answer.text());
"""


def _java(request: SampleRequest) -> str:
    headers = "".join(
        f"            .header({json.dumps(name)}, {json.dumps(value)})\n" for name, value in request.headers.items()
    )
    body = "BodyPublishers.noBody()"
    if request.text is not None:
        escaped = request.text.replace("\\", "\\\\").replace('"""', '\\"""')
        body = f'BodyPublishers.ofString("""\n{indent(escaped, " " * 16)}""")'
    return f"""\
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

class Sample {{
    public static void main(String[] arguments) throws Exception {{
        var request = HttpRequest.newBuilder(URI.create({json.dumps(request.url)}))
{headers}            .method({json.dumps(request.method)}, {body})
            .build();
        var answer = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.body());
    }}
}}
"""


def _go(request: SampleRequest) -> str:
    packages = ["fmt", "io", "log", "net/http", *(["strings"] if request.text is not None else [])]
    imports = "".join(f'\t"{package}"\n' for package in packages)
    headers = "".join(
        f"\trequest.Header.Set({json.dumps(name)}, {json.dumps(value)})\n" for name, value in request.headers.items()
    )
    body = "nil"
    if request.text is not None:
        body = f"strings.NewReader({json.dumps(request.text) if '`' in request.text else f'`{request.text}`'})"
    return f"""\
package main

import (
{imports})

func main() {{
\trequest, err := http.NewRequest({json.dumps(request.method)}, {json.dumps(request.url)}, {body})
\tif err != nil {{
\t\tlog.Fatal(err)
\t}}
{headers}\tanswer, err := http.DefaultClient.Do(request)
\tif err != nil {{
\t\tlog.Fatal(err)
\t}}
\ttext, err := io.ReadAll(answer.Body)
\tif err != nil {{
\t\tlog.Fatal(err)
\t}}
\tfmt.Println(answer.StatusCode, string(text))
}}
"""


LANGUAGES: Mapping[str, Callable[[SampleRequest], str]] = {
    "curl": _curl,
    "Python": _python,
    "TypeScript": _typescript,
    "Java": _java,
    "Go": _go,
}
"""The template of each language, in the order in which a page shows them."""


# ---- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notation:
    """How a language writes a JSON value."""

    step: str
    last_comma: str
    scalar: Callable[[Any], str]


JSON_TEXT = Notation("  ", "", partial(json.dumps, ensure_ascii=False))
PYTHON = Notation(
    "    ", ",", lambda value: JSON_TEXT.scalar(value) if isinstance(value, str) and '"' not in value else repr(value)
)


def _json(value: Any) -> str:
    """Return a value as JSON, with its first and last line not indented."""
    return _written(value, JSON_TEXT, "")


def _written(value: dict[str, Any] | list[Any] | str | float | None, notation: Notation, indentation: str) -> str:
    """Return a JSON value, an object or array on one line if it is short. `indentation` is that of its last line."""
    inner = indentation + notation.step
    if isinstance(value, dict):
        entries = [f"{notation.scalar(name)}: {_written(member, notation, inner)}" for name, member in value.items()]
        start, end = "{", "}"
    elif isinstance(value, list):
        entries, start, end = [_written(entry, notation, inner) for entry in value], "[", "]"
    else:
        return notation.scalar(value)
    line = f"{start}{', '.join(entries)}{end}"
    if len(indentation) + len(line) <= MAX_LINE and "\n" not in line:
        return line
    lines = f",\n{inner}".join(entries)
    return f"{start}\n{inner}{lines}{notation.last_comma}\n{indentation}{end}"


def _nested(text: str, indentation: str) -> str:
    """Return a text of several lines with all but the first indented."""
    return text.replace("\n", f"\n{indentation}")


def _in_shell(text: str) -> str:
    """Return a text in single quotes for a shell."""
    return "'" + text.replace("'", "'\\''") + "'"
