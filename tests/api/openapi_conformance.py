"""Compare every answer that a test gets with the OpenAPI document."""

import json
import re
from functools import cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from app.api.openapi.document import openapi_document
from app.api.openapi.problem_answers import OTHER_PROBLEM_HEADERS
from app.http.problems import COMMON_CODES
from tests.api.expected_rights import PAGES

UNDOCUMENTED_STATUSES = {404, 405}  # answers to unknown paths and methods
HEADERS_OF_SOME = {"Idempotency-Replayed", "Link", "Location", "Preference-Applied", *OTHER_PROBLEM_HEADERS}
"""Headers that an answer may have."""

HEADERS_OF_STATUS = {401: ["WWW-Authenticate"], 415: ["Accept-Encoding"], 429: ["Retry-After"], 503: ["Retry-After"]}
"""Headers that every problem of a status has."""

DOCUMENT = openapi_document()


async def check_conformance(answer: httpx.Response) -> None:
    """Fail for an answer whose status, content type, headers, body or problem the operation does not declare."""
    promise = documented_responses(answer.request.method, answer.request.url.raw_path.decode().partition("?")[0])
    if promise is None:
        known = answer.request.method == "HEAD" or answer.request.url.path.startswith(PAGES)
        assert known or answer.status_code in UNDOCUMENTED_STATUSES
        return
    operation, responses = promise
    status = declared_status(responses, answer.status_code)
    assert status in responses, f"{operation} does not promise {answer.status_code}"
    response = responses[status]
    content = response.get("content", {})
    body = await answer.aread()
    if not content:
        assert body == b""
    elif not any(kind.startswith(("application/octet-stream", "text/")) for kind in content):
        ((kind, _),) = content.items()
        assert answer.headers["content-type"] == kind
        errors = list(validator(operation, status, kind).iter_errors(json.loads(body)))
        assert not errors, f"{operation} {answer.status_code}: {errors[0].message} at {list(errors[0].absolute_path)}"
    if answer.status_code >= 400:
        problem = json.loads(body)
        code = problem["code"]
        seconds = problem.get("retry_after")
        assert answer.headers.get("retry-after") == (None if seconds is None else str(seconds)), "the header differs"
        assert code in COMMON_CODES | problem_codes(operation), f"{operation} does not promise {code}"
    for name in {*response["headers"]} - HEADERS_OF_SOME | {*HEADERS_OF_STATUS.get(answer.status_code, ())}:
        assert name in answer.headers, f"{operation} {answer.status_code} promises the header {name}"


def declared_status(responses: dict[str, Any], status: int) -> str:
    """Return the name of the answer that declares a status: `default` for a problem without an answer of its own."""
    return str(status) if status < 400 or str(status) in responses else "default"


@cache
def problem_codes(operation: str) -> frozenset[str]:
    """Return the codes that an operation declares, besides those of every operation."""
    (found,) = [
        one for calls in DOCUMENT["paths"].values() for one in calls.values() if one["operationId"] == operation
    ]
    return frozenset(found.get("x-peeklock-problems", ()))


@cache
def validator(operation: str, status: str, kind: str) -> Draft202012Validator:
    """Return the validator of an answer's body."""
    (schema,) = [
        found["responses"][status]["content"][kind]["schema"]
        for methods in DOCUMENT["paths"].values()
        for found in methods.values()
        if found["operationId"] == operation
    ]
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


@cache
def documented_responses(method: str, path: str) -> tuple[str, Any] | None:
    """Return the operation of a path with its declared answers, None for an unknown path."""
    paths = [
        template
        for template in DOCUMENT["paths"]
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), path)
    ]
    if not paths:
        return None
    # Literal paths take precedence over paths with parameters.
    operation = DOCUMENT["paths"][min(paths, key=lambda template: template.count("{"))].get(method.lower())
    return None if operation is None else (operation["operationId"], operation["responses"])
