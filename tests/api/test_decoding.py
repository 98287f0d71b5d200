"""The encoding of a body is checked in blocks, without a text of the whole body in memory."""

import tracemalloc

import pytest

from app.domain.refusals import InvalidRequest
from app.http.decoding import _ENCODING_BLOCK_BYTES, body_decoder, is_json
from app.wire.sending import SendMessage

decode = body_decoder(SendMessage)


def body(content: bytes) -> bytes:
    return b'{"body": "' + content + b'"}'


@pytest.mark.parametrize("character", ["ä", "€", "\U0001f600"])
@pytest.mark.parametrize("before", range(-4, 1))
def test_a_character_may_span_two_blocks(character: str, before: int) -> None:
    start = _ENCODING_BLOCK_BYTES - len(body(b"")) + 2 + before
    raw = body(b"x" * start + character.encode() + b"x" * _ENCODING_BLOCK_BYTES)
    assert bytes(decode(raw).body) == raw[len(b'{"body": ') : -1]
    assert is_json(raw)


@pytest.mark.parametrize(
    "length",
    [1, _ENCODING_BLOCK_BYTES - 12, _ENCODING_BLOCK_BYTES, 2 * _ENCODING_BLOCK_BYTES - 12, 2 * _ENCODING_BLOCK_BYTES],
)
def test_half_a_character_is_refused_at_any_position(length: int) -> None:
    for raw in (
        body(b"x" * length + b"\xf0\x9f"),
        body(b"x" * length + b"\xf0\x9f" + b"x" * _ENCODING_BLOCK_BYTES),
        b"1" * length + b"\xc3",
    ):
        with pytest.raises(InvalidRequest):
            decode(raw)
        assert not is_json(raw)


def test_a_body_is_never_in_memory_as_text() -> None:
    """A text takes four bytes for each character if one of them needs four."""
    raw = body("\U0001f600".encode() + b"x" * (4 << 20))
    tracemalloc.start()
    try:
        decode(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(raw) + (1 << 20)
