"""A proxy in front of a server that refuses, cuts off or holds a number of requests, and forwards the others."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Any

import httpx


class FaultyProxy:
    """Answers the next sends with these statuses.

    None forwards one. `cut` forwards it and drops the answer. `hold` also forwards it, signals that it holds one, and
    lets the sender wait.
    """

    def __init__(self, server: str, refusals: list[int | str | None]) -> None:
        self.refusals = refusals
        self.holds = Event()
        self._over = Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.pass_on(b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                refusal = outer.refusals.pop(0) if outer.refusals else None
                if isinstance(refusal, int):
                    self.send_response(refusal)
                    self.send_header("retry-after", "1" if refusal == 503 else "0")
                    self.send_header("content-length", "0")
                    self.end_headers()
                else:
                    self.pass_on(body, lost=refusal is not None)
                if refusal == "hold":
                    outer.holds.set()
                    outer._over.wait()

            def pass_on(self, body: bytes, lost: bool = False) -> None:
                headers = {"content-type": self.headers.get("content-type", "")}
                answer = httpx.request(self.command, server + self.path, content=body, headers=headers, timeout=60)
                if lost:
                    self.close_connection = True
                    return
                self.send_response(answer.status_code)
                self.send_header("content-type", answer.headers["content-type"])
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> FaultyProxy:
        Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._http.shutdown()
        self._http.server_close()
