"""The port of a server, and the options that its connections inherit."""

from __future__ import annotations

import resource
import socket

import pytest
from structlog.testing import capture_logs

from app.server.listening import bind, raise_file_limit
from tests.bounds import bounded


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel cannot watch for it")
def test_a_client_that_reads_none_of_its_answer_is_cut_off() -> None:
    with bind("127.0.0.1", 0, unacknowledged_seconds=1) as listener, socket.socket() as client:
        listener.listen()
        client.connect(listener.getsockname())
        connection, _ = listener.accept()
        connection.settimeout(60)  # a test that fails need not wait for ever
        with connection, pytest.raises(TimeoutError, match="Connection timed out"):
            answer_without_end(connection)


@pytest.mark.parametrize(
    "error", [ValueError("current limit exceeds maximum limit"), PermissionError(1, "not permitted")]
)
def test_a_limit_of_open_files_that_cannot_be_raised_is_logged_with_numbers(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_resource: int, _limits: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda _resource: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    with capture_logs() as logs:
        raise_file_limit(816)
    assert [(line["log_level"], line["allowed"], line["needed"]) for line in logs] == [("warning", 256, 816)]


def test_a_hard_limit_of_open_files_is_logged_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _resource: (256, 512))
    monkeypatch.setattr(resource, "setrlimit", lambda _resource, limits: raised.append(limits))
    with capture_logs() as logs:
        raise_file_limit(816)
    assert raised == [(512, 512)]
    assert [(line["log_level"], line["allowed"], line["needed"]) for line in logs] == [("warning", 512, 816)]


def answer_without_end(connection: socket.socket) -> None:
    """Write without end."""
    for _ in bounded("the client is cut off"):
        connection.send(bytes(1 << 20))
