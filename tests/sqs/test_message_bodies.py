"""Bodies: text becomes its bytes, and the bytes of any message become text again."""

from base64 import b64decode
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sqs.errors import InvalidMessageContents, MissingParameter
from app.sqs.message_bodies import body_bytes, body_text, md5_of_body
from tests.walks import for_each

ALLOWED = ((0x9, 0xA), (0xD, 0xD), (0x20, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x10FFFF))
"""The characters of SendMessage in the reference of SQS."""


def is_allowed(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in ALLOWED)


def test_exactly_the_documented_characters_are_accepted() -> None:
    wrong: list[int] = []
    for number in (*range(0x300), *range(0xD700, 0xE100), *range(0xFF00, 0x10100), *range(0x10FF00, 0x110000)):
        try:
            accepted = body_bytes(f"a{chr(number)}b") == f"a{chr(number)}b".encode()
        except InvalidMessageContents:
            accepted = False
        if accepted != is_allowed(chr(number)):
            wrong.append(number)
    assert not wrong


@given(st.text(st.characters(exclude_categories=("Cs",)).filter(is_allowed), min_size=1))
def test_a_text_comes_back_exactly(text: str) -> None:
    assert body_text(body_bytes(text)) == (text, False)


@given(st.binary())
def test_bytes_that_are_no_text_of_xml_come_in_base64(body: bytes) -> None:
    text, is_base64 = body_text(body)
    assert (b64decode(text, validate=True) if is_base64 else text.encode()) == body
    assert all(map(is_allowed, text))
    try:
        assert is_base64 == (not all(map(is_allowed, body.decode())))
    except UnicodeDecodeError:
        assert is_base64


@for_each("body", [b"\x00", b"a\x1f", b"\xff", "a\uffff".encode(), "\ufffe".encode(), b"\xed\xa0\x80"])
def test_each_kind_of_byte_that_xml_cannot_carry_is_marked(body: bytes) -> None:
    assert body_text(body).is_base64


def test_json_comes_as_its_text_and_no_body_as_an_empty_text() -> None:
    assert body_text(b'{"a": [1, "\xc3\xa9"]}') == ('{"a": [1, "é"]}', False)
    assert body_text(b"") == ("", False)


def test_an_empty_body_is_a_missing_parameter() -> None:
    with pytest.raises(MissingParameter, match="MessageBody"):
        body_bytes("")


def test_the_md5_is_that_of_utf8() -> None:
    assert md5_of_body("msg") == "6e2baaf3b97dbeef01c0043275f9a0e7"  # an answer of SQS
    assert md5_of_body("é") == md5(b"\xc3\xa9").hexdigest()
