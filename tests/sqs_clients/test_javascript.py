"""The AWS SDK for JavaScript sends, receives, settles and names refusals, with a key of the server."""

from __future__ import annotations

from pathlib import Path

from tests.sqs_clients.signed_server import SignedServer, run_javascript

ANSWERS = {
    "body": True,
    "id": True,
    "attributes": True,
    "count": {"ApproximateReceiveCount": "2"},
    "stale": ["ReceiptHandleIsInvalid", True, "client", 400],
    "sent": ["1", "2", "3"],
    "failed": [],
    "deleted": ["1", "2", "3"],
    "undeleted": [["invented", "ReceiptHandleIsInvalid"]],
    "empty": True,
    "counts": {"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0"},
    "no queue": ["QueueDoesNotExist", True, "client", 400],
    "exists": ["QueueNameExists", True, "client", 400],
    "no right": ["SignatureDoesNotMatch", True, "client", 403],
}


def test_messages_are_sent_received_and_deleted_and_refusals_named(server: SignedServer, tmp_path: Path) -> None:
    answers = run_javascript(server.variables(), tmp_path, "javascript")
    assert answers == {**ANSWERS, "url": f"{server.url}/000000000000/javascript"}
