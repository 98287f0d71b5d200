"""Requests to a real server, each over a new connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.peeklock_process import PeeklockProcess
from tests.servers import POLL_SECONDS, TIMEOUT_SECONDS


def send_request(service: PeeklockProcess, method: str, path: str, body: Any = None, **request: Any) -> httpx.Response:
    """Send one request over a new connection."""
    if body is not None:
        request["json"] = body
    return httpx.request(method, f"{service.url}{path}", timeout=TIMEOUT_SECONDS, **request)


def metric_value(service: PeeklockProcess, line: str) -> float:
    """Return the value of one line of the metrics; 0 if the line does not exist."""
    for found in send_request(service, "GET", "/metrics").text.splitlines():
        name, _, value = found.rpartition(" ")
        if name == line:
            return float(value)
    return 0.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return once the condition holds. After a timeout, fail and name what did not happen."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"this did not happen: {what}"
        time.sleep(POLL_SECONDS)
