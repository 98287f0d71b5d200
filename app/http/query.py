"""Decode the query of a request. A parameter that the operation does not declare is refused: ignoring it could do what the
client does not want, such as a purge with `?dry_run=true`."""

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec

from app.domain.refusals import FieldError, InvalidRequest
from app.domain.suggestions import did_you_mean
from app.http.decoding import convert
from app.http.operation import Operation
from app.wire.decode_errors import shortened
from app.wire.values import pointer_segment


def query_decoder(operation: Operation) -> Callable[[bytes], Any]:
    """Return the decoder of an operation's query string, which may be empty. Only the parameter of a list may be repeated.

    It refuses with `InvalidRequest` parameters that the operation does not declare, unless it is tolerant.
    """
    if operation.is_tolerant:
        return lambda query: None
    shape = operation.query
    fields = msgspec.structs.fields(shape) if shape else ()
    names = {field.name for field in fields}
    lists = {field.name for field in fields if _is_list(field.type)}

    def decoded(query: bytes) -> Any:
        values: dict[str, Any] = {}
        for name, value in _parameters(query) if query else ():
            if name not in names:
                raise _invalid(name, _undeclared(operation, name))
            if name in lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise _invalid(name, "This parameter is given more than once.")
            else:
                values[name] = value
        return shape and convert(values, shape, lambda pointer: f"#/query{pointer}", "The query")

    return decoded


def _parameters(query: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a query string. Refuses with `InvalidRequest` escapes that are not UTF-8."""
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest(field_errors=[FieldError("#/query", "The query is not UTF-8.")]) from None


def _invalid(name: str, detail: str) -> InvalidRequest:
    return InvalidRequest(field_errors=[FieldError(f"#/query{pointer_segment(name)}", detail)])


def _undeclared(operation: Operation, name: str) -> str:
    """Say that an operation has no such parameter, and where the client probably wants to send it."""
    return f"This operation has no query parameter `{shortened(name)}`.{_advice(operation, name)}"


def _advice(operation: Operation, name: str) -> str:
    parameters, fields, headers = _names(operation.query), _names(operation.body), _headers(operation)
    if name in fields:
        return f" Send `{name}` in the body."
    if name in headers:
        return f" Send it as the header `{headers[name]}`."
    listed = f" It has {', '.join(f'`{known}`' for known in parameters)}." if parameters else ""
    return did_you_mean(name, (*parameters, *fields, *headers)) or listed


def _names(shape: Any) -> tuple[str, ...]:
    is_struct = isinstance(shape, type) and issubclass(shape, msgspec.Struct)
    return (
        tuple(field.encode_name for field in msgspec.structs.fields(cast("type[msgspec.Struct]", shape)))
        if is_struct
        else ()
    )


def _headers(operation: Operation) -> dict[str, str]:
    """Return the headers of an operation by the names that their values have elsewhere."""
    return {name.lower().replace("-", "_").removeprefix("peeklock_"): name for name in operation.headers}


def _is_list(annotation: Any) -> bool:
    return isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.ListType)
