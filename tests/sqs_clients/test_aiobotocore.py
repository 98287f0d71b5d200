"""aiobotocore, on which aioboto3 is built, receives with long polls at the same time."""

from __future__ import annotations

from tests.sqs_clients.signed_server import BOOTSTRAP_KEY, PROGRAMS, PYTHON, SignedServer, run


def test_receivers_that_wait_get_each_message_once_although_one_is_cancelled(
    server: SignedServer,
) -> None:
    program = (PYTHON, PROGRAMS / "with_aiobotocore.py", f"{server.url}/metrics", BOOTSTRAP_KEY)
    shown = run(server.variables(), *program)
    assert shown == {"cancelled": True, "bodies": [str(place) for place in range(60)]}
