"""The canonical form of a request, of which AWS signatures of version 4 are made."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote_from_bytes, unquote_to_bytes

from app.http.request_headers import RequestHeaders

PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+/?|/")
"""A path that its canonical form repeats as it is."""
PLAIN_VALUE = re.compile(rb"[!-~]*")
"""A value of a header that its canonical form repeats as it is."""


def canonical_path(path: str) -> str:
    """Return a path as it is signed: without empty and dot segments, and with its escapes escaped once more.

    Only S3 signs a path with its escapes as they are.
    """
    if PLAIN_PATH.fullmatch(path) is not None:
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment and segment != ".":
            segments.append(segment)
    end = "/" if segments and path.endswith("/") else ""
    return quote_from_bytes(f"/{'/'.join(segments)}{end}".encode("latin-1"), safe="/~")


def canonical_headers(names: str, headers: RequestHeaders) -> bytes:
    """Return the lines of the headers with these names, which are separated by semicolons. The request has all of them."""
    values = _joined_values(headers) if headers.repeated else headers.values
    lines: list[bytes] = []
    for name in names.encode().split(b";"):
        value = values[name]
        lines += (name, b":", value if PLAIN_VALUE.fullmatch(value) else _trimmed(value), b"\n")
    return b"".join(lines)


def canonical_query(query_string: bytes) -> bytes:
    """Return the parameters but the signature, escaped and sorted as they are signed."""
    pairs = sorted(
        (quote_from_bytes(name, safe="~"), quote_from_bytes(value, safe="~"))
        for name, value in query_pairs(query_string)
        if name != b"X-Amz-Signature"
    )
    return "&".join(f"{name}={value}" for name, value in pairs).encode()


def query_pairs(query_string: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Return the names and values of a query string, without escapes. A plus sign is a space: botocore signs it as one."""
    for pair in query_string.replace(b"+", b" ").split(b"&"):
        name, _, value = pair.partition(b"=")
        yield unquote_to_bytes(name), unquote_to_bytes(value)


def _joined_values(headers: RequestHeaders) -> Mapping[bytes, bytes]:
    """Return the values of each header, in one pass: a client can repeat thousands of headers."""
    lines: dict[bytes, list[bytes]] = {}
    for name, value in headers.lines:
        lines.setdefault(name, []).append(_trimmed(value))
    return {name: b",".join(values) for name, values in lines.items()}


def _trimmed(value: bytes) -> bytes:
    """Return the value of a header as it is signed: without outer spaces, and with single inner ones.

    Clients sign the UTF-8 of a text, and some of them send it as Latin-1.
    """
    if b" " in value or b"\t" in value:
        value = b" ".join(value.split())
    if value.isascii():
        return value
    try:
        value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()
    return value
