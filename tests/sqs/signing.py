"""Requests that botocore has signed, as a server reads them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from app.domain.instant import Instant, to_seconds
from app.http.request_headers import RequestHeaders
from app.sqs.signature import SignedRequest, read_signature
from app.sqs.verification import verify

KEY_ID = "0123456789abcdef"
SECRET = "the secret of the key"
HOST = "http://mq.example:8080"
TARGET = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0"}


@dataclass(frozen=True)
class Wire:
    """One request as its bytes arrive."""

    method: str
    path: str
    query: bytes
    lines: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""

    def request(self, *public_paths: str) -> SignedRequest:
        return SignedRequest(self.method, (self.path, *public_paths), self.query, RequestHeaders(list(self.lines)))

    def with_header(self, name: bytes, value: bytes) -> Wire:
        """The request with another value of a header, or with a header more."""
        return replace(self, lines=(*(line for line in self.lines if line[0] != name), (name, value)))

    def with_repeated(self, name: bytes, value: bytes) -> Wire:
        return replace(self, lines=(*self.lines, (name, value)))

    def without(self, name: bytes) -> Wire:
        return replace(self, lines=tuple(line for line in self.lines if line[0] != name))

    def header(self, name: bytes) -> bytes:
        return dict(self.lines)[name]

    def with_part(self, old: bytes, new: bytes) -> Wire:
        """The request with a text of its header Authorization replaced."""
        authorization = self.header(b"authorization")
        assert old in authorization
        return self.with_header(b"authorization", authorization.replace(old, new))


def sign(
    body: bytes = b"{}",
    path: str = "/",
    headers: Mapping[str, str] = TARGET,
    params: Sequence[tuple[str, str]] = (),
    *,
    region: str = "eu-central-1",
    service: str = "sqs",
) -> Wire:
    """Sign a POST with its header Authorization."""
    request = AWSRequest("POST", HOST + path, data=body, headers=dict(headers), params=list(params))
    SigV4Auth(Credentials(KEY_ID, SECRET), service, region).add_auth(request)
    return _wire(request)


def presign(expires: int = 3600, params: Mapping[str, str] | None = None) -> Wire:
    """Sign a GET in its query string."""
    given = params if params is not None else {"Action": "ReceiveMessage", "Version": "2012-11-05"}
    request = AWSRequest("GET", f"{HOST}/000000000000/orders", params=dict(given))
    SigV4QueryAuth(Credentials(KEY_ID, SECRET), "sqs", "eu-central-1", expires).add_auth(request)
    return _wire(request)


class SignedBy(httpx.Auth):
    """Signs the requests of a client in their header Authorization, at the time of the server's clock.

    Without a `service`, they are signed for that of their version.
    """

    requires_request_body = True

    def __init__(self, key_id: str, secret: str, now: Callable[[], Instant], service: str | None = None) -> None:
        self.key_id = key_id
        self.secret = secret
        self._service = service
        self._now = now

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """See `httpx.Auth`."""
        time = datetime.fromtimestamp(to_seconds(self._now()), UTC).strftime(SIGV4_TIMESTAMP)
        named = {name: value for name, value in request.headers.items() if name in ("content-type", "x-amz-target")}
        signed = AWSRequest(request.method, str(request.url), data=request.content, headers=named)
        signer = SigV4Auth(Credentials(self.key_id, self.secret), self._service or _service_of(request), "us-east-1")
        signed.context["timestamp"] = time
        signed.headers["X-Amz-Date"] = time
        to_sign = signer.string_to_sign(signed, signer.canonical_request(signed))
        scope = f"Credential={signer.scope(signed)}"
        covered = f"SignedHeaders={signer.signed_headers(signer.headers_to_sign(signed))}"
        signature = f"Signature={signer.signature(to_sign, signed)}"
        request.headers["x-amz-date"] = time
        request.headers["authorization"] = f"AWS4-HMAC-SHA256 {scope}, {covered}, {signature}"
        yield request


def check(wire: Wire, *public_paths: str, secret: str = SECRET, after_seconds: float = 0, service: str = "sqs") -> None:
    """Read and verify the signature of a request, at a time after that of its signature."""
    request = wire.request(*public_paths)
    signature = read_signature(request)
    verify(signature, request, wire.body, secret, service=service, now_seconds=signature.time + after_seconds)


def _wire(request: AWSRequest) -> Wire:
    sent = request.prepare()
    url = urlsplit(sent.url)
    headers = [(name.lower().encode(), _bytes(value)) for name, value in sent.headers.items()]
    lines = ((b"host", url.netloc.encode()), *headers)
    return Wire(sent.method, url.path, url.query.encode(), lines, sent.body or b"")


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


def _service_of(request: httpx.Request) -> str:
    return "sns" if b"Version=2010-03-31" in request.content else "sqs"
