"""Signatures that botocore, curl and the documentation of AWS make are verified, and each change of a request is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.request_headers import RequestHeaders
from app.sqs.canonical_request import canonical_path
from app.sqs.errors import IncompleteSignature, MissingAuthenticationToken, SignatureDoesNotMatch
from app.sqs.signature import SignedRequest, read_signature
from app.sqs.verification import verify
from tests.sqs.signing import KEY_ID, SECRET, TARGET, Wire, check, presign, sign
from tests.walks import for_each

LETTERS = st.text("abcxyzABC019", min_size=1, max_size=8)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
HEADER_VALUES = st.text("ab 1,;=/\"'é\xffß", max_size=20)
NAMES = st.text("abcdefghij", min_size=3, max_size=6)
PATHS = st.lists(
    st.one_of(LETTERS, st.sampled_from(["", ".", "..", "a%20b", "%C3%A4", "a+b", "a:b@c", "(x)", "~", "my-queue.fifo"]))
)


# ---- what clients sign ----------------------------------------------------------------------------------------------


def test_a_request_of_botocore_is_verified() -> None:
    wire = sign(b'{"QueueUrl": "http://mq.example:8080/000000000000/orders"}')
    signature = read_signature(wire.request())
    assert (signature.access_key_id, signature.region, signature.service) == (KEY_ID, "eu-central-1", "sqs")
    assert signature.timestamp.startswith(signature.date)
    assert not signature.is_presigned
    check(wire)


def test_a_presigned_request_of_botocore_is_verified() -> None:
    wire = presign(expires=60)
    signature = read_signature(wire.request())
    assert (signature.access_key_id, signature.expires_seconds) == (KEY_ID, 60)
    assert signature.is_presigned
    check(wire)


@given(
    st.binary(max_size=200),
    PATHS,
    st.lists(st.tuples(TEXTS, TEXTS), max_size=4),
    st.dictionaries(NAMES, HEADER_VALUES, max_size=4),
)
def test_all_that_botocore_signs_is_verified(
    body: bytes, segments: list[str], params: list[tuple[str, str]], headers: dict[str, str]
) -> None:
    check(sign(body, "/" + "/".join(segments), TARGET | headers, params))


@given(st.dictionaries(TEXTS.filter(lambda text: not text.startswith("X-Amz-")), TEXTS, max_size=4))
def test_all_that_botocore_presigns_is_verified(params: dict[str, str]) -> None:
    check(presign(params=params))


def test_a_header_may_be_sent_as_utf_8() -> None:
    wire = sign(headers=TARGET | {"Note": "größe"})
    check(wire)
    check(wire.with_header(b"note", "größe".encode()))


def test_the_values_of_a_repeated_header_are_joined() -> None:
    wire = sign(headers=TARGET | {"Note": "one,two"})
    check(wire.without(b"note").with_repeated(b"note", b" one ").with_repeated(b"note", b"two"))


def test_a_header_that_is_not_signed_may_change() -> None:
    check(sign().with_header(b"user-agent", b"a proxy").with_header(b"x-amzn-trace-id", b"1"))


def test_a_request_may_be_dated_by_the_header_date() -> None:
    wire = sign(headers=TARGET | {"Date": "replaced by the signer"})
    assert b"x-amz-date" not in dict(wire.lines)
    check(wire)
    dated = _published("date", "", {"date": "20150830T123600Z"})
    assert read_signature(dated.request()).time == SIGNED_AT


def test_a_signed_root_path_is_tried_after_the_path() -> None:
    wire = sign(path="/mq/000000000000/orders")
    check(wire)
    behind_proxy = replace(wire, path="/000000000000/orders")
    with pytest.raises(SignatureDoesNotMatch):
        check(behind_proxy)
    check(behind_proxy, "/mq/000000000000/orders")


# The published tests of AWS: the key, the time and the scope are the same in each.

PUBLISHED_SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SIGNED_AT = 1_440_938_160


def _published(
    names: str, signature: str, headers: dict[str, str], path: str = "/", query: str = "", service: str = "service"
) -> Wire:
    credential = f"AKIDEXAMPLE/20150830/us-east-1/{service}/aws4_request"
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;{names}, Signature={signature or 64 * '0'}"
    )
    lines = [("host", "example.amazonaws.com"), *headers.items(), ("authorization", authorization)]
    return Wire("GET", path, query.encode(), tuple((name.encode(), value.encode()) for name, value in lines))


DATED = {"x-amz-date": "20150830T123600Z"}
PUBLISHED = {
    "get-vanilla": _published("x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31", DATED),
    "post-vanilla": replace(
        _published("x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b", DATED), method="POST"
    ),
    "get-vanilla-query-order-key-case": _published(
        "x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500", DATED,
        query="Param2=value2&Param1=value1",
    ),
    "get-utf8": _published(
        "x-amz-date", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85", DATED, path="/\xe1\x88\xb4"
    ),
    "get-slashes": _published(
        "x-amz-date", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84", DATED, path="//example//"
    ),
    "get-header-value-trim": _published(
        "my-header1;my-header2;x-amz-date", "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        {"my-header1": " value1", "my-header2": ' "a   b   c"', **DATED},
    ),
}  # fmt: skip


@for_each("name", PUBLISHED)
def test_the_published_examples_are_verified(name: str) -> None:
    wire = PUBLISHED[name]
    request = wire.request()
    signature = read_signature(request)
    verify(signature, request, wire.body, PUBLISHED_SECRET, service="service", now_seconds=SIGNED_AT)


async def test_a_request_of_curl_is_verified() -> None:
    received: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await _read(reader))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            "curl", "--silent", "--aws-sigv4", "aws:amz:eu-central-1:sqs", "--user", f"{KEY_ID}:{SECRET}",
            "--data", "Action=ListQueues&Version=2012-11-05", f"http://127.0.0.1:{port}/000000000000/my-queue.fifo",
        )  # fmt: skip
        assert await process.wait() == 0
    wire = await received
    check(wire)
    with pytest.raises(SignatureDoesNotMatch):
        check(replace(wire, body=wire.body + b"&"))


async def _read(reader: asyncio.StreamReader) -> Wire:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    lines = [line.split(":", 1) for line in head[1:] if line]
    headers = tuple((name.lower().encode(), value.strip().encode("latin-1")) for name, value in lines)
    path, _, query = target.partition("?")
    return Wire(method, path, query.encode(), headers, await reader.readexactly(int(dict(headers)[b"content-length"])))


CANONICAL_PATHS = {
    "/000000000000/my-queue.fifo": "/000000000000/my-queue.fifo",
    "/a%20b": "/a%2520b",
    "//a///b/": "/a/b/",
    "/a/./b/../c": "/a/c",
    "/..": "/",
    "/(a):~": "/%28a%29%3A~",
}


@for_each(("path", "canonical"), CANONICAL_PATHS.items())
def test_a_path_is_signed_without_dots_and_with_its_escapes_escaped(path: str, canonical: str) -> None:
    assert canonical_path(path) == canonical


# ---- what does not verify --------------------------------------------------------------------------------------------


@given(st.data())
def test_any_one_changed_byte_is_refused(data: st.DataObject) -> None:
    body = data.draw(st.binary(min_size=1, max_size=50))
    wire = sign(
        body,
        f"/{data.draw(LETTERS)}/{data.draw(LETTERS)}",
        TARGET | {"Note": data.draw(LETTERS)},
        [(data.draw(LETTERS), data.draw(LETTERS))],
    )
    check(wire)
    part = data.draw(
        st.sampled_from(["body", "path", "query", "note", "x-amz-target", "host", "content-type", "signature"])
    )

    def changed(value: bytes) -> bytes:
        other = st.integers(0, 255).map(lambda code: bytes([code])) if part == "body" else st.sampled_from([b"q", b"7"])
        index = data.draw(st.integers(0, len(value) - 1))
        new = data.draw(other.filter(lambda byte: byte != value[index : index + 1]))
        return value[:index] + new + value[index + 1 :]

    if part == "body":
        wire = replace(wire, body=changed(wire.body))
    elif part == "path":
        wire = replace(wire, path="/" + changed(wire.path[1:].encode()).decode())
    elif part == "query":
        wire = replace(wire, query=changed(wire.query))
    elif part == "signature":
        digits = wire.header(b"authorization")[-64:]
        wire = wire.with_part(digits, digits.translate(bytes.maketrans(b"0123456789abcdef", b"123456789abcdef0")))
    else:
        wire = wire.with_header(part.encode(), changed(wire.header(part.encode())))
    with pytest.raises(SignatureDoesNotMatch, match="does not match the request"):
        check(wire)


CHANGES: Mapping[str, Callable[[], None]] = {
    "another secret": lambda: check(sign(), secret="another secret"),
    "another method": lambda: check(replace(sign(), method="PUT")),
    "another region": lambda: check(sign().with_part(b"eu-central-1", b"us-east-1")),
    "another time": lambda: check(_minutes_later(sign())),
    "another region of a presigned request": lambda: check(_with_query(presign(), b"eu-central-1", b"us-east-1")),
    "a longer time of a presigned request": lambda: check(_with_query(presign(), b"Expires=3600", b"Expires=3601")),
    "a parameter more in a presigned request": lambda: check(_with_query(presign(), b"Action", b"Other=1&Action")),
    "a parameter more": lambda: check(replace(sign(), query=b"Action=DeleteQueue")),
    "a body of a presigned request": lambda: check(replace(presign(), body=b"Action=DeleteQueue")),
}  # fmt: skip


@for_each("name", CHANGES)
def test_what_was_not_signed_is_refused(name: str) -> None:
    with pytest.raises(SignatureDoesNotMatch, match="does not match the request") as refused:
        CHANGES[name]()
    assert SECRET not in str(refused.value)


def _minutes_later(wire: Wire) -> Wire:
    time = wire.header(b"x-amz-date")
    return wire.with_header(b"x-amz-date", time[:11] + (b"30" if time[11:13] != b"30" else b"31") + time[13:])


def _with_query(wire: Wire, old: bytes, new: bytes) -> Wire:
    assert old in wire.query
    return replace(wire, query=wire.query.replace(old, new))


def test_another_service_is_refused() -> None:
    with pytest.raises(SignatureDoesNotMatch, match="service sns"):
        check(sign(service="sns"))
    check(sign(service="sns"), service="sns")


def test_a_stated_hash_that_is_not_that_of_the_body_is_refused() -> None:
    stated = sign(b"one", headers=TARGET | {"X-Amz-Content-SHA256": 64 * "0"})
    with pytest.raises(SignatureDoesNotMatch, match="X-Amz-Content-Sha256"):
        check(stated)


@for_each("seconds", [-900, 0, 900])
def test_the_clock_of_a_client_may_differ_by_fifteen_minutes(seconds: int) -> None:
    check(sign(), after_seconds=seconds)


@for_each("seconds", [-901, 901])
def test_a_greater_difference_is_refused_with_both_times(seconds: int) -> None:
    wire = PUBLISHED["get-vanilla"]
    with pytest.raises(SignatureDoesNotMatch) as refused:
        check(wire, secret=PUBLISHED_SECRET, after_seconds=seconds, service="service")
    assert "20150830T123600Z" in str(refused.value)
    assert {-901: "20150830T122059Z", 901: "20150830T125101Z"}[seconds] in str(refused.value)


@for_each("seconds", [-900, 0, 604_800])
def test_a_presigned_request_is_valid_until_it_expires(seconds: int) -> None:
    check(presign(expires=604_800), after_seconds=seconds)


@for_each(("seconds", "words"), [(-901, "clock"), (61, "valid for 60 seconds")])
def test_a_presigned_request_is_refused_before_its_time_and_after_its_end(seconds: int, words: str) -> None:
    with pytest.raises(SignatureDoesNotMatch, match=words):
        check(presign(expires=60), after_seconds=seconds)


# ---- what is refused before the body is read ------------------------------------------------------------------------


def test_a_request_without_a_signature_is_refused() -> None:
    unsigned = sign().without(b"authorization")
    for wire in (unsigned, replace(unsigned, query=b"Action=ListQueues&X-Amz-Security-Token=a")):
        with pytest.raises(MissingAuthenticationToken):
            read_signature(wire.request())


def _signed(old: bytes, new: bytes) -> Wire:
    return sign().with_part(old, new)


def _query(old: bytes, new: bytes) -> Wire:
    return _with_query(presign(), old, new)


HASHED = TARGET | {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
INCOMPLETE = {
    "another scheme": (lambda: sign().with_header(b"authorization", b"Bearer pk_1"), "begins with AWS4-HMAC-SHA256"),
    "an older scheme": (lambda: _signed(b"AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256"), "begins with AWS4"),
    "no credential": (lambda: _signed(b"Credential=", b"Signature="), "more than once"),
    "no signed headers": (lambda: sign().with_header(b"authorization", b"AWS4-HMAC-SHA256 Credential=a,Signature=b"), "lacks the part SignedHeaders"),
    "a part more": (lambda: _signed(b"Credential=", b"Token=1, Credential="), "and no other"),
    "a part twice": (lambda: _signed(b"Credential=", b"Credential=1, Credential="), "part Credential more than once"),
    "nothing but the scheme": (lambda: sign().with_header(b"authorization", b"AWS4-HMAC-SHA256"), "and no other"),
    "a credential without a key": (lambda: _signed(KEY_ID.encode(), b""), "The Credential has the form"),
    "a credential with a slash": (lambda: _signed(KEY_ID.encode(), b"a/b"), "The Credential has the form"),
    "a credential of another end": (lambda: _signed(b"aws4_request", b"aws5_request"), "The Credential has the form"),
    "a malformed date of the credential": (lambda: _signed(KEY_ID.encode() + b"/2", b"a/x"), "The Credential has the form"),
    "a malformed region": (lambda: _signed(b"eu-central-1", b"eu central"), "The Credential has the form"),
    "headers in upper case": (lambda: _signed(b"SignedHeaders=content-type", b"SignedHeaders=Content-Type"), "in lower case"),
    "no headers": (lambda: sign().with_header(b"authorization", b"AWS4-HMAC-SHA256 Credential=a/20150830/b/sqs/aws4_request,SignedHeaders=,Signature=b"), "in lower case"),
    "a header that is named twice": (lambda: _signed(b";host", b";host;host"), "name a header more than once"),
    "a signed header that is missing": (lambda: sign(headers=TARGET | {"Note": "a"}).without(b"note"), "Note, which the request lacks"),
    "the host is not signed": (lambda: _signed(b";host", b""), "does not cover the header Host"),
    "the target is not signed": (lambda: _signed(b";x-amz-target", b""), "does not cover the header X-Amz-Target"),
    "a short signature": (lambda: sign().with_header(b"authorization", sign().header(b"authorization")[:-1]), "64 hexadecimal digits"),
    "a signature in upper case": (lambda: sign().with_header(b"authorization", sign().header(b"authorization")[:-64] + 64 * b"A"), "64 hexadecimal digits"),
    "the date of another day": (lambda: _published("x-amz-date", "", {"x-amz-date": "20150831T000000Z"}), "is not that of the time"),
    "no time": (lambda: sign().without(b"x-amz-date"), "has the header X-Amz-Date or Date"),
    "a time with dashes": (lambda: sign().with_header(b"x-amz-date", b"2015-08-30T12:36:00Z"), "has the form 20260131T235959Z"),
    "a time with a digit less": (lambda: sign().with_header(b"x-amz-date", b"20150830T12360Z"), "has the form 20260131T235959Z"),
    "a day that does not exist": (lambda: sign().with_header(b"x-amz-date", b"20150231T123600Z"), "has the form 20260131T235959Z"),
    "a date that is no date": (lambda: sign().without(b"x-amz-date").with_header(b"date", b"yesterday"), "Date is not a date"),
    "both forms": (lambda: replace(sign(), query=presign().query), "signed twice"),
    "a part of both forms": (lambda: replace(sign(), query=b"X-Amz-Signature=a"), "signed twice"),
    "an escaped part of both forms": (lambda: replace(sign(), query=b"X%2DAmz-Signature=a"), "signed twice"),
    "a repeated authorization": (lambda: sign().with_repeated(b"authorization", b"a"), "Authorization is given more than once"),
    "a repeated host": (lambda: sign().with_repeated(b"host", b"a"), "Host is given more than once"),
    "a repeated time": (lambda: sign().with_repeated(b"x-amz-date", b"a"), "X-Amz-Date is given more than once"),
    "a repeated date": (lambda: sign(headers=TARGET | {"Date": "a"}).with_repeated(b"date", b"a"), "Date is given more than once"),
    "a repeated hash": (lambda: sign(headers=HASHED).with_repeated(b"x-amz-content-sha256", b"a"), "Sha256 is given more than once"),
    "an unsigned body": (lambda: sign(headers=HASHED), "does not cover the body"),
    "a streamed body": (lambda: sign(headers=TARGET | {"X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}), "does not cover the body"),
    "an unsigned body of a presigned request": (lambda: _query(b"Action", b"X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&Action"), "does not cover the body"),
    "a presigned request of another algorithm": (lambda: _query(b"AWS4-HMAC-SHA256", b"AWS4"), "X-Amz-Algorithm is"),
    "a presigned request with a part twice": (lambda: _query(b"Action", b"X-Amz-Date=1&Action"), "X-Amz-Date more than once"),
    "a presigned request with an escaped part twice": (lambda: _query(b"Action", b"X-Amz%2DDate=1&Action"), "X-Amz-Date more than once"),
    "a presigned request for longer than a week": (lambda: presign(expires=604_801), "1 to 604800 seconds"),
    "a presigned request for no time": (lambda: presign(expires=0), "1 to 604800 seconds"),
    "a presigned request with words as its time": (lambda: _query(b"Expires=3600", b"Expires=1h"), "1 to 604800 seconds"),
    "a presigned request without its host": (lambda: _query(b"SignedHeaders=host", b"SignedHeaders=accept").with_header(b"accept", b"a"), "does not cover the header Host"),
} | {
    f"a presigned request without {name}": (lambda name=name: _query(name.encode() + b"=", b"Other="), f"lacks the parameter {name}")
    for name in ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature")
}  # fmt: skip


@for_each("name", INCOMPLETE)
def test_an_incomplete_signature_is_refused(name: str) -> None:
    make, words = INCOMPLETE[name]
    with pytest.raises(IncompleteSignature, match=words):
        read_signature(make().request())


@given(st.binary(max_size=60), st.sampled_from([b"authorization", b"x-amz-date", b"date", b"x-amz-content-sha256"]))
def test_a_header_of_any_bytes_is_read_or_refused(value: bytes, name: bytes) -> None:
    wire = sign().without(b"x-amz-date" if name == b"date" else name).with_header(name, value)
    try:
        read_signature(wire.request())
    except (IncompleteSignature, MissingAuthenticationToken):
        return


@given(st.binary(max_size=60))
def test_a_query_of_any_bytes_is_read_or_refused(query: bytes) -> None:
    request = SignedRequest("GET", ("/",), b"X-Amz-Signature=" + query, RequestHeaders([(b"host", b"a")]))
    with pytest.raises(IncompleteSignature):
        read_signature(request)
