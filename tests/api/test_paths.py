"""All operations parse paths and integers in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.api.endpoints.routes import OPERATIONS
from app.api.openapi.document import openapi_document
from app.http.operation import Operation
from tests.api.api_server import ApiServer, pointers, problem
from tests.api.expected_rights import PATH_VALUES
from tests.walks import for_each

DOCUMENT = openapi_document()

each_operation = for_each("operation", OPERATIONS, lambda operation: operation.name)


@each_operation
@for_each("slash", ["%2f", "%2F"])
async def test_an_escaped_slash_does_not_separate_segments(api: ApiServer, operation: Operation, slash: str) -> None:
    path = operation.path.format(**PATH_VALUES)
    positions = [position for position, character in enumerate(path) if character == "/" and position > 0]
    for position in positions:
        escaped = path[:position] + slash + path[position + 1 :]
        answer = await api.http.request(operation.method, escaped)
        assert answer.status_code in (404, 405, 422), escaped
    assert (await api.request_json("GET", "/queues"))["items"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/queues/"), ("POST", "/v1/queues//messages"), ("DELETE", "/v1/keys/"), ("GET", "/livez/")],
)
async def test_an_empty_segment_is_no_parameter(api: ApiServer, method: str, path: str) -> None:
    problem(await api.http.request(method, path), 404, "not-found")


def integers(where: str) -> Iterator[tuple[str, str, str]]:
    """Return the method, path and name of each integer parameter in this location."""
    for path, methods in DOCUMENT["paths"].items():
        for method, promise in methods.items():
            for parameter in promise.get("parameters", []):
                if parameter["in"] == where and is_integer(parameter["schema"]):
                    yield method, path, parameter["name"]


def integers_of_bodies() -> Iterator[tuple[str, str, str]]:
    """Return the method, path and name of each integer at the top level of a body."""
    for path, methods in DOCUMENT["paths"].items():
        for method, promise in methods.items():
            for media in promise.get("requestBody", {}).get("content", {}).values():
                name = media["schema"].get("$ref", "").rpartition("/")[2]
                for field, schema in DOCUMENT["components"]["schemas"].get(name, {}).get("properties", {}).items():
                    if is_integer(schema):
                        yield method, path, field


def is_integer(schema: dict[str, Any]) -> bool:
    return schema.get("type") in ("integer", ["integer", "null"])


IN_QUERIES, IN_HEADERS, IN_BODIES = [*integers("query")], [*integers("header")], [*integers_of_bodies()]

each_spelling = for_each("number", ["6.0", "6e0", "6.5", "1e1"])


def test_the_document_has_integers_to_try() -> None:
    assert {name for *_, name in IN_QUERIES} == {"limit", "after", "version"}
    assert {name for *_, name in IN_HEADERS} == {"Peeklock-Priority"}
    assert {"priority", "max_messages", "limit", "max_delivery_count"} <= {name for *_, name in IN_BODIES}


@each_spelling
@for_each(("method", "path", "name"), IN_QUERIES)
async def test_an_integer_of_a_query_has_no_fraction(
    api: ApiServer, method: str, path: str, name: str, number: str
) -> None:
    answer = await api.http.request(method, path.format(**PATH_VALUES), params={name: number})
    assert pointers(answer) == [f"#/query/{name}"]


@each_spelling
@for_each(("method", "path", "name"), IN_HEADERS)
async def test_an_integer_of_a_header_has_no_fraction(
    api: ApiServer, method: str, path: str, name: str, number: str
) -> None:
    answer = await api.http.request(method, path.format(**PATH_VALUES), headers={name: number})
    assert pointers(answer) == [f"#/header/{name}"]


@each_spelling
@for_each(("method", "path", "name"), IN_BODIES)
async def test_an_integer_of_a_body_has_no_fraction(
    api: ApiServer, method: str, path: str, name: str, number: str
) -> None:
    answer = await api.http.request(method, path.format(**PATH_VALUES), content=f'{{"{name}": {number}}}')
    assert pointers(answer) == [f"/{name}"]


async def test_an_integer_of_a_path_has_no_fraction(api: ApiServer) -> None:
    await api.send(body=1)
    assert pointers(await api.request("GET", "/queues/orders/messages/1.0")) == ["#/path/sequence_number"]
    problem(await api.request("GET", "/queues/orders/messages/7"), 404, "message-not-found")
