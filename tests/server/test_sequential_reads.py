"""Requests sent ahead stay bytes until their turn, and are answered in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.server.chunk_overhead import MAX_SMALL_CHUNKS
from app.server.connection import Connection
from app.server.request_errors import MAX_FIELDS
from app.server.sequential_reads import _MAX_CHUNKS_PER_TURN, _MIN_READ_BYTES
from tests.server.connections import Client, EchoApplication, open_client

READ = 250_000
"""Bytes of a large read."""


@pytest.fixture
def service() -> EchoApplication:
    return EchoApplication()


@pytest.fixture
async def client(service: EchoApplication) -> AsyncIterator[Client]:
    async with open_client(service, Connection) as client:
        yield client


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def post(body: bytes) -> bytes:
    return b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def chunked(body: bytes) -> bytes:
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"


async def test_a_thousand_requests_sent_ahead_are_answered_in_order(client: Client, service: EchoApplication) -> None:
    client.send(get("/late") + b"".join(get(f"/{number}") for number in range(1000)))
    await service.begun.wait()
    service.may_read.set()
    answers = [(await client.read_response())[2] for _ in range(1001)]
    assert answers == [b"/late", *(b"/%d" % number for number in range(1000))]


async def test_pipelined_bodies_of_any_size_arrive_complete(client: Client) -> None:
    bodies = [
        bytes([65 + number % 26]) * size
        for number, size in enumerate([0, 1, _MIN_READ_BYTES, 5000, 90_000, 3, 300_000])
    ]
    client.send(b"".join(make(body) + get("/next") for body in bodies for make in (post, chunked)))
    for body in bodies:
        assert [(await client.read_response())[2] for _ in range(4)] == [body, b"/next"] * 2


class FakeTransport(asyncio.Transport):
    """A transport that accepts every write, and records whether reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False


async def open_connection(service: EchoApplication) -> tuple[Connection, FakeTransport]:
    """A connection to which the test passes reads one by one."""
    config = uvicorn.Config(service, ws="none", lifespan="off", log_config=None)
    connection, wire = Connection(config, ServerState(), {}), FakeTransport()
    connection.connection_made(wire)
    return connection, wire


async def test_few_pipelined_requests_are_parsed_and_reading_stops(service: EchoApplication) -> None:
    connection, wire = await open_connection(service)
    connection.data_received(get("/late") + get("/") * (READ // len(get("/"))))
    await service.begun.wait()
    assert len(connection.pipeline) <= _MIN_READ_BYTES // len(get("/"))
    service.may_read.set()
    await asyncio.sleep(0)
    assert not wire.is_read, "the request that is under way reads on, but nothing is read"
    connection.connection_lost(ConnectionError())


async def test_bytes_sent_ahead_in_many_reads_are_bounded_by_one_read(service: EchoApplication) -> None:
    connection, wire = await open_connection(service)
    connection.data_received(get("/late"))
    await service.begun.wait()
    for _ in range(100):
        if not wire.is_read:
            break
        connection.data_received(get("/next") * 20)
        connection.flow.resume_reading()  # as a request does that waits for its client to leave
    assert not wire.is_read
    assert len(connection.pipeline) <= _MIN_READ_BYTES // len(get("/next"))
    service.may_read.set()
    connection.connection_lost(ConnectionError())


async def test_other_connections_have_their_turn_between_small_chunks(service: EchoApplication) -> None:
    """One read has forty thousand chunks, which take a tenth of a second."""
    connection, wire = await open_connection(service)
    connection.data_received(b"POST /late HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    most = _MAX_CHUNKS_PER_TURN + _MIN_READ_BYTES // len(b"1\r\nx\r\n")
    read, turns = 0, 0
    connection.data_received(b"1\r\nx\r\n" * MAX_SMALL_CHUNKS)
    while not wire.is_read:
        assert len(connection.cycle.body) - read <= most
        read, turns = len(connection.cycle.body), turns + 1
        await asyncio.sleep(0)
    assert len(connection.cycle.body) == MAX_SMALL_CHUNKS
    assert turns >= MAX_SMALL_CHUNKS // most
    service.may_read.set()
    connection.connection_lost(ConnectionError())


async def test_endless_fields_are_refused_while_they_arrive(client: Client, service: EchoApplication) -> None:
    client.send(b"GET /fields HTTP/1.1\r\nHost: x\r\n" + b"b: x\r\n" * _MIN_READ_BYTES)
    assert await client.problem() == (431, "headers-too-large")
    assert not service.begun.is_set()


async def test_the_maximum_number_of_fields_is_accepted(client: Client) -> None:
    fields = b"".join(b"a%d: x\r\n" % number for number in range(MAX_FIELDS - 1))
    client.send(b"GET /fields HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n")
    assert len((await client.read_response())[2].split(b",")) == MAX_FIELDS
    client.send(b"GET /fields HTTP/1.1\r\nHost: x\r\nb: x\r\n" + fields + b"\r\n")
    assert await client.problem() == (431, "headers-too-large")
