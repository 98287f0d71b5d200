"""Clients that make a server hold as much as it lets them: what each sends, and connections that never read."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HOST = "Host: 127.0.0.1"
KIB, MIB = 1 << 10, 1 << 20
MAX_POLLS = 400
POLL_SECONDS = 0.05
IDLE_POLLS = 10
"""Looks after which a client that could send nothing more is taken for one that is not heard any more."""


def request(method: str, path: str, body: bytes = b"", *fields: str) -> bytes:
    """A whole request."""
    head = "\r\n".join((f"{method} {path} HTTP/1.1", HOST, f"Content-Length: {len(body)}", *fields, "", ""))
    return head.encode() + body


def send_request(queue: str, fields: Mapping[str, Any]) -> bytes:
    """The request that sends a message."""
    return request("POST", f"/v1/queues/{queue}/messages", json.dumps(fields).encode())


@dataclass(frozen=True)
class Attack:
    """Connections that each send these bytes and read nothing."""

    connections: int
    content: bytes


def attacks(largest: int) -> dict[str, Attack]:
    """Every way that is known to make a server hold something, for one that takes bodies of `largest` bytes."""
    text = "x" * (largest - KIB)
    half = request("POST", "/v1/queues/sent/messages/raw", b"x" * largest)
    encoded = {"body_base64": base64.b64encode(b"x" * (largest // 2)).decode()}
    fields = [f"x-{number}: {'z' * 480}" for number in range(120)]
    waiting = request(
        "POST", "/v1/queues/empty/messages/receive", (b'{"wait_seconds": 50' + b" " * 65_000 + b"}"), *fields[:-4]
    )
    page = request("GET", "/v1/queues/large/messages?limit=1000")
    filtered = request("GET", "/v1/queues/wide/messages?limit=1000&filter=message.priority==3")
    wide = {"properties": {"wide": "x" * 31_000}}
    nested = b'{"body":' + b"[" * (largest // 4) + b"]" * (largest // 4) + b"}"
    return {
        "half-sent bodies": Attack(60, half[: len(half) - 10]),
        "half-sent chunks": Attack(10, chunked(b"x" * (largest - KIB))[:-10]),
        "large sends": Attack(20, send_request("sent", {"body": text})),
        "large sends in base64": Attack(10, send_request("sent", encoded)),
        "volatile sends": Attack(20, send_request("sent", {"body": text[: largest // 4], "durability": "volatile"})),
        "slow readers of large pages": Attack(70, page),
        "pages through a filter": Attack(5, filtered),
        "pages of large properties": Attack(5, request("GET", "/v1/queues/wide/messages?limit=1000")),
        "batches of tiny entries": Attack(15, request("POST", "/v1/queues/sent/messages/batch", tiny_entries())),
        "long names that are refused": Attack(5, request("POST", "/v1/queues/sent/messages", long_name(largest))),
        "deep JSON": Attack(10, request("POST", "/v1/queues/sent/messages", nested)),
        "publishes of wide copies": Attack(40, request("POST", "/v1/topics/wide/messages", json.dumps(wide).encode())),
        "slow readers of long lists": Attack(20, request("GET", "/v1/queues?limit=1000")),
        "heads without an end": Attack(20, request("GET", "/livez", b"", *fields)[:-2]),
        "waiting receives with more behind": Attack(40, waiting + request("GET", "/livez") * 8000),
        "small requests, never read": Attack(20, request("GET", "/metrics") * 8000),
    }


def long_name(size: int) -> bytes:
    """A send with a member that no message has. Its name takes four bytes a character in Python."""
    return b'{"' + "😀".encode() + b"x" * (size - KIB) + b'": 1}'


def chunked(body: bytes) -> bytes:
    """A raw send in one chunk."""
    head = f"POST /v1/queues/sent/messages/raw HTTP/1.1\r\n{HOST}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"


def tiny_entries() -> bytes:
    """A batch of as many messages as it may have."""
    return b'{"messages":[' + b",".join([b"{}"] * 1000) + b"]}"


class NonReadingConnection:
    """A connection that sends and never reads."""

    def __init__(self, content: bytes) -> None:
        self._unsent = memoryview(content)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        self._socket.setblocking(False)

    async def connect(self, port: int) -> None:
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", port))

    def push(self) -> bool:
        """Send what is taken; whether anything was."""
        try:
            sent = self._socket.send(self._unsent[: 256 * KIB]) if self._unsent else 0
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = self._unsent[:0]
            return False
        self._unsent = self._unsent[sent:]
        return sent > 0

    def close(self) -> None:
        self._socket.close()


@contextlib.asynccontextmanager
async def run_attacks(port: int, chosen: Sequence[Attack], idle: int = 0) -> AsyncGenerator[None]:
    """All of these attacks at once, from when the server has taken in what it takes until the block ends."""
    clients = [NonReadingConnection(attack.content) for attack in chosen for _ in range(attack.connections)]
    clients += [NonReadingConnection(b"") for _ in range(idle)]
    try:
        for client in clients:
            await client.connect(port)
        idle_polls = 0
        for _ in range(MAX_POLLS):
            progress = [client.push() for client in clients]
            idle_polls = 0 if any(progress) else idle_polls + 1
            if idle_polls == IDLE_POLLS:
                break
            await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        for client in clients:
            client.close()
