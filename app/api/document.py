"""The OpenAPI 3.1 document: what every operation promises, made of the declarations that answer it."""

from collections.abc import Mapping
from functools import cache
from inspect import cleandoc
from typing import Any

from fastapi import Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

import app
from app.api.open_access import LOCAL_ADMIN
from app.api.operation import OCTETS, PROBLEM, Operation
from app.api.problems import TITLES, UNREADABLE, codes
from app.api.raw import FIELD_HEADERS
from app.api.routes import OPERATIONS
from app.api.schemas import Schema, Schemas, reference
from app.domain.queue import LONGEST_NAME, NAME
from app.wire.problems import Problem
from app.wire.sending import SendMessage

INFO: Mapping[str, Any] = {
    "title": "Peeklock",
    "version": app.__version__,
    "description": cleandoc("""
        A message queue over HTTP. A receiver takes a message under a lock, and settles it by its lock token.

        Every answer has an `X-Request-Id`, the one that was given or a fresh one. Every error is a problem document
        (RFC 9457) with a stable `code`; its `tracking_id` is that id. A fault in the body is named by a JSON
        pointer; one elsewhere by `#/query/`, `#/header/` or `#/path/` and its name.

        Of a name that an object of a request has twice, the last value counts, as RFC 8259 allows. The `body` of a
        message is not looked into: it is delivered as it was written, repeated names and all.

        An integer is written without a fraction and without an exponent: `6`, not `6.0` or `6e0`.
    """),
    "license_info": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    "contact": {"name": "Peeklock"},
    "servers": [
        {"url": "http://127.0.0.1:8080", "description": "A server on this machine"},
        {"url": "/", "description": "The server that gives this document"},
    ],
    "tags": [
        {"name": "messages", "description": "Send, receive, and look after what lies in a queue."},
        {"name": "locks", "description": "Settle or renew what was received, by its lock token."},
        {"name": "queues", "description": "Queues and their settings."},
        {"name": "archive", "description": "What has ended, in batches for whoever copies it."},
        {"name": "keys", "description": "API keys and what they allow."},
        {"name": "health", "description": "For those who watch a server."},
    ],
}
SECURITY = {
    "ApiKey": {
        "type": "http",
        "scheme": "bearer",
        "description": cleandoc("""
            An API key. A server on loopback needs none until the first key is made. Until then it refuses a request
            whose `Host` is not localhost, [::1] or an address of 127.0.0.0/8, and a request from a page of another
            site. A body is JSON or CloudEvents; a raw send takes any type. A form's content type is accepted only
            without an `Origin`. Each operation names the right that its key needs in `x-peeklock-right`.
        """),
    }
}
PATH_SCHEMAS: Mapping[str, Schema] = {
    "queue": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": f"^{NAME.pattern}$"},
    "sequence_number": {"type": "integer", "format": "int64", "minimum": 1},
    "lock_token": {"type": "string", "minLength": 1},
    "key_id": {"type": "string", "minLength": 1},
}
HEADER_SCHEMAS: Mapping[str, tuple[str, Schema]] = {
    "Idempotency-Key": (
        "Makes the call safe to repeat: the same key and request hear the first answer again. It is not accepted with a "
        "batch that is not atomic, with a volatile message, or with a receive that has a filter, sequence numbers or the "
        "mode `receive_and_delete`.",
        {"type": "string", "minLength": 1, "maxLength": 255},
    ),
    LOCAL_ADMIN: (
        "`true` where the call has no API key, because a server on loopback has none yet. A server that needs keys "
        "ignores it.",
        {"type": "string"},
    ),
    "Prefer": ("`wait=N` waits so many seconds, where the body says nothing of it.", {"type": "string"}),
    "traceparent": ("W3C trace context, kept with the message.", {"type": "string"}),
    "If-Match": (
        "The ETags of which the thing must still have one, or `*` where it must be there.",
        {"type": "string"},
    ),
    "If-None-Match": (
        "The ETags of which the thing may have none, or `*` where it may not be there.",
        {"type": "string"},
    ),
}
ANSWER_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Request-Id": ("The id of this request.", {"type": "string"}),
    "ETag": ("What If-Match may name.", {"type": "string"}),
    "Idempotency-Replayed": ("`true` where this is the answer to an earlier call.", {"type": "string"}),
    "Retry-After": ("Seconds after which to try again.", {"type": "string"}),
    "WWW-Authenticate": ("How to say who is calling.", {"type": "string"}),
    "Accept-Encoding": ("The content encodings that a body may have.", {"type": "string"}),
}
PROBLEM_HEADERS: Mapping[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    415: ("Accept-Encoding",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
SUCCESS = {200: "Done.", 201: "Made.", 202: "Accepted.", 204: "Done; there is nothing more to say."}
BINARY: Schema = {"type": "string", "format": "binary"}


class WireRoute(APIRoute):
    """An operation as the framework documents it. It answers no request; see `Dispatcher`."""

    def __init__(self, operation: Operation, promises: Mapping[str, Any]) -> None:
        self.operation = operation
        summary, _, rest = cleandoc(operation.endpoint.__doc__ or "").partition("\n\n")
        super().__init__(
            operation.path,
            _unopened,
            methods=[operation.method],
            name=operation.name,
            operation_id=operation.name,
            tags=[operation.tag],
            summary=" ".join(summary.split()).removesuffix("."),
            description=f"{rest or summary}\n\n{_needed(operation)}",
            status_code=min(operation.answers),
            response_class=Response,
            response_model=None,
            openapi_extra=dict(promises),
        )


def wire_routes() -> list[WireRoute]:
    """A route for every operation."""
    schemas = _schemas()
    return [WireRoute(operation, _promises(operation, schemas)) for operation in OPERATIONS]


@cache
def openapi_document() -> dict[str, Any]:
    """The document as it is published, made without opening any room."""
    document = get_openapi(**INFO, routes=wire_routes())
    headers = {name: {"description": text, "schema": schema} for name, (text, schema) in ANSWER_HEADERS.items()}
    document["components"] = {
        "schemas": _schemas().components(),
        "headers": headers,
        "responses": {_name(status): _problem(status) for status in sorted(_refused())},
        "securitySchemes": SECURITY,
    }
    document["security"] = [{name: []} for name in SECURITY]
    return document


async def _unopened() -> None:
    raise RuntimeError("A route of the document does not answer requests.")


@cache
def _schemas() -> Schemas:
    asked = [operation.body for operation in OPERATIONS if operation.body not in (None, bytes)]
    answered = [shape for operation in OPERATIONS for shape in operation.answers.values() if shape not in (None, bytes)]
    return Schemas(asked, [*answered, Problem])


def _promises(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    """What the framework cannot read off a signature."""
    promises: dict[str, Any] = {
        "parameters": [*_path(operation), *_query(operation, schemas), *_headers(operation, schemas)],
        "responses": {
            **{str(status): _answer(operation, status) for status in operation.answers},
            **{
                str(status): {"$ref": f"#/components/responses/{_name(status)}"}
                for status in sorted(_refusals(operation))
            },
        },
    }
    if operation.body is not None:
        promises["requestBody"] = _body(operation, schemas)
    if operation.right is None:
        promises["security"] = []
    else:
        promises["x-peeklock-right"] = operation.right.value
    return promises


def _needed(operation: Operation) -> str:
    """Which right the key of a call must hold, and on what."""
    if operation.right is None:
        return "Needs no API key."
    where = "the queue" if "{queue}" in operation.path else "all queues"
    return f"Needs the right `{operation.right}` on {where}."


def _path(operation: Operation) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": PATH_SCHEMAS[name]} for name in names]


def _query(operation: Operation, schemas: Schemas) -> list[dict[str, Any]]:
    members = schemas.members(operation.query) if operation.query else {}
    return [_parameter("query", name, schema) for name, schema in members.items()]


def _headers(operation: Operation, schemas: Schemas) -> list[dict[str, Any]]:
    known = {name: {"description": text, **schema} for name, (text, schema) in HEADER_SCHEMAS.items()}
    if operation.body is bytes:
        members = schemas.members(SendMessage)
        known |= {header: _in_header(members[field]) for header, field in FIELD_HEADERS.items()}
    return [_parameter("header", name, known[name]) for name in operation.headers]


def _in_header(schema: Schema) -> Schema:
    """The schema of a header; generators know of no other texts there than plain ones."""
    return {key: value for key, value in schema.items() if (key, schema.get("type")) != ("format", "string")}


def _parameter(where: str, name: str, schema: Schema) -> dict[str, Any]:
    description = schema.get("description")
    schema = {key: value for key, value in schema.items() if key != "description"}
    parameter = {"name": name, "in": where, "required": False, "schema": schema}
    return parameter if description is None else {**parameter, "description": description}


def _body(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    if operation.body is bytes:
        return {"required": False, "content": {OCTETS.decode(): {"schema": BINARY}}}
    schema = reference(operation.body)
    content: dict[str, Any] = {"schema": schema}
    if operation.example is not None:
        content["example"] = operation.example
    return {"required": schemas.demands(operation.body), "content": {operation.accepts.decode(): content}}


def _answer(operation: Operation, status: int) -> dict[str, Any]:
    shape = operation.answers[status]
    names = ["X-Request-Id"]
    names += ["ETag"] if status in operation.tagged else []
    names += ["Idempotency-Replayed"] if "Idempotency-Key" in operation.headers and status != 202 else []
    answer: dict[str, Any] = {"description": SUCCESS[status], "headers": _header_references(names)}
    if shape is bytes:
        answer["content"] = _bytes(operation.gives)
    elif shape is not None:
        answer["content"] = {operation.gives.decode(): {"schema": reference(shape)}}
    return answer


def _bytes(kind: bytes) -> dict[str, Any]:
    """Text, or bytes of any kind: then the first is what generated clients know, the second what is true."""
    if kind.startswith(b"text/"):
        return {kind.decode(): {"schema": {"type": "string"}}}
    return {OCTETS.decode(): {"schema": BINARY}, "*/*": {"schema": {}}}


def _refusals(operation: Operation) -> set[int]:
    """The statuses of its own refusals, and of those that any operation may meet."""
    met = {413, 500, *UNREADABLE}
    if operation.right is not None:
        met |= {401, 403, 503}
    if operation.body is not None:
        met |= {415}
    return {*operation.refusals, *met}


def _refused() -> set[int]:
    """The statuses of all refusals there are."""
    return {status for operation in OPERATIONS for status in _refusals(operation)}


def _name(status: int) -> str:
    """The name under which a refusal stands once in the document, such as `NotFound`."""
    return TITLES[status].title().replace(" ", "")


def _problem(status: int) -> dict[str, Any]:
    names = ["X-Request-Id", *PROBLEM_HEADERS.get(status, ())]
    return {
        "description": f"{TITLES[status]}: {', '.join(f'`{code}`' for code in codes(status))}.",
        "headers": _header_references(names),
        "content": {PROBLEM.decode(): {"schema": reference(Problem)}},
    }


def _header_references(names: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
