"""The load: callers that each keep one connection and wait for every answer, in a process of their own.

The client speaks just enough HTTP/1.1 over asyncio to leave the two cores to the servers; its own
CPU is never part of a figure.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Protocol

BODY = {"text": "x" * 1000}
"""About 1 KiB of JSON."""


class Connection:
    """One keep-alive connection."""

    def __init__(self, host: str, port: int, headers: Mapping[str, str]) -> None:
        self._host, self._port = host, port
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> "Connection":
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 26)
        return self

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One request and its answer."""
        head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        return await self.exchange(head.encode() + body)

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """One request with these bytes and its answer."""
        self._writer.write(request)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answer[9:12])
        start = answer.find(b"content-length:")
        length = int(answer[start + 15 : answer.find(b"\r\n", start)]) if start >= 0 else 0
        body = await self._reader.readexactly(length)
        if b"connection: close" in answer:
            self.close()
            await self.open()
        return status, body

    def close(self) -> None:
        """Close it."""
        self._writer.close()


class Connectable(Protocol):
    """What callers connect to."""

    async def connect(self) -> Any:
        """Return a connection for one caller."""

    async def release(self, connection: Any) -> None:
        """Take it back at the end of a round."""

    async def close(self) -> None:
        """Close what is still open, after the last round."""


@dataclass
class Target:
    """An HTTP server under load."""

    host: str
    port: int
    queue: str = "bench"
    headers: dict[str, str] = field(default_factory=dict)

    def path(self, rest: str) -> str:
        """A path in the queue."""
        return f"/v1/queues/{self.queue}/{rest}"

    async def connect(self) -> Connection:
        """Open a keep-alive connection."""
        return await Connection(self.host, self.port, self.headers).open()

    async def release(self, connection: Connection) -> None:
        """Close a connection: a server would close it between two rounds."""
        connection.close()

    async def close(self) -> None:
        """Do nothing: every connection is closed already."""


WorkUnit = Callable[[Any, Any], Awaitable[int]]
"""One unit of work on a connection of a target; how many messages it carried."""

SEND_BODY = json.dumps({"body": BODY}).encode()


async def send_one(connection: Connection, target: Target) -> int:
    """Send one message."""
    status, answer = await connection.call("POST", target.path("messages"), SEND_BODY)
    expect_status(status, 201, answer)
    return 1


async def lifecycle(connection: Connection, target: Target) -> int:
    """Send, receive, complete: one message each. A caller that finds the queue empty receives again."""
    await send_one(connection, target)
    await _receive_and_complete(connection, target)
    return 1


async def bare_request(connection: Connection, target: Target) -> int:
    """One request that does nothing."""
    status, answer = await connection.call("POST", target.path("messages"), SEND_BODY)
    expect_status(status, 200, answer)
    return 1


class BatchLifecycle:
    """This many messages sent, received and completed in three calls."""

    def __init__(self, size: int) -> None:
        self._sent = json.dumps({"messages": [{"body": BODY}] * size}).encode()
        self._wanted = json.dumps({"max_messages": size}).encode()

    async def __call__(self, connection: Connection, target: Target) -> int:
        """Send a batch, receive one and complete it."""
        status, answer = await connection.call("POST", target.path("messages/batch"), self._sent)
        expect_status(status, 201, answer)
        status, answer = await connection.call("POST", target.path("messages/receive"), self._wanted)
        expect_status(status, 200, answer)
        tokens = [message["lock_token"] for message in json.loads(answer)["messages"]]
        if not tokens:
            return 0
        settle = {"settlements": [{"action": "complete", "lock_token": token} for token in tokens]}
        status, answer = await connection.call("POST", target.path("settle"), json.dumps(settle).encode())
        expect_status(status, 200, answer)
        return len(tokens)


batch_lifecycle = BatchLifecycle(100)


class GroupedLifecycle:
    """The same lifecycle with messages of groups, in turn. A caller may receive the message of another one."""

    def __init__(self, groups: int) -> None:
        self._bodies = cycle([json.dumps({"body": BODY, "group_id": f"g{n}"}).encode() for n in range(groups)])

    async def __call__(self, connection: Connection, target: Target) -> int:
        """Send a message of the next group, receive one, and complete it."""
        status, answer = await connection.call("POST", target.path("messages"), next(self._bodies))
        expect_status(status, 201, answer)
        await _receive_and_complete(connection, target)
        return 1


class TwoRequests:
    """The same lifecycle in two requests: send, and a receive that settles the previous message."""

    def __init__(self) -> None:
        self._messages: dict[Connection, str] = {}

    async def __call__(self, connection: Connection, target: Target) -> int:
        """Send, then receive and settle the message that this connection holds."""
        await send_one(connection, target)
        wanted: dict[str, Any] = {"wait_seconds": 5}
        if held := self._messages.pop(connection, None):
            wanted["settlements"] = [{"action": "complete", "lock_token": held}]
        status, answer = await connection.call("POST", target.path("messages/receive"), json.dumps(wanted).encode())
        expect_status(status, 200, answer)
        messages = json.loads(answer)["messages"]
        if messages:
            self._messages[connection] = messages[0]["lock_token"]
        return 1


class Handover:
    """Ten messages completed and ten others sent, `together` in one transaction or apart in two batches.

    The messages are received hundreds at a time, so that the receive is a small part.
    """

    SIZE = 10
    RECEIVED = 500

    def __init__(self, *, together: bool) -> None:
        self._work = self._in_one_transaction if together else self._in_two_batches
        self._held: dict[Connection, list[str]] = {}

    async def __call__(self, connection: Connection, target: Target) -> int:
        """Complete ten messages and send ten."""
        if connection not in self._held:
            await self._send(connection, target, self.RECEIVED)
        held = self._held.setdefault(connection, [])
        if len(held) < self.SIZE:
            held += await self._receive(connection, target)
        tokens = [held.pop() for _ in range(min(self.SIZE, len(held)))]
        if tokens:
            await self._work(connection, target, tokens)
        return len(tokens)

    async def _receive(self, connection: Connection, target: Target) -> list[str]:
        wanted = json.dumps({"max_messages": self.RECEIVED, "lock_seconds": 3600}).encode()
        status, answer = await connection.call("POST", target.path("messages/receive"), wanted)
        expect_status(status, 200, answer)
        return [message["lock_token"] for message in json.loads(answer)["messages"]]

    async def _in_two_batches(self, connection: Connection, target: Target, tokens: list[str]) -> None:
        settlements = [{"action": "complete", "lock_token": token} for token in tokens]
        body = json.dumps({"settlements": settlements}).encode()
        status, answer = await connection.call("POST", target.path("settle"), body)
        expect_status(status, 200, answer)
        await self._send(connection, target, len(tokens))

    async def _in_one_transaction(self, connection: Connection, target: Target, tokens: list[str]) -> None:
        queue = target.queue
        body = {
            "settlements": [{"queue": queue, "action": "complete", "lock_token": token} for token in tokens],
            "sends": [{"queue": queue, "body": BODY}] * len(tokens),
        }
        status, answer = await connection.call("POST", "/v1/transactions/execute", json.dumps(body).encode())
        expect_status(status, 200, answer)

    async def _send(self, connection: Connection, target: Target, count: int) -> None:
        body = json.dumps({"messages": [{"body": BODY}] * count}).encode()
        status, answer = await connection.call("POST", target.path("messages/batch"), body)
        expect_status(status, 201, answer)


async def drive(target: Connectable, work_unit: WorkUnit, callers: int, units: int) -> int:
    """Run these units with these callers, and return the number of messages."""
    connections = [await target.connect() for _ in range(callers)]
    left = iter(range(units))
    done = 0

    async def work(connection: Connection) -> None:
        nonlocal done
        for _ in left:
            messages = await work_unit(connection, target)
            done += messages

    try:
        await asyncio.gather(*(work(connection) for connection in connections))
    finally:
        for connection in connections:
            await target.release(connection)
    return done


async def _receive_and_complete(connection: Connection, target: Target) -> None:
    token = await _receive(connection, target)
    status, answer = await connection.call("POST", target.path(f"locks/{token}/complete"))
    expect_status(status, 200, answer)


async def _receive(connection: Connection, target: Target) -> str:
    while True:
        status, answer = await connection.call("POST", target.path("messages/receive"), b'{"wait_seconds": 5}')
        expect_status(status, 200, answer)
        # A token is found without decoding the message: the client competes with the servers for the CPU.
        start = answer.find(b'"lock_token":"')
        if start >= 0:
            return answer[start + 14 : answer.index(b'"', start + 14)].decode()


def expect_status(status: int, wanted: int, answer: bytes) -> None:
    if status != wanted:
        raise RuntimeError(f"answered {status} instead of {wanted}: {answer[:300].decode(errors='replace')}")
