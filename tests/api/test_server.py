"""Tests that need a real server and socket: streams, disconnects and concurrent clients."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.databases import RunResources
from tests.faults.fleet import PeeklockServer
from tests.servers import POLL_SECONDS, TIMEOUT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAX_BYTES = 1 << 20
WAITING = "peeklock_waiting_receivers"


@pytest.fixture(scope="module")
def server(run_resources: RunResources) -> Iterator[PeeklockServer]:
    """`peeklock serve` with its embedded database."""
    server = PeeklockServer(
        run_resources.new_directory(), "PEEKLOCK_DATA_DIR=store", f"PEEKLOCK_MAX_REQUEST_BYTES={MAX_BYTES}"
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def http(server: PeeklockServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the server."""
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=f"{server.url}/v1", timeout=TIMEOUT_SECONDS, limits=limits) as http:
        yield http


class Socket:
    """One connection, written to byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, server: PeeklockServer) -> "Socket":
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    async def send(self, *lines: str, body: bytes = b"") -> None:
        self._writer.write("\r\n".join((*lines, "Host: localhost", "", "")).encode() + body)
        await self._writer.drain()

    async def add(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def read_response(self) -> tuple[int, dict[str, str]]:
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), headers

    async def body(self, headers: dict[str, str]) -> Any:
        return json.loads(await self._reader.readexactly(int(headers["content-length"])))

    async def is_closed(self) -> bool:
        return await asyncio.wait_for(self._reader.read(1), TIMEOUT_SECONDS) == b""

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def wait_until(condition: Callable[[], Any]) -> None:
    """Return once the condition is true."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "it did not come to be"
        await asyncio.sleep(POLL_SECONDS)


async def metrics(http: httpx.AsyncClient) -> str:
    return (await http.get(http.base_url.copy_with(path="/metrics"))).text


async def metric_value(http: httpx.AsyncClient, line: str) -> float:
    """Return the value of one line of the metrics, 0 without that line."""
    lines = (await metrics(http)).splitlines()
    return next((float(found.rpartition(" ")[2]) for found in lines if found.startswith(f"{line} ")), 0.0)


async def receiver_is_waiting(http: httpx.AsyncClient) -> bool:
    return await metric_value(http, WAITING) > 0


async def no_receiver_is_waiting(http: httpx.AsyncClient) -> bool:
    return await metric_value(http, WAITING) == 0


async def counts(http: httpx.AsyncClient, queue: str) -> dict[str, int]:
    return {state: n for state, n in (await http.get(f"/queues/{queue}")).json()["counts"].items() if n}


async def test_a_body_may_come_in_chunks(http: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for n in range(10):
            yield b"%d" % n

    await http.post("/queues/chunks/messages/raw", content=chunks())
    assert (await http.get("/queues/chunks/messages")).json()["items"][0]["body_base64"] == "MDEyMzQ1Njc4OQ=="


async def test_an_endless_body_is_refused_while_it_arrives(server: PeeklockServer) -> None:
    socket = await Socket.open(server)
    await socket.send("POST /v1/queues/endless/messages/raw HTTP/1.1", "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    for _ in range(MAX_BYTES // 0x10000 + 2):
        await socket.add(chunk)
    status, headers = await socket.read_response()
    assert (status, (await socket.body(headers))["code"]) == (413, "message-too-large")
    await socket.close()


async def test_a_client_that_expects_100_continue_gets_it(server: PeeklockServer) -> None:
    socket = await Socket.open(server)
    await socket.send("POST /v1/queues/first/messages/raw HTTP/1.1", "Content-Length: 5", "Expect: 100-continue")
    assert (await socket.read_response())[0] == 100
    await socket.add(b"hello")
    assert (await socket.read_response())[0] == 201
    await socket.close()


async def test_a_client_that_expects_100_continue_for_too_much_is_refused(server: PeeklockServer) -> None:
    socket = await Socket.open(server)
    length = "Content-Length: 99999999999"
    await socket.send("POST /v1/queues/first/messages/raw HTTP/1.1", length, "Expect: 100-continue")
    status, headers = await socket.read_response()
    assert (status, (await socket.body(headers))["code"]) == (413, "message-too-large")
    assert await socket.is_closed()
    await socket.close()


async def test_a_connection_serves_requests_in_order(server: PeeklockServer) -> None:
    socket = await Socket.open(server)
    for method in ("HEAD", "GET", "HEAD", "DELETE"):
        await socket.send(f"{method} /livez HTTP/1.1")
        status, headers = await socket.read_response()
        assert status == (405 if method == "DELETE" else 200)
        if method != "HEAD":
            await socket.body(headers)
    for _ in range(3):
        await socket.send("POST /v1/queues/pipelined/messages HTTP/1.1", "Content-Length: 2", body=b"{}")
    for _ in range(3):
        status, headers = await socket.read_response()
        assert (status, (await socket.body(headers))["state"]) == (201, "available")
    await socket.close()


@pytest.mark.parametrize(
    "line", ["GET /v1/queues/%zz HTTP/1.1", "GET /v1/queues/%00%ff HTTP/1.1", "GET /nothing?a=%zz HTTP/1.1"]
)
async def test_a_malformed_path_is_answered(server: PeeklockServer, line: str) -> None:
    socket = await Socket.open(server)
    await socket.send(line)
    status, headers = await socket.read_response()
    assert (status in (404, 422), (await socket.body(headers))["status"]) == (True, status)
    await socket.close()


@pytest.mark.behaviour("S3.28")
async def test_a_lock_that_was_answered_outlives_its_connection(
    server: PeeklockServer, http: httpx.AsyncClient
) -> None:
    await http.put("/queues/kept", json={"lock_duration_seconds": 3600})
    await http.post("/queues/kept/messages", json={})
    receiver = await Socket.open(server)
    await receiver.send("POST /v1/queues/kept/messages/receive HTTP/1.1", "Content-Length: 2", body=b"{}")
    status, headers = await receiver.read_response()
    (message,) = (await receiver.body(headers))["messages"]
    await receiver.close()
    assert (status, await counts(http, "kept")) == (200, {"locked": 1})
    completed = await http.post(f"/queues/kept/locks/{message['lock_token']}/complete")
    assert (completed.json()["outcome"], await counts(http, "kept")) == ("completed", {})


@pytest.mark.behaviour("S3.28")
async def test_a_receiver_that_disconnects_while_it_waits_locks_nothing(
    server: PeeklockServer, http: httpx.AsyncClient
) -> None:
    """The message and the end of the connection reach the server at the same moment, in both orders."""
    await http.put("/queues/left", json={"lock_duration_seconds": 3600})
    asked = b'{"wait_seconds": 20}'

    async def nothing_is_held() -> bool:
        return await counts(http, "left") == {"available": 1}

    for leaves_first in (True, False) * 3:
        receiver, sender = await Socket.open(server), await Socket.open(server)
        length = f"Content-Length: {len(asked)}"
        await receiver.send("POST /v1/queues/left/messages/receive HTTP/1.1", length, body=asked)
        await wait_until(partial(receiver_is_waiting, http))
        server.pause()
        if leaves_first:
            await receiver.close()
        await sender.send("POST /v1/queues/left/messages HTTP/1.1", "Content-Length: 2", body=b"{}")
        if not leaves_first:
            await receiver.close()
        server.resume()
        assert (await sender.read_response())[0] == 201
        await sender.close()
        await wait_until(partial(no_receiver_is_waiting, http))
        await wait_until(nothing_is_held)
        (message,) = (await http.post("/queues/left/messages/receive")).json()["messages"]
        assert message["failure_count"] == 0
        await http.post(f"/queues/left/locks/{message['lock_token']}/complete")


async def test_a_waiting_receiver_is_woken_by_the_send_itself(http: httpx.AsyncClient) -> None:
    """Without the wake-up, the scan of each second would wake it. On a slow machine a scan may run in between."""
    await http.put("/queues/woken")
    for _ in range(50):
        waiting = asyncio.create_task(http.post("/queues/woken/messages/receive", json={"wait_seconds": 50}))
        await wait_until(partial(receiver_is_waiting, http))
        scans = await metric_value(http, 'peeklock_passes_total{name="look",outcome="ok"}')
        await http.post("/queues/woken/messages", json={"body": 1})
        assert len((await waiting).json()["messages"]) == 1
        if await metric_value(http, 'peeklock_passes_total{name="look",outcome="ok"}') == scans:
            return
    pytest.fail("only scans woke the receiver")


async def statements_saved(http: httpx.AsyncClient) -> float:
    """The entries that shared the statement of another one. The passes of background loops have their own."""
    counted = await metrics(http)
    totals = [
        sum(map(float, re.findall(rf"^peeklock_batch_entries_{kind}\{{.*\}} ([0-9.]+)", counted, re.MULTILINE)))
        for kind in ("sum", "count")
    ]
    return totals[0] - totals[1]


@pytest.mark.behaviour("S3.6")
async def test_concurrent_sends_share_transactions(server: PeeklockServer, http: httpx.AsyncClient) -> None:
    await http.put("/queues/many")

    sockets = [await Socket.open(server) for _ in range(100)]
    before = await statements_saved(http)
    server.pause()  # so that it reads all of them at once
    for socket in sockets:
        await socket.send("POST /v1/queues/many/messages HTTP/1.1", "Content-Length: 2", body=b"{}")
    server.resume()
    answers = [await socket.read_response() for socket in sockets]
    bodies = [await socket.body(headers) for socket, (_, headers) in zip(sockets, answers, strict=True)]
    assert {status for status, _ in answers} == {201}
    assert len({body["sequence_number"] for body in bodies}) == 100
    assert await statements_saved(http) - before >= 70
    assert await counts(http, "many") == {"available": 100}
    for socket in sockets:
        await socket.close()
