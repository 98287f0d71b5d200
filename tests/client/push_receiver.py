"""A target of pushes in a process of its own: `python -m tests.client.push_receiver PORT LOG SECRET`.

It logs the number of each message in a line before it answers 200. It logs `invalid` for a request whose signature is not that
of Standard Webhooks. Of its requests it fails some in different ways, and it rejects each message whose number ends with 99.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REJECTED = 99
PROBLEM = json.dumps({"title": "no such order", "detail": "Numbers that end with 99 are no orders."}).encode()
BATCH = "application/cloudevents-batch+json"


class Receiver(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    log_file = -1
    key = b""
    counter = itertools.count(1)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # its worker was killed
            self.close_connection = True
            return
        number = next(self.counter)
        if not self._is_signed(body):
            self._log("invalid")
            self._answer(401)
        elif number % 7 == 0:
            self._answer(500)
        elif number % 11 == 0:
            self._answer(503, {"Retry-After": "0"})
        elif number % 13 == 0:
            self.close_connection = True
        else:
            self._process(body)

    def _process(self, body: bytes) -> None:
        value: Any = json.loads(body)
        is_batch = self.headers["Content-Type"].startswith(BATCH)
        if not is_batch and value % 100 == REJECTED:
            self._answer(422, {"Content-Type": "application/problem+json"}, PROBLEM)
            return
        self._log("".join(f"{event['data']}\n" for event in value).strip() if is_batch else str(value))
        self._answer(200)

    def _is_signed(self, body: bytes) -> bool:
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(self.key, signed, hashlib.sha256).digest()).decode()
        return f"v1,{expected}" in self.headers["webhook-signature"].split()

    def _answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _log(self, line: str) -> None:
        os.write(self.log_file, f"{line}\n".encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main(port: str, log: str, secret: str) -> None:
    """Answer until the process ends."""
    Receiver.log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    Receiver.key = base64.b64decode(secret.removeprefix("whsec_"))
    with ThreadingHTTPServer(("127.0.0.1", int(port)), Receiver) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
