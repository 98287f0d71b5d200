"""Requests to a real server, each over a connection of its own unless a client is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.servers import GLANCE, PATIENCE
from tests.service import Service


def ask(service: Service, method: str, path: str, body: Any = None, **request: Any) -> httpx.Response:
    """One request over a new connection."""
    if body is not None:
        request["json"] = body
    return httpx.request(method, f"{service.url}{path}", timeout=PATIENCE, **request)


def meter(service: Service, line: str) -> float:
    """The value of one line of the metrics; nought where there is none."""
    for found in ask(service, "GET", "/metrics").text.splitlines():
        name, _, value = found.rpartition(" ")
        if name == line:
            return float(value)
    return 0.0


def until(condition: Callable[[], object], what: str) -> None:
    """Return once the condition holds; fail, saying what did not happen, when it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it has not come to this: {what}"
        time.sleep(GLANCE)
