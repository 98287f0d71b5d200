"""What the filters of subscriptions read of a body, and the bounds of what that costs."""

import json
import tracemalloc
from typing import Any

import pytest

from app.domain.filter_body import (
    MAX_READ_BODY_BYTES,
    MAX_READ_BODY_ENTRIES,
    MAX_READ_VALUES,
    MemberReader,
    decode_object,
    decoded_weight,
    read_bytes,
)
from app.domain.filter_expression import BodyMember, MemberUse, parse_expression
from app.domain.json_depth import MAX_JSON_DEPTH

VALUE, ENTRIES, PRESENCE = MemberUse
SMALL = 1 << 10
"""Bytes of memory that a body takes besides its entries and texts."""


def reading(*members: tuple[tuple[str, ...], MemberUse], body: Any) -> Any:
    """Return what a filter with these members reads of a body."""
    return MemberReader([BodyMember(names, use) for names, use in members]).read(body)


# ---- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b'{"a": 1}', b' \r\n\t{"a":1.0}', b'{"a": 2, "a": 1}'])
def test_a_json_object_is_read(body: bytes) -> None:
    assert decode_object(body) == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [b"", b"[1]", b"1", b'"{}"', b"null", b"plain text", b'{"a": 1', b'{"a": 1} 2', b'\xef\xbb\xbf{"a": 1}',
     b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"a": "\xff"}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_what_is_no_json_object_is_not_read(body: bytes) -> None:
    assert decode_object(body) is None


def test_a_body_is_read_up_to_its_bytes() -> None:
    largest = b'{"a": "' + b"x" * (MAX_READ_BODY_BYTES - 9) + b'"}'
    assert decode_object(largest) == {"a": "x" * (MAX_READ_BODY_BYTES - 9)}
    assert read_bytes(largest) == MAX_READ_BODY_BYTES
    assert decode_object(largest + b" ") is None
    assert (read_bytes(largest + b" "), decoded_weight(largest + b" ")) == (0, 0)


@pytest.mark.parametrize("entry", [b"1,", b"{},", b"[],"])
def test_a_body_is_read_up_to_its_entries(entry: bytes) -> None:
    symbols = 1 + (entry != b"1,")
    count = (MAX_READ_BODY_ENTRIES - 2) // symbols
    assert decode_object(b'{"a":[' + entry * count + b"1]}") is not None
    more = b'{"a":[' + entry * (count + 1) + b"1]}"
    assert (decode_object(more), read_bytes(more)) == (None, 0)


def test_a_body_is_read_up_to_the_depth_of_requests() -> None:
    deepest = b'{"a":' * (MAX_JSON_DEPTH - 1) + b"[1]" + b"}" * (MAX_JSON_DEPTH - 1)
    assert decode_object(deepest) is not None
    assert decode_object(b'{"a":' + deepest + b"}") is None


@pytest.mark.parametrize("entry", [b"[]", b"{}", b"[1]", b'{"a":1}', b'{"a":{}}', b'{"":[]}', b'"ab"', b"1e9", b"300"])
@pytest.mark.parametrize("count", [100, 3000])
def test_a_body_takes_no_more_memory_than_its_weight(entry: bytes, count: int) -> None:
    body = b'{"a":[' + b",".join([entry] * count) + b"]}"
    assert memory_of(body) <= decoded_weight(body)


def test_texts_and_names_take_no_more_memory_than_their_weight() -> None:
    names = json.dumps({f"{number:x}": number for number in range(1000, 9000)}).encode()
    text = json.dumps({"a": "a" * 200_000 + "\U0001f600"}, ensure_ascii=False).encode()
    for body in (names, text):
        assert memory_of(body) <= decoded_weight(body) + SMALL


def memory_of(body: bytes) -> int:
    """Return the most bytes of memory that a body takes while it is decoded."""
    decode_object(body)
    tracemalloc.start()
    try:
        assert decode_object(body) is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- members ---------------------------------------------------------------------------------------------------------


def test_the_members_that_a_filter_reads_are_those_of_its_paths() -> None:
    source = (
        "message.body.a.b > 1 && has(message.body.c.d) && 'x' in message.body.e['f g'] "
        "&& message.body.h.startsWith('i') && 'j' in message.body && message.properties.k == 1 && size(message.body.l) > 0"
    )
    assert parse_expression(source).body_members == {
        BodyMember(("a", "b"), VALUE),
        BodyMember(("c", "d"), PRESENCE),
        BodyMember(("e", "f g"), ENTRIES),
        BodyMember(("h",), VALUE),
        BodyMember((), ENTRIES),
        BodyMember(("l",), VALUE),
    }


@pytest.mark.parametrize(
    ("literal", "name"),
    [("'a'", "a"), ('"it\'s"', "it's"), ("''", ""), ("'''a'b'''", "a'b"), (r"r'\d'", r"\d"), ("'ä \U0001f600'", "ä \U0001f600")],
)  # fmt: skip
def test_a_name_in_brackets_is_a_text(literal: str, name: str) -> None:
    (member,) = parse_expression(f"message.body[{literal}] == 1").body_members
    assert member.names == (name,)


def test_nothing_else_of_a_body_is_read() -> None:
    body = {"a": {"b": 1, "x": 2}, "c": [1, 2], "d": {"e": {"f": 3}}}
    assert reading((("a", "b"), VALUE), (("c",), ENTRIES), body=body) == {"a": {"b": 1}, "c": [1, 2]}
    assert reading((("d",), VALUE), (("d", "e"), VALUE), body=body) == {"d": {"e": {"f": 3}}}
    assert reading(((), ENTRIES), body=body) == body


def test_of_a_member_whose_presence_is_tested_only_that_is_read() -> None:
    long = {"a": list(range(MAX_READ_VALUES + 1)), "b": {"c": "x"}}
    assert reading((("a",), PRESENCE), (("b", "c"), PRESENCE), (("d",), PRESENCE), body=long) == {
        "a": {},
        "b": {"c": {}},
    }


@pytest.mark.parametrize("body", [{}, {"a": None}, {"a": 1}, {"a": "b"}, {"a": ["b"]}, {"a": {}}])
def test_what_is_no_object_has_no_members(body: Any) -> None:
    assert reading((("a", "b"), VALUE), body=body) == {"a": {}}
    assert reading((("a", "b", "c"), PRESENCE), body=body) == {"a": {"b": {}}}
    tested = {"a": {}} if body else {}
    assert reading((("a",), PRESENCE), (("a", "b"), PRESENCE), body=body) == tested


def test_arrays_and_objects_are_read_up_to_their_values_together() -> None:
    half = MAX_READ_VALUES // 2
    members = (("a",), ENTRIES), (("b",), VALUE)
    body: dict[str, Any] = {"a": [1] * half, "b": {"c": {"d": [2] * (half - 2)}}, "e": [3] * MAX_READ_VALUES}
    assert reading(*members, body=body) == {"a": body["a"], "b": body["b"]}
    body["a"].append(1)
    with pytest.raises(ValueError, match="fewer values"):
        reading(*members, body=body)
