"""A proxy in front of an object store, as a program: `python losing_proxy.py PORT STORE`. See `faulty_store.py`."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

LOSE = "/-/lose/"
FORWARDED = (
    "authorization", "content-type", "if-none-match", "range", "x-amz-content-sha256", "x-amz-copy-source", "x-amz-date",
)  # fmt: skip
RETURNED = ("content-type", "etag", "last-modified", "content-range")


class Handler(BaseHTTPRequestHandler):
    """Forwards requests, but for the next commit that is to be lost."""

    protocol_version = "HTTP/1.1"
    store = ""
    loses = lost = ""

    def pass_on(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith(LOSE):
            self.control()
            return
        lost = Handler.loses if self.command == "PUT" and "if-none-match" in self.headers else ""
        if lost:
            Handler.loses, Handler.lost, self.close_connection = "", lost, True
        if lost == "request":
            return
        headers = {name: self.headers[name] for name in FORWARDED if name in self.headers}
        answer = httpx.request(self.command, self.store + self.path, content=body, headers=headers, timeout=60)
        if not lost:
            length = answer.headers.get("content-length", str(len(answer.content)))
            kept = {name: answer.headers[name] for name in RETURNED if name in answer.headers}
            self.answer(answer.status_code, kept | {"content-length": length}, answer.content)

    def control(self) -> None:
        """Take what is to be lost, or tell what was lost."""
        if self.command == "PUT":
            Handler.loses = self.path.removeprefix(LOSE)
        text = Handler.lost.encode()
        self.answer(200, {"content-length": str(len(text))}, text)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(Handler, f"do_{method}", Handler.pass_on)


if __name__ == "__main__":
    port, Handler.store = sys.argv[1:]
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
