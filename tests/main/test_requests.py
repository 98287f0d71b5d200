"""Requests that need a real server: bodies in pieces, and a lock store that goes away."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from app.domain.message import MAX_BATCH_COUNT
from tests.bounds import bounded
from tests.main.conftest import LONG_REDIS_TIMEOUT, Serve
from tests.main.http_requests import send_request, wait_until
from tests.servers import TIMEOUT_SECONDS, RedisServer, ServerProcess

MAX_BYTES = 100_000
CHUNK = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
CHUNKED = b"POST /v1/queues/large/messages/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
DECLARED = b"POST /v1/queues/large/messages/raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"


def test_a_body_is_counted_while_it_streams(serve: Serve) -> None:
    service = serve(max_request_bytes=MAX_BYTES)
    for head, piece in ((CHUNKED, CHUNK), (DECLARED, b"x" * 0x4000)):
        answer = endless_upload(service.url, head, piece)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"message-too-large"' in answer
    assert send_request(service, "GET", "/v1/queues").json()["items"] == []


def test_zeros_before_a_length_change_nothing(serve: Serve) -> None:
    service = serve()
    for zeros in (1, 5_000):
        head = f"POST /v1/queues/zeros/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {'0' * zeros}2\r\n"
        answer = raw_response(service.url, f"{head}Connection: close\r\n\r\n{{}}".encode())
        assert answer.startswith(b"HTTP/1.1 201 "), answer


def test_the_largest_batch_fits_into_the_smallest_budget(serve: Serve) -> None:
    """An entry counts for more than its bytes. A batch that never fits would be answered 503 again and again."""
    service = serve(max_request_bytes=MAX_BYTES, max_request_bytes_in_flight=1 << 20)
    batch = {"messages": [{}] * MAX_BATCH_COUNT}
    assert send_request(service, "POST", "/v1/queues/large/messages/batch", batch).status_code == 201


def test_the_open_transactions_of_a_client_are_limited_by_a_setting(serve: Serve) -> None:
    service = serve(max_transactions_per_principal=1)
    assert send_request(service, "POST", "/v1/transactions").status_code == 201
    assert send_request(service, "POST", "/v1/transactions").json()["code"] == "too-many-transactions"


@pytest.mark.behaviour("S1.8")
def test_a_server_that_requires_durability_refuses_what_its_database_may_lose(serve: Serve, postgres_url: str) -> None:
    path, required = "/v1/queues/orders/messages", {"auto_create_queues": 1, "require_durable_store": 1}
    weak = serve(database_url=f"{postgres_url}?synchronous_commit=off", **required)
    refused = send_request(weak, "POST", path, {"body": 1})
    assert (refused.status_code, refused.json()["code"]) == (503, "store-not-durable")
    assert "synchronous_commit" in refused.json()["detail"]
    assert send_request(weak, "POST", path, {"body": 1, "durability": "volatile"}).status_code == 202
    assert send_request(weak, "GET", "/readyz").status_code == 200
    assert send_request(serve(**required), "POST", path, {"body": 1}).status_code == 201


def test_a_page_of_a_listed_origin_uses_a_server_without_keys(serve: Serve) -> None:
    service = serve(cors_origins="https://shop.example, http://localhost:3000")
    for origin, status, allowed in (
        ("http://localhost:3000", 201, "http://localhost:3000"),
        ("https://other.example", 403, None),
    ):
        headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        answer = httpx.post(f"{service.url}/v1/queues/orders/messages", json={"body": 1}, headers=headers)
        assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (status, allowed)


def test_without_redis_the_server_is_degraded_and_serves(
    serve: Serve, postgres_url: str, private_server: Callable[..., ServerProcess]
) -> None:
    redis = private_server(RedisServer)
    service = serve(database_url=postgres_url, redis_url=redis.url, auto_create_queues=1, **LONG_REDIS_TIMEOUT)
    assert send_request(service, "GET", "/readyz").json()["lock_store"] == "ok"
    redis.stop()
    wait_until(
        lambda: send_request(service, "GET", "/readyz").json()["lock_store"] == "degraded",
        "the server reports the loss",
    )
    work = "/v1/queues/work"
    assert send_request(service, "POST", f"{work}/messages", {"body": 1}).status_code == 201
    (message,) = send_request(service, "POST", f"{work}/messages/receive", {"lock_seconds": 300}).json()["messages"]
    for verb in ("renew", "complete"):
        assert send_request(service, "POST", f"{work}/locks/{message['lock_token']}/{verb}", {}).status_code == 200
    ready = send_request(service, "GET", "/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "store": "ok", "lock_store": "degraded"})


def test_an_idempotency_key_with_nul_is_refused(serve: Serve) -> None:
    """No header field may contain a NUL (RFC 9110, 5.5), and no database keeps one in a text."""
    service = serve()
    for path, body in IDEMPOTENT_BODIES.items():
        for key in (b"\0", b"one\0two", b"\0" * 300):
            head = f"POST /v1/queues/nul/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n".encode()
            answer = raw_response(
                service.url, head + b"Idempotency-Key: " + key + b"\r\nConnection: close\r\n\r\n" + body
            )
            assert answer.startswith(b"HTTP/1.1 400 "), (path, key, answer)
            assert b'"malformed-request"' in answer
    assert send_request(service, "GET", "/v1/queues").json()["items"] == []


IDEMPOTENT_BODIES = {
    "messages": b"{}",
    "messages/raw": b"{}",
    "messages/receive": b"{}",
    "messages/batch": b'{"messages": [{}]}',
}
"""The operations that accept an Idempotency-Key, and a body for each."""


def raw_response(url: str, request: bytes) -> bytes:
    """Send these bytes, and return all answers until the server closes the connection."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(request)
        answer = b""
        for _ in bounded("the server closes the connection"):
            piece = connection.recv(65536)
            if not piece:
                break
            answer += piece
        return answer


def endless_upload(url: str, head: bytes, piece: bytes) -> bytes:
    """Send a request with an endless body, and return its answer."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port)) as connection:
        connection.sendall(head)
        answer = b""
        connection.settimeout(TIMEOUT_SECONDS)
        for _ in bounded("the upload is refused"):
            readable, writable, _ = select.select([connection], [] if answer else [connection], [], TIMEOUT_SECONDS)
            assert readable or writable, "the server neither reads nor answers"
            if readable:
                answer += connection.recv(65536)
            elif writable:
                connection.send(piece)
            if b"\r\n\r\n" in answer and answer.endswith(b"}"):
                break
        return answer
