"""Levels of JSON are counted exactly, with any text in its strings, at any place in a large body."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.json_depth import _BLOCK_BYTES, MAX_JSON_DEPTH, is_too_deep


def nested(depth: int, inside: bytes = b"1", opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + inside + closing * depth


def test_the_limit_is_accepted_and_one_level_more_is_not() -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b' {"[" : ', b" } ")):
        assert not is_too_deep(nested(MAX_JSON_DEPTH, b"1", opening, closing))
        assert is_too_deep(nested(MAX_JSON_DEPTH + 1, b"1", opening, closing))


def test_arrays_and_objects_count_together() -> None:
    pairs = MAX_JSON_DEPTH // 2
    assert not is_too_deep(nested(pairs, b"1", b'[{"a":', b"}]"))
    assert is_too_deep(nested(pairs, b"[]", b'[{"a":', b"}]"))


def test_any_number_of_siblings_is_accepted() -> None:
    for sibling in (b"[]", b'{"a":[{}]}', nested(MAX_JSON_DEPTH - 1)):
        assert not is_too_deep(b"[" + b",".join([sibling] * 2000) + b"]")
    assert is_too_deep(b"[" + b",".join([*[b"[]"] * 2000, nested(MAX_JSON_DEPTH)]) + b"]")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "}" * 5000,
        '"[' * 2000,
        "\\[" * 2000,
        '\\"{' * 2000,
        "\\\\" * 2000 + "[" * 600,
        '[","]' * 1000,
        "é[" * 3000,
    ],
)
def test_brackets_in_strings_do_not_count(text: str) -> None:
    for raw in (json.dumps(text).encode(), json.dumps({text: [text]}).encode()):
        assert not is_too_deep(raw)
        assert not is_too_deep(nested(MAX_JSON_DEPTH - 2, raw))
        assert is_too_deep(nested(MAX_JSON_DEPTH + 1, raw))


@pytest.mark.parametrize("text", ['\\"', '\\\\"', "\\\\\\\\", '\\"\\"'])
def test_an_escape_may_span_two_blocks(text: str) -> None:
    escaped = json.dumps(text)[1:-1].encode()
    for before in range(-len(escaped) - 2, 2):
        start = b'["' + b"x" * (_BLOCK_BYTES - 2 + before) + escaped
        assert not is_too_deep(start + b"[" * 600 + b'"]')
        assert is_too_deep(start + b'",' + nested(MAX_JSON_DEPTH) + b"]")


@pytest.mark.parametrize("place", [0, 1, _BLOCK_BYTES - 300, _BLOCK_BYTES - 1, 3 * _BLOCK_BYTES - 250])
def test_a_deep_value_is_found_at_any_place(place: int) -> None:
    for depth in (MAX_JSON_DEPTH - 1, MAX_JSON_DEPTH):
        raw = b"[" + b" " * place + nested(depth) + b"," + b"[]," * 1000 + b"1]"
        assert is_too_deep(raw) is (depth == MAX_JSON_DEPTH)


def test_what_opens_before_a_fault_counts() -> None:
    """The decoder reads as far as the fault."""
    assert is_too_deep(b"[" * (MAX_JSON_DEPTH + 1))
    assert is_too_deep(b"[" * (MAX_JSON_DEPTH + 1) + b"}")
    assert not is_too_deep(b"[" * MAX_JSON_DEPTH)


def levels(raw: bytes) -> int:
    """Count levels byte by byte."""
    depth = deepest = 0
    text = escape = False
    for byte in raw:
        if escape:
            escape = False
        elif text:
            escape, text = byte == ord("\\"), byte != ord('"')
        else:
            text = byte == ord('"')
            depth += (byte in b"[{") - (byte in b"]}")
            deepest = max(deepest, depth)
    return deepest


TEXTS = st.lists(st.sampled_from([b"[", b"}", b"x", b"\\\\", b'\\"', b"\\u005b"]), max_size=30).map(
    lambda parts: b'"' + b"".join(parts) + b'"'
)
VALUES = st.recursive(
    TEXTS | st.just(b"1"),
    lambda values: (
        st.lists(values, max_size=4).map(lambda parts: b"[" + b",".join(parts) + b"]")
        | st.tuples(TEXTS, values).map(lambda pair: b"{%b:%b}" % pair)
    ),
    max_leaves=30,
)


@given(value=VALUES, times=st.integers(1, 400), around=st.integers(MAX_JSON_DEPTH - 8, MAX_JSON_DEPTH))
def test_the_count_is_that_of_a_scan_of_each_byte(value: bytes, times: int, around: int) -> None:
    raw = nested(around, b",".join([value] * times))
    assert is_too_deep(raw) is (levels(raw) > MAX_JSON_DEPTH)
