"""An answer is written in one piece, head and body, and no byte is kept back."""

import asyncio
from typing import NoReturn

import pytest

from app.server.buffered_transport import _MAX_JOINED_BYTES, BufferedTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class FakeTransport(asyncio.Transport):
    """Records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = self.ended = False
        self.is_reading = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def write_eof(self) -> None:
        self.ended = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: object) -> NoReturn:
        """Refuse: asyncio's does not pause the protocol in every version of Python."""
        raise NotImplementedError

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


def test_a_large_body_is_not_copied(fake_transport: FakeTransport, buffered_transport: BufferedTransport) -> None:
    buffered_transport.write(HEAD)
    buffered_transport.write(bytes(_MAX_JOINED_BYTES + 1))
    assert fake_transport.written == [HEAD, bytes(_MAX_JOINED_BYTES + 1)]


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


def test_the_end_is_written_after_the_kept_head(
    fake_transport: FakeTransport, buffered_transport: BufferedTransport
) -> None:
    buffered_transport.write(HEAD)
    buffered_transport.write_and_end(b"end")
    assert fake_transport.written == [HEAD, b"end"]
    assert fake_transport.ended


def test_a_request_that_resumes_reading_does_not_end_a_hold(
    fake_transport: FakeTransport, buffered_transport: BufferedTransport
) -> None:
    buffered_transport.hold_reading()
    assert not fake_transport.is_reading
    buffered_transport.pause_reading()
    buffered_transport.resume_reading()
    assert not fake_transport.is_reading
    buffered_transport.release_reading()
    assert fake_transport.is_reading


def test_the_end_of_a_hold_does_not_end_a_pause(
    fake_transport: FakeTransport, buffered_transport: BufferedTransport
) -> None:
    buffered_transport.pause_reading()
    buffered_transport.hold_reading()
    buffered_transport.release_reading()
    assert not fake_transport.is_reading
    buffered_transport.resume_reading()
    assert fake_transport.is_reading


def test_the_time_of_a_client_starts_again_when_its_bytes_are_read_or_answered(fake_transport: FakeTransport) -> None:
    times = iter((1.0, 2.0, 3.0, 4.0, 5.0))
    transport = BufferedTransport(fake_transport, lambda: next(times))
    assert transport.reading_since == 1.0
    transport.pause_reading()
    transport.resume_reading()
    assert transport.reading_since == 2.0
    transport.hold_reading()
    transport.release_reading()
    assert transport.reading_since == 3.0
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert transport.reading_since == 4.0
    transport.write(HEAD)
    transport.end_response()
    assert transport.reading_since == 5.0
