"""The OpenAPI 3.1 document, made from the declarations of the operations."""

import json
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any

from fastapi import Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

import app
from app.api.endpoints.raw_send import FIELD_HEADERS, PROPERTIES_HEADER
from app.api.endpoints.routes import OPERATIONS
from app.api.openapi.problem_answers import header_references, problem_answers, problem_examples
from app.api.openapi.schemas import Schema, Schemas, reference
from app.domain.access import ANY_RIGHT
from app.domain.message import MAX_ID_LENGTH
from app.domain.queue import MAX_NAME_LENGTH, NAME_PATTERN
from app.http.answer_headers import is_paged
from app.http.authorize import DEFAULT_RIGHT
from app.http.local_access import LOCAL_ADMIN
from app.http.operation import EmptyBody, Operation
from app.http.problems import COMMON_CODES, TITLES, codes_of_status
from app.http.request import MAX_IDEMPOTENCY_KEY_LENGTH
from app.http.response import OCTET_STREAM
from app.wire.capabilities import OPENAPI_VERSION
from app.wire.message_fields import MessageToSend
from app.wire.problems import Problem

TITLE = "Peeklock HTTP API"
"""Some generators name the package of an SDK after it. `Peeklock` alone would give it the name of the Python client."""

THIS_SERVER = "The server that serves this document"
LOCAL_SERVER = {"url": "http://127.0.0.1:8080", "description": "A server on this machine"}
INFO: Mapping[str, Any] = {
    "title": TITLE,
    "version": app.__version__,
    "description": cleandoc("""
        A message broker over HTTP. A receiver takes a message under a lock, and settles it by its lock token.

        Every answer has an `X-Request-Id`: that of the request, or a new one. Every error is a problem document
        (RFC 9457) with a stable `code`; its `tracking_id` is that id. Its `errors` name each
        fault by a JSON pointer that begins with `#/body`, `#/query/`, `#/header/` or `#/path/`.

        If an object of a request repeats a name, the last value counts, as RFC 8259 allows. The `body` of a message is
        not interpreted: it is delivered as it was written, with repeated names.

        An integer is written without a fraction and without an exponent: `6`, not `6.0` or `6e0`.

        A field of a request that has no value is left out. The server takes null for left out, unless the field says
        what null means.

        `x-peeklock-problems` of an operation lists the codes of its problems, and so does its answer `default`. A later
        version of the server may add codes. Any operation may also answer
    """)
    + f" {', '.join(f'`{code}`' for code in sorted(COMMON_CODES))}.",
    "license_info": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    "contact": {"name": "Peeklock"},
    "servers": [LOCAL_SERVER, {"url": "/", "description": THIS_SERVER}],
    "tags": [
        {"name": "messages", "description": "Send, receive and administer messages."},
        {"name": "locks", "description": "Settle or renew a delivery by its lock token."},
        {"name": "transactions", "description": "Settle and send together, or not at all."},
        {"name": "states", "description": "Versioned states of processed messages."},
        {"name": "queues", "description": "Queues and their settings."},
        {"name": "consumers", "description": "Consumers of a queue, as they report themselves."},
        {"name": "topics", "description": "Publish messages to the queues of all subscriptions that match."},
        {"name": "archive", "description": "Messages that have ended, in batches to copy."},
        {"name": "keys", "description": "API keys and their rights."},
        {"name": "index", "description": "The start page of a server, and what it offers."},
        {"name": "health", "description": "Liveness, readiness and metrics of a server."},
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
NAME_SCHEMA: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_NAME_LENGTH,
    "pattern": f"^{NAME_PATTERN.pattern}$",
}
TEXT_SCHEMA: Schema = {"type": "string", "minLength": 1}
PATH_PARAMETERS: Mapping[str, tuple[str, Schema]] = {
    "queue": ("The name of the queue.", NAME_SCHEMA),
    "topic": ("The name of the topic.", NAME_SCHEMA),
    "subscription": ("The name of the subscription.", NAME_SCHEMA),
    "key": ("The name of the state.", NAME_SCHEMA),
    "consumer": ("The name of the consumer.", NAME_SCHEMA),
    "sequence_number": ("The sequence number of the message.", {"type": "integer", "format": "int64", "minimum": 1}),
    "lock_token": ("The lock token of the delivery, as it was received.", TEXT_SCHEMA),
    "key_id": ("The id of the key, not its secret.", TEXT_SCHEMA),
    "transaction_id": ("The id of the transaction.", TEXT_SCHEMA),
    "move_id": ("The id of the move task.", TEXT_SCHEMA),
}
REQUEST_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "Idempotency-Key": (
        "Makes the request safe to repeat: the same key and request get the first answer again. It is not accepted with a "
        "batch that is not atomic, with a volatile message, with a message in a transaction, or with a receive that has a filter, sequence numbers or the "
        "mode `receive_and_delete`.",
        {"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY_LENGTH},
    ),
    "Peeklock-Transaction-Id": (
        "An open transaction: the message is stored with its commit, or not at all.",
        {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH},
    ),
    PROPERTIES_HEADER: (
        "Properties as a JSON object. A property that has a header of its own is taken from there.",
        {"type": "string"},
    ),
    LOCAL_ADMIN: (
        "`true` in a request without an API key, while a server on loopback has no keys yet. A server that needs keys "
        "ignores it.",
        {"type": "string"},
    ),
    "Prefer": ("`wait=N` waits N seconds if the body has no `wait_seconds`.", {"type": "string"}),
    "traceparent": ("W3C trace context, kept with the message.", {"type": "string"}),
    "If-Match": (
        "The resource must have one of these ETags. `*` requires that it exists.",
        {"type": "string"},
    ),
    "If-None-Match": (
        "The resource must have none of these ETags. `*` requires that it does not exist.",
        {"type": "string"},
    ),
}
RESPONSE_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Request-Id": ("The id of this request.", {"type": "string"}),
    "ETag": ("The tag of the resource, to send in If-Match.", {"type": "string"}),
    "Location": (
        "The path of what was created. A message that was forwarded, or that is uncommitted, has none.",
        {"type": "string"},
    ),
    "Link": ('The path of the next page, if there is one, with `rel="next"`.', {"type": "string"}),
    "Preference-Applied": (
        "The wait that was applied, if the request had `Prefer: wait` and waited.",
        {"type": "string"},
    ),
    "Idempotency-Replayed": ("`true` if this answer repeats that of an earlier request.", {"type": "string"}),
    "Retry-After": ("Seconds after which to try again.", {"type": "integer", "format": "int64", "minimum": 0}),
    "WWW-Authenticate": ("How to authenticate.", {"type": "string"}),
    "Accept-Encoding": ("The content encodings that a body may have.", {"type": "string"}),
}
EVERY_CODE = COMMON_CODES.union(*map(codes_of_status, TITLES))
"""The code of every problem."""

SUCCESS_DESCRIPTIONS = {
    200: "Done.",
    201: "Created.",
    202: "Accepted.",
    204: "Done. The answer has no body.",
    304: "The client has this already.",
}
EXAMPLES_FILE = Path(__file__).with_name("answer_examples.json")
BODY_PARAMETER = "body"
"""What generated clients call the body of a request. They would name it after its schema, which Go may not accept."""

BINARY: Schema = {"type": "string", "format": "binary"}


def served_below(root_path: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document of a server that clients find below this path, with the server itself as its only server."""
    servers = [{"url": root_path, "description": THIS_SERVER}]
    return {**document, "servers": servers} if root_path else document


def openapi_document(
    operations: Sequence[Operation] = OPERATIONS, other_routes: Sequence[BaseRoute] = ()
) -> dict[str, Any]:
    """Return the document of these operations and routes, by default the published one. It needs no backend."""
    schemas = _schemas(operations)
    described = [_described(operation, schemas) for operation in operations]
    document = get_openapi(**INFO, openapi_version=OPENAPI_VERSION, routes=[*described, *other_routes])
    _add_default_right(document["paths"])
    _add_examples(document["paths"], operations)
    headers = {name: {"description": text, "schema": schema} for name, (text, schema) in RESPONSE_HEADERS.items()}
    components: dict[str, Any] = document.get("components", {})
    document["components"] = {
        "schemas": {**components.get("schemas", {}), **schemas.components()},
        "headers": headers,
        "examples": problem_examples(operations),
        "securitySchemes": SECURITY,
    }
    # A server without keys needs none.
    document["security"] = [*({name: []} for name in SECURITY), {}]
    return document


def _described(operation: Operation, schemas: Schemas) -> APIRoute:
    """Return an operation as a route that FastAPI can document."""
    summary, description = _summary_and_description(operation.endpoint.__doc__ or "")
    return APIRoute(
        operation.path,
        _never_called,
        methods=[operation.method],
        name=operation.name,
        operation_id=operation.name,
        tags=[operation.tag],
        summary=summary,
        description="\n\n".join(filter(None, (description, _required_right(operation)))),
        status_code=min(operation.responses),
        response_class=Response,
        response_model=None,
        openapi_extra=_operation_object(operation, schemas),
    )


def _summary_and_description(text: str) -> tuple[str, str]:
    """Return the first sentence of a docstring, and all that follows it."""
    first, _, rest = cleandoc(text).partition("\n\n")
    summary, _, more = " ".join(first.split()).partition(". ")
    return summary.removesuffix("."), "\n\n".join(filter(None, (more, rest)))


async def _never_called() -> None:
    raise RuntimeError("A route of the document does not answer requests.")


def _add_default_right(paths: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
    """Name the right of each route that is no operation. An operation has a right, or says that it needs no key."""
    for methods in paths.values():
        for documented in methods.values():
            if documented.get("security") != []:
                documented.setdefault("x-peeklock-right", DEFAULT_RIGHT.value)


def _add_examples(paths: Mapping[str, Mapping[str, dict[str, Any]]], operations: Sequence[Operation]) -> None:
    """Add an example of each body and of each answer. `get_openapi` would remove their nulls."""
    examples = answer_examples()
    for operation in operations:
        documented = paths[operation.path][operation.method.lower()]
        if operation.example is not None:
            documented["requestBody"]["content"][operation.request_media_type.decode()]["example"] = operation.example
        for status, shape in operation.responses.items():
            if shape in (None, bytes):
                continue
            names = (f"{operation.name} {status}", operation.name, shape.__name__)
            if example := next((examples[name] for name in names if name in examples), None):
                content = documented["responses"][str(status)]["content"]
                content[operation.response_media_type.decode()]["example"] = example


def answer_examples() -> Mapping[str, Any]:
    """Return examples of answers, each by its operation and status, its operation, or its struct."""
    return json.loads(EXAMPLES_FILE.read_text())


def _schemas(operations: Sequence[Operation]) -> Schemas:
    request_types = [operation.body for operation in operations if operation.body not in (None, bytes)]
    response_types = [
        shape for operation in operations for shape in operation.responses.values() if shape not in (None, bytes)
    ]
    return Schemas(request_types, [*response_types, Problem], EVERY_CODE)


def _operation_object(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    """Return the parts of the document that FastAPI cannot derive from a signature."""
    operation_object: dict[str, Any] = {
        "parameters": [
            *_path_parameters(operation),
            *_query_parameters(operation, schemas),
            *_header_parameters(operation, schemas),
        ],
        "responses": {
            **{str(status): _response(operation, status) for status in operation.responses},
            **problem_answers(operation),
        },
    }
    if operation.problems:
        operation_object["x-peeklock-problems"] = sorted({kind.code for kind in operation.problems})
    if operation.body is not None:
        operation_object["requestBody"] = _request_body(operation)
        operation_object["x-codegen-request-body-name"] = BODY_PARAMETER
    if operation.right is None:
        operation_object["security"] = []
    else:
        operation_object["x-peeklock-right"] = str(operation.right)
    return operation_object


def _required_right(operation: Operation) -> str:
    """Return a sentence that names the right that an API key needs."""
    if operation.right is None:
        return "Needs no API key."
    if operation.right == ANY_RIGHT:
        return "Needs an API key with any right."
    where = f"the {operation.kind}" if operation.name_parameter else "all queues"
    return f"Needs the right `{operation.right}` on {where}."


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    described = [(name, *PATH_PARAMETERS[name]) for name in names]
    return [
        {"name": name, "in": "path", "required": True, "description": text, "schema": schema}
        for name, text, schema in described
    ]


def _query_parameters(operation: Operation, schemas: Schemas) -> list[dict[str, Any]]:
    members = schemas.field_schemas(operation.query) if operation.query else {}
    return [_parameter("query", name, schema) for name, schema in members.items()]


def _header_parameters(operation: Operation, schemas: Schemas) -> list[dict[str, Any]]:
    known = {name: {"description": text, **schema} for name, (text, schema) in REQUEST_HEADERS.items()}
    if operation.body is bytes:
        members = schemas.field_schemas(MessageToSend)
        known |= {header: _header_schema(members[field]) for header, field in FIELD_HEADERS.items()}
    return [_parameter("header", name, known[name]) for name in operation.headers]


def _header_schema(schema: Schema) -> Schema:
    """Return the schema of a header without the format of a text, which client generators do not support there."""
    return {key: value for key, value in schema.items() if (key, schema.get("type")) != ("format", "string")}


def _parameter(where: str, name: str, schema: Schema) -> dict[str, Any]:
    value = {key: part for key, part in schema.items() if key != "description"}
    return {"name": name, "in": where, "required": False, "description": schema["description"], "schema": value}


def _request_body(operation: Operation) -> dict[str, Any]:
    if operation.body is bytes:
        return {"required": True, "content": {OCTET_STREAM.decode(): {"schema": BINARY}}}
    return {
        "required": operation.empty_body is not EmptyBody.USUAL,
        "content": {operation.request_media_type.decode(): {"schema": reference(operation.body)}},
    }


def _response(operation: Operation, status: int) -> dict[str, Any]:
    shape = operation.responses[status]
    names = ["X-Request-Id"]
    names += ["ETag"] if status in operation.etag_statuses else []
    names += ["Location"] if status == 201 and operation.has_location else []
    names += ["Link"] if is_paged(operation) else []
    names += ["Preference-Applied"] if "Prefer" in operation.headers else []
    names += ["Idempotency-Replayed"] if "Idempotency-Key" in operation.headers and status != 202 else []
    response: dict[str, Any] = {"description": SUCCESS_DESCRIPTIONS[status], "headers": header_references(names)}
    if shape is bytes:
        response["content"] = _binary_content(operation.response_media_type)
    elif shape is not None:
        content = {"schema": reference(shape)}
        response["content"] = {operation.response_media_type.decode(): content}
    return response


def _binary_content(kind: bytes) -> dict[str, Any]:
    """Return the content of an answer: text, or bytes of any type.

    Generated clients know `application/octet-stream`; `*/*` is the type that an answer can really have.
    """
    if kind.startswith(b"text/"):
        return {kind.decode(): {"schema": {"type": "string"}}}
    return {OCTET_STREAM.decode(): {"schema": BINARY}, "*/*": {"schema": {}}}
