"""An answer goes out in one piece: the head with the body, and nothing is kept from anybody."""

import asyncio
from collections.abc import Iterable

import pytest

from app.server.one_write import Whole

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Wire(asyncio.Transport):
    """Notes what is written at a time."""

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
def wire() -> Wire:
    return Wire()


@pytest.fixture
def whole(wire: Wire) -> Whole:
    return Whole(wire, lambda: 0.0)


def test_head_and_body_are_one_write(wire: Wire, whole: Whole) -> None:
    whole.write(HEAD)
    whole.write(b"{}")
    assert wire.written == [HEAD + b"{}"]


def test_an_answer_without_a_body_goes_out_at_its_end(wire: Wire, whole: Whole) -> None:
    whole.write(HEAD)
    whole.end()
    assert wire.written == [HEAD]


def test_a_later_piece_of_a_stream_goes_out_at_once_even_if_it_looks_like_a_head(wire: Wire, whole: Whole) -> None:
    whole.write(HEAD)
    whole.write(b"{}")
    whole.write(HEAD)
    assert wire.written == [HEAD + b"{}", HEAD]


def test_each_of_two_pipelined_answers_is_one_write(wire: Wire, whole: Whole) -> None:
    for _ in range(2):
        whole.write(HEAD)
        whole.write(b"{}")
        whole.end()
    assert wire.written == [HEAD + b"{}"] * 2


def test_a_client_that_waits_to_be_told_to_go_on_is_told_at_once(wire: Wire, whole: Whole) -> None:
    whole.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert wire.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    whole.write(HEAD)
    whole.write(b"{}")
    assert wire.written[1:] == [HEAD + b"{}"]


def test_closing_loses_nothing(wire: Wire, whole: Whole) -> None:
    whole.write(HEAD)
    whole.close()
    assert wire.written == [HEAD]
    assert wire.closed
