"""The access log has one line per request at level debug, and none above it."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.api.api_server import open_api_server


@pytest.fixture
def debug_logging(caplog: pytest.LogCaptureFixture) -> None:
    """Log at level debug in a server that starts now."""
    caplog.set_level(logging.DEBUG, "peeklock.access")


def logged_fields(lines: list[Any]) -> list[Mapping[str, Any]]:
    """Return the access log without the values that differ in each run."""
    return [{key: line[key] for key in ("operation", "method", "queue", "status", "request_id")} for line in lines]


@pytest.mark.usefixtures("debug_logging")
async def test_each_request_writes_one_log_line() -> None:
    async with open_api_server() as api:
        with capture_logs() as lines:
            await api.request("PUT", "/queues/orders", {}, headers={"x-request-id": "first"})
            await api.request("POST", "/queues/orders/locks/7.secret/complete", headers={"x-request-id": "second"})
            await api.request("GET", "/queues/no%0Aqueue", headers={"x-request-id": "third"})
            await api.request("PUT", "/nowhere/7.secret", headers={"x-request-id": "fourth"})
            await api.request("DELETE", "/queues", headers={"x-request-id": "fifth"})
            await api.request("HEAD", "/queues/orders", headers={"x-request-id": "sixth"})
    assert [tuple(line.values()) for line in logged_fields(lines)] == [
        ("put_queue", "PUT", "orders", 201, "first"),
        ("complete_lock", "POST", "orders", 404, "second"),
        ("get_queue", "GET", None, 422, "third"),
        (None, "PUT", None, 404, "fourth"),
        (None, "DELETE", None, 405, "fifth"),
        ("get_queue", "HEAD", "orders", 200, "sixth"),
    ]
    assert {(line["event"], line["log_level"]) for line in lines} == {("answered", "debug")}
    assert all(line["milliseconds"] > 0 for line in lines)
    assert "secret" not in str(lines)


async def test_the_access_log_is_off_above_level_debug() -> None:
    async with open_api_server() as api:
        with capture_logs() as lines:
            await api.request("PUT", "/queues/orders", {})
    assert lines == []
