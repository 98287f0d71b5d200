"""Text bodies: what was sent with a media type of text is received as text, and is stored as its bytes."""

from typing import Any

import httpx
import pytest

from tests.api.api_server import ApiServer

TEXT = 'schön: "😀"\n\tend\r'


async def send_raw(api: ApiServer, content: bytes, content_type: str) -> None:
    await api.request("POST", "/queues/orders/messages/raw", content=content, headers={"Content-Type": content_type})


async def body_of(api: ApiServer) -> httpx.Response:
    return await api.request("GET", "/queues/orders/messages/1/body")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "Text/HTML", "text/plain; charset=utf-8", 'text/csv;header=present; charset="UTF-8"'],
)
async def test_text_that_was_sent_raw_is_received_as_text(api: ApiServer, content_type: str) -> None:
    await send_raw(api, TEXT.encode(), content_type)
    (message,) = await api.receive()
    assert (message["body"], message["content_type"], "body_base64" in message) == (TEXT, content_type, False)
    page = await api.request_json("GET", "/queues/orders/messages")
    assert page["items"][0]["body"] == TEXT


@pytest.mark.parametrize("content_type", ["text/plain", "text/plain; charset=us-ascii"])
async def test_text_in_json_is_stored_as_its_bytes(api: ApiServer, content_type: str) -> None:
    await api.send(body=TEXT, content_type=content_type)
    answer = await body_of(api)
    assert (answer.content, answer.headers["content-type"]) == (TEXT.encode(), content_type)
    (message,) = await api.receive()
    assert message["body"] == TEXT


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"\xff", "text/plain"),
        (b"\xed\xa0\x80", "text/plain"),
        (b"caf\xe9", "text/plain; charset=iso-8859-1"),
        (b"text", "text/plain; charset=utf-16"),
        *((b"a" + bytes([code]), "text/plain") for code in (0x00, 0x07, 0x0B, 0x0E, 0x1F)),
        (b"text", "application/octet-stream"),
        (b"text", "texture/plain"),
    ],
    ids=[
        "no UTF-8",
        "a surrogate",
        "another charset",
        "UTF-16",
        "NUL",
        "BEL",
        "VT",
        "SO",
        "US",
        "bytes",
        "another type",
    ],
)
async def test_other_bytes_are_received_as_base64(api: ApiServer, content: bytes, content_type: str) -> None:
    await send_raw(api, content, content_type)
    (message,) = await api.receive()
    assert "body" not in message
    assert (await body_of(api)).content == content


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("a\u0000b", "text/plain"),
        ("café", "text/plain; charset=iso-8859-1"),
        ("text", "application/x-words"),
        ("text", "text/x+json"),
        ("text", None),
        ({"a": 1}, "text/plain"),
        (17, "text/plain"),
    ],
)
async def test_other_json_stays_json(api: ApiServer, body: Any, content_type: str | None) -> None:
    await api.send(body=body, **({} if content_type is None else {"content_type": content_type}))
    assert (await body_of(api)).json() == body
    (message,) = await api.receive()
    assert message["body"] == body


async def test_an_empty_text_is_a_text(api: ApiServer) -> None:
    await api.send(body="", content_type="text/plain")
    assert (await body_of(api)).content == b""
    (message,) = await api.receive()
    assert message["body"] == ""


async def test_text_in_json_is_at_most_twice_as_long_as_its_bytes(api: ApiServer) -> None:
    readable = "".join(character for character in map(chr, range(0x100)) if character.isprintable())
    for content in (readable + '\b\t\n\f\r\x7f"\\', '"' * 1000):
        await send_raw(api, content.encode(), "text/plain")
        answer = await api.request("POST", "/queues/orders/messages/receive")
        assert answer.json()["messages"][0]["body"] == content
        written = answer.content.partition(b'"body":')[2].partition(b',"content_type"')[0]
        assert len(written) <= 2 * len(content.encode()) + 2
