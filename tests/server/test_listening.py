"""The port of a server, and the options that its connections inherit."""

from __future__ import annotations

import socket

import pytest

from app.server.listening import bind
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


def answer_without_end(connection: socket.socket) -> None:
    """Write without end."""
    for _ in bounded("the client is cut off"):
        connection.send(bytes(1 << 20))
