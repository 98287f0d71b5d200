"""kombu creates queues below a prefix, and acknowledges, returns and discards messages."""

from __future__ import annotations

from tests.sqs_clients.signed_server import PROGRAMS, PYTHON, SignedServer, kombu_url, run


def test_messages_are_counted_acknowledged_returned_and_discarded(server: SignedServer) -> None:
    variables = server.variables() | {"BROKER": kombu_url(server, server.key)}
    assert run(variables, PYTHON, PROGRAMS / "with_kombu.py") == {
        "simple": [3, {"order": 1}, 0],
        "consumed": [["ack", "reject", "requeue", "requeue"], 0],
    }
