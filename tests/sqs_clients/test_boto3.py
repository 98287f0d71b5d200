"""boto3 calls the actions of a server with a key, and finds the answers and exceptions of SQS."""

from __future__ import annotations

from typing import Any

from tests.sqs_clients.signed_server import PROGRAMS, PYTHON, REGION, SignedServer, create_key, run

TARGET = f"arn:aws:sqs:{REGION}:000000000000:queues-1"


def boto3(server: SignedServer, function: str, *arguments: str) -> Any:
    """Return what a function of the program prints."""
    return run(server.variables(), PYTHON, PROGRAMS / "with_boto3.py", function, *arguments)


def test_queues_are_created_found_changed_tagged_purged_and_deleted(server: SignedServer) -> None:
    assert boto3(server, "queues") == {
        "same": True,
        "found": True,
        "other": ["QueueNameExists", "QueueAlreadyExists"],
        "attributes": {
            "VisibilityTimeout": "60",
            "DelaySeconds": "5",
            "QueueArn": f"arn:aws:sqs:{REGION}:000000000000:queues",
        },
        "policy": {"deadLetterTargetArn": TARGET, "maxReceiveCount": 3},
        "tags": {"stage": "test"},
        "listed": ["queues", "queues-1"],
        "sources": True,
        "left": {"ApproximateNumberOfMessagesDelayed": "0"},
        "permission": ["UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation"],
        "deleted": ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"],
    }


def test_a_message_keeps_its_body_and_its_attributes(server: SignedServer) -> None:
    assert boto3(server, "messages") == {
        "body": True,
        "attributes": True,
        "digest": True,
        "digests": True,
        "id": True,
        "count": "1",
        "trace": True,
    }


def test_a_visibility_timeout_of_zero_returns_the_message_and_ends_its_handle(server: SignedServer) -> None:
    invalid = ["ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"]
    assert boto3(server, "visibility") == {
        "body": "again",
        "count": {"ApproximateReceiveCount": "2"},
        "stale": [invalid, invalid],
    }


def test_a_batch_reports_each_entry(server: SignedServer) -> None:
    assert boto3(server, "batches") == {
        "sent": [f"m{place}" for place in range(10)],
        "received": [str(place) for place in range(10)],
        "changed": ["0", "1"],
        "deleted": 9,
        "failed": [["invented", "ReceiptHandleIsInvalid", True]] * 2,
        "empty": ["EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest"],
        "twice": ["BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"],
    }


def test_a_fifo_queue_keeps_the_order_of_groups_and_drops_duplicates(server: SignedServer) -> None:
    assert boto3(server, "fifo") == {"same": True, "order": [["a", "1"], ["a", "2"], ["b", "3"]]}


def test_a_dead_letter_is_moved_back_by_a_task(server: SignedServer) -> None:
    assert boto3(server, "moves") == {
        "dead": "failed",
        "moved": "failed",
        "task": ["COMPLETED", 1],
        "ended": ["ResourceNotFoundException", "ResourceNotFoundException"],
    }


def test_a_receive_that_waits_is_answered_by_a_send(server: SignedServer) -> None:
    assert boto3(server, "waiting") == "woken"


def test_a_presigned_request_receives_until_it_is_altered(server: SignedServer) -> None:
    status, found, altered_status, altered = boto3(server, "presigned")
    assert (status, found) == (200, True)
    assert altered_status == 403
    assert "<Code>SignatureDoesNotMatch</Code>" in altered


def test_refusals_have_the_exceptions_of_sqs(server: SignedServer) -> None:
    sender = create_key(server.url, ["send"], "refusals-*")
    assert boto3(server, "refusals", sender.id, sender.secret) == {
        "no queue": ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"],
        "no attribute": ["InvalidAttributeName", "InvalidAttributeName"],
        "wrong secret": ["ClientError", "SignatureDoesNotMatch"],
        "unknown key": ["ClientError", "InvalidClientTokenId"],
        "no right": ["ClientError", "AccessDenied"],
        "its right": None,
    }
