"""A form of the query protocol is read strictly, and within bounds of number and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from urllib.parse import parse_qsl, quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.refusals import InvalidRequest
from app.sqs.query_protocol.form import MAX_FIELDS, read_form
from tests.walks import for_each

FIELDS = st.dictionaries(st.text(min_size=1).map("p{}".format), st.text(), max_size=5)


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that this work holds at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_form_has_an_action_a_version_and_parameters() -> None:
    form = read_form(b"Action=SendMessage&Version=2012-11-05&MessageBody=a+b%20%2B%C3%A9&DelaySeconds=0")
    assert (form.action, form.version) == ("SendMessage", "2012-11-05")
    assert form.parameters == {"MessageBody": "a b +é", "DelaySeconds": "0"}


def test_an_empty_form_has_no_action() -> None:
    assert read_form(b"") == ("", "", {})


def test_a_presigned_request_has_its_form_in_the_query_string() -> None:
    query = (
        b"Action=GetQueueAttributes&Version=2012-11-05&AttributeName.1=All&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        b"&X-Amz-Credential=AK%2F20261128%2Fus-east-1%2Fsqs%2Faws4_request&X-Amz-Date=20261128T082036Z&X-Amz-Expires=3600"
        b"&X-Amz-SignedHeaders=host&X-Amz-Signature=fc06&X-Amz-Security-Token=t"
    )
    assert read_form(b"", query) == ("GetQueueAttributes", "2012-11-05", {"AttributeName.1": "All"})


def test_fields_of_an_older_signature_are_no_parameters() -> None:
    form = read_form(
        b"AWSAccessKeyId=AK&Action=ListQueues&Expires=2026-10-18T22%3A52%3A43PST&Signature=x%3D&SignatureMethod=HmacSHA256"
        b"&SignatureVersion=2&Timestamp=2026-10-18T22%3A52%3A43Z&SecurityToken=t&Version=2012-11-05"
    )
    assert form == ("ListQueues", "2012-11-05", {})


def test_body_and_query_string_are_one_form() -> None:
    form = read_form(b"MessageBody=a", b"Action=SendMessage&Version=2012-11-05")
    assert form == ("SendMessage", "2012-11-05", {"MessageBody": "a"})


@for_each(
    ["body", "query", "sentence"],
    [
        (b"a=1&a=1", b"", "`a` is given more than once"),
        (b"a=1", b"%61=2", "`a` is given more than once"),
        (b"Action=ListQueues", b"Action=DeleteQueue", "`Action` is given more than once"),
        (b"a=%C3", b"", "not UTF-8"),
        (b"%FF=a", b"", "not UTF-8"),
        (b"a=\xff", b"", "not UTF-8"),
        (b"a=%ED%A0%80", b"", "not UTF-8"),  # half of a surrogate pair
        (b"a=100%", b"", "%25"),
        (b"a=%4", b"", "%25"),
        (b"a=%4&b=1", b"", "%25"),
        (b"a=1", b"b=%zz", "%25"),
        (b"a=%+1", b"", "%25"),
    ],
    str,
)
def test_a_malformed_form_is_refused(body: bytes, query: bytes, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read_form(body, query)


def test_a_long_name_is_shortened_in_a_refusal() -> None:
    name = b"a" * 100_000
    with pytest.raises(InvalidRequest) as refused:
        read_form(name + b"=1&" + name + b"=2")
    assert len(refused.value.detail) < 500


@for_each(
    ["body", "parameters"],
    [
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a=b%3Dc=%3d", {"a": "b=c=="}),
        (b"&a=1&&b=2&", {"a": "1", "b": "2"}),
        (b"a=x\0y%00", {"a": "x\0y\0"}),
        (b"a=1;b=2", {"a": "1;b=2"}),
        (b"a=%0D%0A=\r\n+ ", {"a": "\r\n=\r\n  "}),
        (b"%61.1=1", {"a.1": "1"}),
        (b"a=_=%25_", {"a": "_=%_"}),
    ],
)
def test_a_value_is_what_the_client_wrote(body: bytes, parameters: dict[str, str]) -> None:
    assert read_form(body).parameters == parameters


@given(FIELDS)
def test_what_is_encoded_is_read(fields: dict[str, str]) -> None:
    for quoted in (quote_plus, quote):
        assert read_form(urlencode(fields, quote_via=quoted).encode()).parameters == fields


@given(
    st.lists(st.sampled_from([b"a", b"=", b"+", b"%41", b"%3d", b"%0A", b"\n", b"\r\n", b" ", b"_", b"%C3%A9", b"."]))
)
def test_a_value_is_read_as_the_standard_library_reads_it(pieces: list[bytes]) -> None:
    body = b"p=" + b"".join(pieces)
    assert read_form(body).parameters == dict(parse_qsl(body.decode(), keep_blank_values=True))


def test_the_number_of_fields_is_limited_over_body_and_query_string() -> None:
    fields = [b"a%d=1" % number for number in range(MAX_FIELDS)]
    form = read_form(b"&".join(fields[1:]), fields[0])
    assert len(form.parameters) == MAX_FIELDS
    for body, query in ((b"&".join(fields), b"b=1"), (b"&" * MAX_FIELDS, b""), (b"", b"&" * MAX_FIELDS)):
        with pytest.raises(InvalidRequest, match="at most 1,000 fields"):
            read_form(body, query)


def test_a_million_fields_are_refused_before_any_becomes_an_object() -> None:
    body = b"a=1&" * 1_000_000

    def read() -> None:
        with pytest.raises(InvalidRequest, match="fields"):
            read_form(body)

    assert peak_bytes(read) < 100_000  # the fields alone would be more than 30 million bytes


def test_escapes_take_no_memory_of_their_own() -> None:
    body = b"MessageBody=" + b"%C3%A9" * 200_000
    assert peak_bytes(lambda: read_form(body)) < 5 * len(body)  # with an object for each, fifteen times the body
