"""Batches in which two entries have the same receipt handle."""

from typing import Any

from tests.sqs.sqs_server import SqsServer


async def received_handle(sqs: SqsServer, url: str) -> str:
    """Send and receive a message, and return its receipt handle."""
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    handle: str = message["ReceiptHandle"]
    return handle


def entries(handle: str, *members: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one entry for each of these members, all with this receipt handle."""
    return [{"Id": str(number), "ReceiptHandle": handle, **one} for number, one in enumerate(members)]


async def test_a_handle_that_is_deleted_twice_in_one_batch_is_deleted(sqs: SqsServer) -> None:
    """A repeated deletion succeeds, so it also does in the same batch."""
    url = await sqs.create()
    handle = await received_handle(sqs, url)
    batch = await sqs.call("DeleteMessageBatch", QueueUrl=url, Entries=entries(handle, {}, {}))
    assert batch == {"Successful": [{"Id": "0"}, {"Id": "1"}], "Failed": []}


async def test_both_entries_of_a_stale_handle_fail(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="30")
    handle = await received_handle(sqs, url)
    await sqs.api.advance_time(31)
    batch = await sqs.call("DeleteMessageBatch", QueueUrl=url, Entries=entries(handle, {}, {}))
    assert [failure["Code"] for failure in batch["Failed"]] == ["ReceiptHandleIsInvalid"] * 2


async def test_one_batch_asks_the_same_of_a_handle_or_is_refused_in_words_of_sqs(sqs: SqsServer) -> None:
    url = await sqs.create()
    changes = entries(await received_handle(sqs, url), *({"VisibilityTimeout": seconds} for seconds in (9, 9, 8)))
    batch = await sqs.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    assert batch["Successful"] == [{"Id": "0"}, {"Id": "1"}]
    (failure,) = batch["Failed"]
    assert (failure["Id"], failure["Code"]) == ("2", "InvalidParameterValue")
    assert "ReceiptHandle" in failure["Message"]


async def test_a_message_that_is_made_visible_twice_in_one_batch_is_visible(sqs: SqsServer) -> None:
    url = await sqs.create()
    changes = entries(await received_handle(sqs, url), *[{"VisibilityTimeout": 0}] * 2)
    batch = await sqs.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    assert batch == {"Successful": [{"Id": "0"}, {"Id": "1"}], "Failed": []}
    assert len(await sqs.receive(url)) == 1
