"""A proxy in front of an object store, as a program: `python losing_proxy.py PORT STORE`. See `faulty_store.py`.

To a server of Amazon S3 it also forwards what is written for Google Cloud Storage. The two differ in the condition of a
request that creates an object, and in who may send it.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

LOSE = "/-/lose/"
CONDITION_OF_GOOGLE = "x-goog-if-generation-match"
CREATE_ONLY = {"if-none-match": "*"}
SENDER = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
OWN_HEADERS = {"accept-encoding", "connection", "content-encoding", "content-length", "host", "transfer-encoding"}
"""The headers of one connection and one encoding, which are not forwarded."""


class Handler(BaseHTTPRequestHandler):
    """Forwards requests, but for the next commit that is to be lost."""

    protocol_version = "HTTP/1.1"
    store = httpx.Client()
    loses = lost = ""

    def pass_on(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith(LOSE):
            self.control()
            return
        headers = self.forwarded()
        lost = Handler.loses if self.command == "PUT" and "if-none-match" in headers else ""
        if lost:
            Handler.loses, Handler.lost, self.close_connection = "", lost, True
        if lost == "request":
            return
        answer = self.store.request(self.command, self.path, content=body, headers=headers)
        if not lost:
            length = answer.headers.get("content-length", str(len(answer.content)))
            self.answer(answer.status_code, without_own(answer.headers) | {"content-length": length}, answer.content)

    def forwarded(self) -> dict[str, str]:
        """Return the headers of a request as the store expects them."""
        headers = without_own(self.headers)
        if not headers.get("authorization", "").startswith(("AWS4", "SharedKey")):  # one of Google, or none
            headers["authorization"] = SENDER
        if headers.pop(CONDITION_OF_GOOGLE, None) == "0":
            headers |= CREATE_ONLY
        return headers

    def control(self) -> None:
        """Take what is to be lost, or tell what was lost."""
        if self.command == "PUT":
            Handler.loses = self.path.removeprefix(LOSE)
        text = Handler.lost.encode()
        self.answer(200, {"content-length": str(len(text))}, text)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send an answer."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


def without_own(headers: Any) -> dict[str, str]:
    """Return the headers that are forwarded."""
    return {name.lower(): value for name, value in headers.items() if name.lower() not in OWN_HEADERS}


for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(Handler, f"do_{method}", Handler.pass_on)


if __name__ == "__main__":
    port, store = sys.argv[1:]
    Handler.store = httpx.Client(base_url=store, timeout=60)
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
