"""The bodies of messages: read from an argument, a file or standard input."""

import os
import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

from app.cli.field_options import assigned
from app.wire.media_types import is_json_media_type

BodyText: TypeAlias = Annotated[
    str | None,
    typer.Argument(help="Body of the message as text. Without it the body is read from --file or standard input."),
]
BodyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--file", "-f", exists=True, dir_okay=False, allow_dash=True, help="Read the body from this file."),
]
PropertyTexts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="A property of the message, as text; may be repeated."),
]

DEFAULT_CONTENT_TYPE = "text/plain"
"""The content type of a message without --content-type."""


def read_body(body: str | None, file: Path | None) -> bytes:
    """Return the bytes of a body, unchanged: also those of an argument that is not UTF-8."""
    if body is not None and file is not None:
        raise typer.BadParameter("The body is given twice: as an argument and with --file.")
    if body is not None:
        return os.fsencode(body)
    return file.read_bytes() if file and str(file) != "-" else sys.stdin.buffer.read()


def message_fields(fields: dict[str, Any], texts: list[str] | None) -> dict[str, Any]:
    """Return the fields of a message without its body: those of options, with texts as further properties."""
    named = assigned(texts)
    if named and "properties" in fields:
        fields = {**fields, "properties": {**_members(fields["properties"]), **named}}
    elif named:
        fields = {**fields, "properties": named}
    return {"content_type": DEFAULT_CONTENT_TYPE, **fields}


def body_field(content: bytes, content_type: str, where: str = "The body") -> dict[str, Any]:
    """Return the field of a body: JSON if the content type says so, else its bytes."""
    if not is_json_media_type(content_type):
        return {"body_base64": b64encode(content).decode()}
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{where} is not JSON: {error}") from None
    return {"body": msgspec.Raw(content)}


def _members(properties: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(properties, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"--properties: {error}") from None
