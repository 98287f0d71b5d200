"""Converts rows to messages: the columns that rows may have, and the JSON that is sent."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from peeklock_pipeline.refusals import BadColumns
from peeklock_pipeline.table_specs import HEADERS

SparkTypes = tuple[type[DataType], ...]

TEXT: SparkTypes = (StringType,)
NUMBER: SparkTypes = (IntegralType, FloatType, DoubleType, DecimalType)
SCALAR: SparkTypes = (StringType, BooleanType, IntegralType, FloatType, DoubleType)

COLUMNS: dict[str, SparkTypes] = {
    "message_id": TEXT,
    "body": (StringType, BinaryType),
    "body_kind": TEXT,
    **dict.fromkeys(HEADERS, TEXT),
    "group_id": TEXT,
    "priority": (IntegralType,),
    "properties": (MapType, StringType),
    "ttl_seconds": NUMBER,
    "available_at": (TimestampType,),
    "delay_seconds": NUMBER,
}
"""The columns of rows that are sent, all optional, and their possible types.

A `body` of text is sent as a JSON string, or as JSON if `content_type` is a JSON type. A `body` of bytes is sent as
base64. If `body_kind` is given, as in the archive, it decides: none, json or bytes. `properties` is a map of text to a
scalar, or a JSON object as text, as in the archive.
"""

CONVERTED_COLUMNS = ("body", "body_kind", "properties", "available_at", "message_id")
"""Columns that are converted before they become a field."""


def check_columns(schema: StructType) -> None:
    """Refuse with `BadColumns` rows that cannot be messages."""
    for column in schema.fields:
        spark_types = COLUMNS.get(column.name)
        if spark_types is None:
            raise BadColumns(f"A message has no {column.name}; the columns that are sent are {', '.join(COLUMNS)}.")
        if not isinstance(column.dataType, spark_types):
            wanted = " or ".join(kind.typeName() for kind in spark_types)
            raise BadColumns(
                f"The column {column.name} is sent from {wanted}, not from {column.dataType.simpleString()}."
                + (" Make it JSON by to_json, with content_type 'application/json'." if column.name == "body" else "")
            )
        if isinstance(column.dataType, MapType) and not (
            isinstance(column.dataType.keyType, StringType) and isinstance(column.dataType.valueType, SCALAR)
        ):
            raise BadColumns("The column properties is sent from a map of string to a string, a number or a boolean.")


def new_messages(batches: Iterable[pa.RecordBatch], origin: str) -> Iterator[bytes]:
    """Yield the JSON of each row, with a message id.

    A row without an id gets one derived from `origin`, the row's content, and the number of equal rows before it.
    `origin` identifies the write and the task. So the ids are the same in every run of the task and in any order of
    rows.
    """
    counts: Counter[bytes] = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            message_json = new_message(row)
            value_given = row.get("message_id")
            yield _with_id(
                message_json, value_given if value_given is not None else _derived_id(message_json, origin, counts)
            )


def new_message(row: Mapping[str, Any]) -> bytes:
    """Return the JSON of a row without a message id. Refuses with `BadColumns` a body or properties that are not
    JSON."""
    fields = {name: row[name] for name in COLUMNS if name not in CONVERTED_COLUMNS and row.get(name) is not None}
    fields = {name: float(value) if name.endswith("_seconds") else value for name, value in fields.items()}
    due: datetime | None = row.get("available_at")
    if due is not None:
        fields["available_at"] = due.isoformat()
    if row.get("properties") is not None:
        fields["properties"] = _properties(row)
    plain = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    body = _body(row)
    return plain if not body else _with_field(plain, body)


def _properties(row: Mapping[str, Any]) -> dict[str, Any]:
    value_given = row["properties"]
    found = _json(value_given, "properties", row) if isinstance(value_given, str) else dict(value_given)
    if not isinstance(found, dict):
        raise BadColumns(f"The properties of {_row_label(row)} are JSON, but not an object.")
    return found


def _body(row: Mapping[str, Any]) -> bytes:
    """Return the JSON field of the body, with its name; empty without a body."""
    body: str | bytes | None = row.get("body")
    kind = row.get("body_kind") or _body_kind(body, row.get("content_type"))
    if body is None or kind == "none":
        return b""
    content = body.encode() if isinstance(body, str) else body
    match kind:
        case "json":
            _json(content, "body", row)
            return b'"body":' + content
        case "text":
            return b'"body":' + json.dumps(body, ensure_ascii=False).encode()
        case "bytes":
            return b'"body_base64":"' + base64.b64encode(content) + b'"'
        case _:
            raise BadColumns(f"The body_kind of {_row_label(row)} is {kind!r}; it must be none, json or bytes.")


def _body_kind(body: str | bytes | None, content_type: str | None) -> str:
    if isinstance(body, bytes):
        return "bytes"
    media = (content_type or "").partition(";")[0].strip().lower()
    return "json" if media == "application/json" or media.endswith("+json") else "text"


def _json(content: str | bytes, column: str, row: Mapping[str, Any]) -> Any:
    """Decode JSON. Text is checked before it enters a request unchanged, so that it cannot add other fields."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise BadColumns(f"The {column} of {_row_label(row)} should be JSON, but is not: {error}.") from error


def _row_label(row: Mapping[str, Any]) -> str:
    value_given = row.get("message_id")
    return "a message" if value_given is None else f"message {value_given}"


def _with_field(fields: bytes, more: bytes) -> bytes:
    return fields[:-1] + (b"," if len(fields) > 2 else b"") + more + b"}"


def _with_id(message_json: bytes, message_id: str) -> bytes:
    return _with_field(message_json, b'"message_id":' + json.dumps(message_id, ensure_ascii=False).encode())


def _derived_id(message_json: bytes, origin: str, counts: Counter[bytes]) -> str:
    content = blake2b(message_json, digest_size=16).digest()
    counts[content] += 1
    return blake2b(f"{origin}/{counts[content]}/".encode() + content, digest_size=16).hexdigest()
