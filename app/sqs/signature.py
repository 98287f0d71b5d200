"""Reads AWS signatures of version 4, from the header and from presigned URLs."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

import msgspec

from app.http.request_headers import RequestHeaders
from app.sqs.canonical_request import query_pairs
from app.sqs.errors import IncompleteSignature, MissingAuthenticationToken

ALGORITHM: Final = "AWS4-HMAC-SHA256"
MAX_PRESIGNED_SECONDS: Final = 604_800
"""How long a presigned request may be valid: seven days."""

CREDENTIAL = re.compile(
    r"(?P<access_key_id>[!-+.0-~-]{1,128})/(?P<date>[0-9]{8})/(?P<region>[A-Za-z0-9_.-]{1,64})"
    r"/(?P<service>[A-Za-z0-9_.-]{1,64})/aws4_request"
)
SIGNED_HEADERS = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+(?:;[a-z0-9!#$%&'*+.^_`|~-]+)*")
HEX_DIGEST = re.compile(r"[0-9a-f]{64}")
TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
EXPIRES = re.compile(r"[0-9]{1,6}")

TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_HEADER_PARTS = ("Credential", "SignedHeaders", "Signature")
_QUERY_PARTS = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
)
_UNSIGNED = "UNSIGNED-PAYLOAD"
_STREAMING = "STREAMING-"
CONTENT_HASH = b"x-amz-content-sha256"
_SINGLE_HEADERS = (b"authorization", b"host", b"x-amz-date", b"date", CONTENT_HASH)
"""Headers of which a second value would be read by one side and not by the other."""
_REQUIRED_HEADERS = (b"host", b"x-amz-target")
"""Headers that decide what a request does, and where: a signature that left them out could be used for another request."""
CACHE_SIZE: Final = 1024
"""Results that are kept for the clients that sign most."""


class SignedRequest(msgspec.Struct, frozen=True):
    """What a signature covers of a request but its body.

    `paths` are the paths that the client may have signed, still escaped, as Latin-1, the likeliest first: a
    proxy may have removed the root path. `query_string` is without its question mark.
    """

    method: str
    paths: Sequence[str]
    query_string: bytes
    headers: RequestHeaders


class Signature(msgspec.Struct, frozen=True):
    """A signature as the client states it. Nothing of it is proven.

    `date`, `region` and `service` are those of the credential scope. `timestamp` is the time of the signature as it was
    signed, and `time` the same in seconds since 1970. `expires_seconds` is that of a presigned request, else None.
    """

    access_key_id: str
    date: str
    region: str
    service: str
    signed_headers: str
    signature: str
    timestamp: str
    time: float
    expires_seconds: int | None = None

    @property
    def is_presigned(self) -> bool:
        """Whether the signature is in the query string, and not in a header."""
        return self.expires_seconds is not None


def read_signature(request: SignedRequest) -> Signature:
    """Return the signature of a request from its header Authorization or from its query string, without its body.

    Refuses with `MissingAuthenticationToken` without one, and with `IncompleteSignature` if a part of it is missing,
    malformed or repeated, or if it leaves out the body or a header that decides what the request does. A session token
    (`X-Amz-Security-Token`) is not read, because API keys have none: it is a signed text without a meaning.
    """
    headers = request.headers
    query = _query_parts(request.query_string) if request.query_string else {}
    authorization = headers.values.get(b"authorization")
    is_presigned = not query.keys().isdisjoint(_QUERY_PARTS)
    if authorization is None and not is_presigned:
        raise MissingAuthenticationToken
    if authorization is not None and is_presigned:
        raise IncompleteSignature("The request is signed twice, in the header Authorization and in the query string.")
    if headers.repeated:
        for name in _SINGLE_HEADERS:
            if name in headers.repeated:
                raise IncompleteSignature(f"The header {_title(name)} is given more than once.")
    signature = _presigned(query) if authorization is None else _of_header(authorization.decode("latin-1"), headers)
    _check_scope(signature, headers)
    return signature


def _of_header(text: str, headers: RequestHeaders) -> Signature:
    scheme, _, rest = text.strip().partition(" ")
    if scheme != ALGORITHM:
        raise IncompleteSignature(f"The header Authorization begins with {ALGORITHM}. No other scheme is read here.")
    parts: dict[str, str] = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        if name not in _HEADER_PARTS:
            raise IncompleteSignature(
                f"The header Authorization has the parts {', '.join(_HEADER_PARTS)} and no other."
            )
        if name in parts:
            raise IncompleteSignature(f"The header Authorization has the part {name} more than once.")
        parts[name] = value
    for name in _HEADER_PARTS:
        if name not in parts:
            raise IncompleteSignature(f"The header Authorization lacks the part {name}.")
    return _signature(parts["Credential"], parts["SignedHeaders"], parts["Signature"], _header_time(headers))


def _header_time(headers: RequestHeaders) -> str:
    """Return the time of a signature in a header: that of X-Amz-Date, and of Date without it."""
    value = headers.values.get(b"x-amz-date")
    if value is not None:
        return value.strip().decode("latin-1")
    value = headers.values.get(b"date")
    if value is None:
        raise IncompleteSignature("A signed request has the header X-Amz-Date or Date.")
    text = value.strip().decode("latin-1")
    if TIME.fullmatch(text) is not None:
        return text
    try:
        date = parsedate_to_datetime(text)
        return (date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)).strftime(TIME_FORMAT)
    except (ValueError, OverflowError):
        raise IncompleteSignature("The header Date is not a date.") from None


def _presigned(query: Mapping[str, str]) -> Signature:
    for name in _QUERY_PARTS:
        if name not in query:
            raise IncompleteSignature(f"The query string lacks the parameter {name}.")
    if query["X-Amz-Algorithm"] != ALGORITHM:
        raise IncompleteSignature(f"The parameter X-Amz-Algorithm is {ALGORITHM}.")
    _refuse_unsigned(query.get("X-Amz-Content-Sha256", ""))
    expires = query["X-Amz-Expires"]
    if EXPIRES.fullmatch(expires) is None or not 1 <= int(expires) <= MAX_PRESIGNED_SECONDS:
        raise IncompleteSignature(f"The parameter X-Amz-Expires is 1 to {MAX_PRESIGNED_SECONDS} seconds.")
    credential, signed_headers = query["X-Amz-Credential"], query["X-Amz-SignedHeaders"]
    return _signature(credential, signed_headers, query["X-Amz-Signature"], query["X-Amz-Date"], int(expires))


def _signature(
    credential: str, signed_headers: str, signature: str, timestamp: str, expires: int | None = None
) -> Signature:
    key_id, date, region, service = _credential_parts(credential)
    if SIGNED_HEADERS.fullmatch(signed_headers) is None:
        raise IncompleteSignature("SignedHeaders are names of headers in lower case, with a semicolon between them.")
    if HEX_DIGEST.fullmatch(signature) is None:
        raise IncompleteSignature("The Signature is 64 hexadecimal digits in lower case.")
    time = _seconds(timestamp)
    if not timestamp.startswith(date):
        raise IncompleteSignature("The date of the Credential is not that of the time of the signature.")
    return Signature(key_id, date, region, service, signed_headers, signature, timestamp, time, expires)


def _check_scope(signature: Signature, headers: RequestHeaders) -> None:
    """Refuse with `IncompleteSignature` a signature that leaves out what decides what the request does."""
    names = signature.signed_headers.encode().split(b";")
    signed = frozenset(names)
    if len(signed) < len(names):
        raise IncompleteSignature("SignedHeaders name a header more than once.")
    if missing := signed.difference(headers.values):
        raise IncompleteSignature(
            f"The signature covers the header {_title(min(missing))}, which the request lacks. A proxy may have removed it."
        )
    for name in _REQUIRED_HEADERS:
        if name not in signed and (name == b"host" or name in headers.values):
            raise IncompleteSignature(f"The signature does not cover the header {_title(name)}. Sign it.")
    if CONTENT_HASH in headers.values:
        _refuse_unsigned(headers.values[CONTENT_HASH].strip().decode("latin-1"))


def _refuse_unsigned(content_hash: str) -> None:
    if content_hash.startswith((_UNSIGNED, _STREAMING)):
        raise IncompleteSignature("The signature does not cover the body. Sign it: send its SHA-256.")


@lru_cache(maxsize=CACHE_SIZE)
def _seconds(timestamp: str) -> float:
    """Return a time in seconds since 1970. Clients sign many requests in one second."""
    if TIME.fullmatch(timestamp) is not None:
        with suppress(ValueError):
            return datetime.strptime(timestamp, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    raise IncompleteSignature("The time of the signature (X-Amz-Date) has the form 20260131T235959Z.")


@lru_cache(maxsize=CACHE_SIZE)
def _credential_parts(credential: str) -> tuple[str, ...]:
    """Return the id of the key, the date, the region and the service of a credential, which clients keep for a day."""
    parts = CREDENTIAL.fullmatch(credential)
    if parts is None:
        raise IncompleteSignature("The Credential has the form KEY/DATE/REGION/SERVICE/aws4_request.")
    return parts.groups()


def _query_parts(query_string: bytes) -> dict[str, str]:
    """Return the parameters of a signature. Refuses with `IncompleteSignature` a repeated one."""
    parts: dict[str, str] = {}
    for name, value in query_pairs(query_string):
        if name.startswith(b"X-Amz-"):
            text = name.decode("latin-1")
            if text in parts:
                raise IncompleteSignature(f"The query string has the parameter {text} more than once.")
            parts[text] = value.decode("latin-1")
    return parts


def _title(name: bytes) -> str:
    return name.decode("latin-1").title()
