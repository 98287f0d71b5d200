"""An answer is written in one piece, head and body, and no byte is kept back."""

import asyncio
from collections.abc import Iterable

import pytest

from app.server.buffered_transport import BufferedTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class FakeTransport(asyncio.Transport):
    """Records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written.append(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake_transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def buffered_transport(fake_transport: FakeTransport) -> BufferedTransport:
    return BufferedTransport(fake_transport, lambda: 0.0)


def test_head_and_body_are_one_write(fake_transport: FakeTransport, buffered_transport: BufferedTransport) -> None:
    buffered_transport.write(HEAD)
    buffered_transport.write(b"{}")
    assert fake_transport.written == [HEAD + b"{}"]


def test_an_answer_without_a_body_is_written_at_its_end(
    fake_transport: FakeTransport, buffered_transport: BufferedTransport
) -> None:
    buffered_transport.write(HEAD)
    buffered_transport.end_response()
    assert fake_transport.written == [HEAD]


def test_a_later_piece_that_looks_like_a_head_is_written_at_once(
    fake_transport: FakeTransport, buffered_transport: BufferedTransport
) -> None:
    buffered_transport.write(HEAD)
    buffered_transport.write(b"{}")
    buffered_transport.write(HEAD)
    assert fake_transport.written == [HEAD + b"{}", HEAD]


def test_each_of_two_pipelined_answers_is_one_write(
    fake_transport: FakeTransport, buffered_transport: BufferedTransport
) -> None:
    for _ in range(2):
        buffered_transport.write(HEAD)
        buffered_transport.write(b"{}")
        buffered_transport.end_response()
    assert fake_transport.written == [HEAD + b"{}"] * 2


def test_100_continue_is_written_at_once(fake_transport: FakeTransport, buffered_transport: BufferedTransport) -> None:
    buffered_transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert fake_transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    buffered_transport.write(HEAD)
    buffered_transport.write(b"{}")
    assert fake_transport.written[1:] == [HEAD + b"{}"]


def test_close_writes_the_kept_head(fake_transport: FakeTransport, buffered_transport: BufferedTransport) -> None:
    buffered_transport.write(HEAD)
    buffered_transport.close()
    assert fake_transport.written == [HEAD]
    assert fake_transport.closed
