"""Verifies AWS signatures of version 4."""

import hmac
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final

from app.http.request_headers import RequestHeaders
from app.sqs.canonical_request import canonical_headers, canonical_path, canonical_query
from app.sqs.errors import SignatureDoesNotMatch
from app.sqs.signature import ALGORITHM, CACHE_SIZE, CONTENT_HASH, TIME_FORMAT, Signature, SignedRequest

MAX_SKEW_SECONDS: Final = 900
"""How far the clock of a client may differ from that of the server."""
_MISMATCH = (
    "The signature does not match the request. Check the secret, which `peeklock key sqs ID` prints, and that no proxy"
    " changes the path, the query or a signed header, such as Host."
)


def verify(
    signature: Signature, request: SignedRequest, body: bytes, secret: str, *, service: str, now_seconds: float
) -> None:
    """Check that a request was signed with this secret for this service, now or while its presigned URL is valid.

    Refuses with `SignatureDoesNotMatch`. `now_seconds` are seconds since 1970. The time that a wrong signature takes says
    nothing about the right one.
    """
    if signature.service != service:
        raise SignatureDoesNotMatch(
            f"The credential is for the service {signature.service}. Sign for the service {service}."
        )
    _check_time(signature, now_seconds)
    rest = _canonical_rest(signature, request, _body_hash(request.headers, body))
    scope = f"{signature.date}/{signature.region}/{service}/aws4_request"
    prefix = f"{ALGORITHM}\n{signature.timestamp}\n{scope}\n"
    keyed = _keyed_hash(secret, signature.date, signature.region, service)
    for path in request.paths:
        canonical = f"{request.method}\n{canonical_path(path)}".encode() + rest
        expected = keyed.copy()
        expected.update((prefix + sha256(canonical).hexdigest()).encode())
        if hmac.compare_digest(expected.hexdigest(), signature.signature):
            return
    raise SignatureDoesNotMatch(_MISMATCH)


def _body_hash(headers: RequestHeaders, body: bytes) -> str:
    """Return the SHA-256 of a body. Refuses with `SignatureDoesNotMatch` a header that states another one."""
    digest = sha256(body).hexdigest()
    claimed = headers.values.get(CONTENT_HASH)
    if claimed is not None and not hmac.compare_digest(claimed.strip(), digest.encode()):
        raise SignatureDoesNotMatch("The header X-Amz-Content-Sha256 is not the SHA-256 of the body.")
    return digest


def _canonical_rest(signature: Signature, request: SignedRequest, body_hash: str) -> bytes:
    """Return what follows the path in the canonical request."""
    query = canonical_query(request.query_string) if request.query_string else b""
    names = signature.signed_headers
    return b"\n%b\n%b\n%b\n%b" % (
        query, canonical_headers(names, request.headers), names.encode(), body_hash.encode()
    )  # fmt: skip


def _check_time(signature: Signature, now_seconds: float) -> None:
    begins = signature.time - MAX_SKEW_SECONDS
    ends = signature.time + (MAX_SKEW_SECONDS if signature.expires_seconds is None else signature.expires_seconds)
    if begins <= now_seconds <= ends:
        return
    now = datetime.fromtimestamp(now_seconds, UTC).strftime(TIME_FORMAT)
    if signature.expires_seconds is not None and now_seconds > ends:
        raise SignatureDoesNotMatch(
            f"The presigned request of {signature.timestamp} was valid for {signature.expires_seconds} seconds. It is"
            f" {now} now. Sign it again."
        )
    raise SignatureDoesNotMatch(
        f"The request was signed at {signature.timestamp}, and it is {now} at the server. They may differ by"
        f" {MAX_SKEW_SECONDS // 60} minutes. Set the clock of the client."
    )


@lru_cache(maxsize=CACHE_SIZE)
def _keyed_hash(secret: str, date: str, region: str, service: str) -> hmac.HMAC:
    """Return an HMAC with the key of a credential scope, to copy: a copy takes less time than the schedule of a key."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), sha256)
    return hmac.new(key, digestmod=sha256)
