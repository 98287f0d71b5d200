"""The headers of a request by name, also of one that repeats them, and those that an operation refuses."""

import pytest

from app.domain.refusals import (
    InvalidRequest,
    MessageTooLarge,
    Refusal,
    Unauthenticated,
    UnsupportedContentEncoding,
)
from app.http.asgi import Headers
from app.http.authorize import bearer_token
from app.http.request_headers import CONDITIONS, HeaderCheck, RequestHeaders

JSON = HeaderCheck(frozenset(CONDITIONS), has_body=True, is_json=True, ignores_body=False)
BYTES = HeaderCheck(frozenset(), has_body=True, is_json=False, ignores_body=False)
NO_BODY = HeaderCheck(frozenset(), has_body=False, is_json=False, ignores_body=False)
READ = HeaderCheck(frozenset(), has_body=False, is_json=False, ignores_body=True)
MAX_BYTES = 100

TOO_LONG = (b"content-length", b"101")
COMPRESSED = (b"content-encoding", b"gzip")
RAW = (b"peeklock-delay-seconds", b"5")
CONDITION = (b"if-match", b'"1"')


def test_a_header_is_found_by_its_name() -> None:
    headers = RequestHeaders([(b"host", b"a"), (b"traceparent", b"\xe9")])
    assert (headers.text(b"traceparent"), headers.every(b"traceparent")) == ("\xe9", [b"\xe9"])
    assert (headers.text(b"prefer"), headers.every(b"prefer")) == (None, [])
    assert not headers.repeated


def test_the_values_of_a_repeated_header_are_in_their_order() -> None:
    headers = RequestHeaders([(b"prefer", b"1"), (b"host", b"a"), (b"prefer", b"2")])
    assert headers.every(b"prefer") == [b"1", b"2"]
    assert headers.text(b"prefer") == "1"
    assert headers.values[b"prefer"] == b"2"
    assert set(headers.repeated) == {b"prefer"}


def test_a_token_is_refused_only_if_its_own_header_is_repeated() -> None:
    token, other = (b"authorization", b"Bearer key"), (b"accept", b"*/*")
    assert bearer_token(RequestHeaders([other, token, other])) == "key"
    with pytest.raises(Refusal, match="one Authorization header"):
        bearer_token(RequestHeaders([token, other, token]))


@pytest.mark.parametrize("value", [b"Bearer", b"Bearer\tkey", b"Bearerkey", b"Basic key", b" Bearer key", b""])
def test_a_token_of_another_scheme_is_refused(value: bytes) -> None:
    with pytest.raises(Unauthenticated):
        bearer_token(RequestHeaders([(b"authorization", value)]))


@pytest.mark.parametrize("value", [b"bearer key", b"BEARER  key "])
def test_the_scheme_of_a_token_has_any_case(value: bytes) -> None:
    assert bearer_token(RequestHeaders([(b"authorization", value)])) == "key"


@pytest.mark.parametrize(
    ("check", "lines", "length"),
    [
        (JSON, [], 0),
        (JSON, [(b"content-length", b"0" * 5000 + b"100"), (b"peeklock-local-admin", b"true")], 100),
        (JSON, [(b"content-length", b"1x")], 0),
        (BYTES, [(b"content-encoding", b" Identity "), (b"content-encoding", b"")], 0),
        (BYTES, [RAW, CONDITION], 0),
        (READ, [(b"content-length", b"7"), COMPRESSED], 7),
    ],
)
def test_the_length_of_a_body_is_returned(check: HeaderCheck, lines: Headers, length: int) -> None:
    assert check.check(RequestHeaders(lines), MAX_BYTES) == length


@pytest.mark.parametrize(
    ("check", "lines", "refusal", "words"),
    [
        (JSON, [TOO_LONG, COMPRESSED, RAW, CONDITION], InvalidRequest, "If-Match"),
        (JSON, [(b"idempotency-key", b"1"), CONDITION], InvalidRequest, "Idempotency-Key"),
        (JSON, [TOO_LONG, COMPRESSED, RAW], InvalidRequest, "Only raw operations"),
        (JSON, [COMPRESSED, TOO_LONG], MessageTooLarge, "100 bytes"),
        (JSON, [COMPRESSED, (b"content-encoding", b"identity")], UnsupportedContentEncoding, ""),
        (NO_BODY, [(b"transfer-encoding", b"chunked")], InvalidRequest, "no body"),
        (NO_BODY, [(b"content-length", b"1")], InvalidRequest, "no body"),
        (READ, [TOO_LONG], MessageTooLarge, "100 bytes"),
    ],
)
def test_the_first_fault_is_refused(check: HeaderCheck, lines: Headers, refusal: type[Refusal], words: str) -> None:
    with pytest.raises(refusal) as refused:
        check.check(RequestHeaders(lines), MAX_BYTES)
    assert words in f"{refused.value.detail}{refused.value.field_errors}"
