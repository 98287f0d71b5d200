"""Batches through SQS: each entry has its own result, and a batch whose results could not be told apart is refused."""

from typing import Any

import pytest

from tests.sqs.sqs_server import SqsServer

INVALID_HANDLE = "ReceiptHandleIsInvalid"
ACTIONS = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")


def entries(action: str, *ids: str) -> list[dict[str, Any]]:
    """Entries of a batch with these ids."""
    members: dict[str, dict[str, Any]] = {
        "SendMessageBatch": {"MessageBody": "hello"},
        "DeleteMessageBatch": {"ReceiptHandle": "x"},
        "ChangeMessageVisibilityBatch": {"ReceiptHandle": "x", "VisibilityTimeout": 1},
    }
    return [{"Id": entry_id, **members[action]} for entry_id in ids]


def ids(results: list[Any]) -> list[str]:
    """The ids of results."""
    return [result["Id"] for result in results]


async def locked(sqs: SqsServer, url: str, count: int) -> list[str]:
    """Send messages, and return the receipt handles of their receive."""
    for number in range(count):
        await sqs.send(url, str(number))
    return [message["ReceiptHandle"] for message in await sqs.receive(url, MaxNumberOfMessages=count)]


# ---- the form of a batch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry_ids", "name"),
    [
        ([], "EmptyBatchRequest"),
        ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct"),
        (["a", ""], "InvalidBatchEntryId"),
        (["a", "a.b"], "InvalidBatchEntryId"),
        (["a" * 81], "InvalidBatchEntryId"),
        (["ä"], "InvalidBatchEntryId"),
        (["a\n"], "InvalidBatchEntryId"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_batch_whose_results_cannot_be_told_apart_is_refused(
    sqs: SqsServer, entry_ids: list[str], name: str
) -> None:
    url = await sqs.create()
    for action in ACTIONS:
        refused, _ = await sqs.refusal(action, QueueUrl=url, Entries=entries(action, *entry_ids))
        assert refused == name, action
    assert await sqs.receive(url) == []


async def test_a_batch_without_the_list_of_entries_is_empty(sqs: SqsServer) -> None:
    url = await sqs.create()
    for action in ACTIONS:
        assert (await sqs.refusal(action, QueueUrl=url))[0] == "EmptyBatchRequest"


async def test_a_batch_has_ten_entries_with_ids_of_80_letters(sqs: SqsServer) -> None:
    url = await sqs.create()
    longest = [f"{number}_-{'a' * 77}" for number in range(10)]
    answer = await sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries("SendMessageBatch", *longest))
    assert (ids(answer["Successful"]), answer["Failed"]) == (longest, [])
    assert len(await sqs.receive(url, MaxNumberOfMessages=10)) == 10


async def test_a_batch_to_an_unknown_queue_is_refused_as_a_whole(sqs: SqsServer) -> None:
    for action in ACTIONS:
        name, _ = await sqs.refusal(action, QueueUrl="/0/absent", Entries=entries(action, "a"))
        assert name == "QueueDoesNotExist"


# ---- SendMessageBatch ------------------------------------------------------------------------------------------------


async def test_each_message_of_a_batch_has_its_own_result(sqs: SqsServer) -> None:
    url = await sqs.create(MaximumMessageSize="1024")
    answer = await sqs.call(
        "SendMessageBatch",
        QueueUrl=url,
        Entries=[
            {"Id": "d", "MessageBody": "first", "DelaySeconds": 0},
            {"Id": "large", "MessageBody": "x" * 1025},
            {"Id": "unknown", "MessageBody": "x", "Delay": 1},
            {"Id": "missing"},
            {"Id": "wrong", "MessageBody": 7},
            {"Id": "control", "MessageBody": "\x00"},
            {"Id": "late", "MessageBody": "x", "DelaySeconds": 604_801},
            {"Id": "a", "MessageBody": "second"},
        ],
    )
    assert ids(answer["Successful"]) == ["d", "a"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]] == [
        ("large", "InvalidParameterValue", True),
        ("unknown", "InvalidParameterValue", True),
        ("missing", "MissingParameter", True),
        ("wrong", "InvalidParameterValue", True),
        ("control", "InvalidMessageContents", True),
        ("late", "InvalidParameterValue", True),
    ]
    received = await sqs.receive(url, MaxNumberOfMessages=10)
    assert [(one["MessageId"], one["Body"]) for one in received] == [
        (one["MessageId"], body) for one, body in zip(answer["Successful"], ("first", "second"), strict=True)
    ]


async def test_a_batch_has_a_mebibyte_of_bodies_and_attributes(sqs: SqsServer) -> None:
    url = await sqs.create()
    half = "x" * (1 << 19)
    halves: list[dict[str, Any]] = [{"Id": "a", "MessageBody": half}, {"Id": "b", "MessageBody": half}]
    assert len((await sqs.call("SendMessageBatch", QueueUrl=url, Entries=halves))["Successful"]) == 2
    longer = [*halves, {"Id": "c", "MessageBody": "x"}]
    assert (await sqs.refusal("SendMessageBatch", QueueUrl=url, Entries=longer))[0] == "BatchRequestTooLong"
    halves[1]["MessageAttributes"] = {"a": {"DataType": "String", "StringValue": "b"}}
    assert (await sqs.refusal("SendMessageBatch", QueueUrl=url, Entries=halves))[0] == "BatchRequestTooLong"
    assert (await sqs.attributes(url))["ApproximateNumberOfMessages"] == "2"


async def test_a_full_queue_fails_each_message_without_a_fault_of_the_server(sqs: SqsServer) -> None:
    await sqs.api.request_json("PUT", "/queues/orders", {"max_messages": 1})
    await sqs.send("/0/orders")
    batch = entries("SendMessageBatch", "a", "b")
    answer = await sqs.call("SendMessageBatch", QueueUrl="/0/orders", Entries=batch)
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("a", "RequestThrottled"),
        ("b", "RequestThrottled"),
    ]


async def test_a_batch_of_a_fifo_queue_keeps_its_order_and_answers_duplicates(sqs: SqsServer) -> None:
    url = await sqs.create("orders.fifo")
    batch = [
        {"Id": str(n), "MessageBody": body, "MessageGroupId": "a", "MessageDeduplicationId": body}
        for n, body in enumerate(("x", "y", "x"))
    ]
    sent = (await sqs.call("SendMessageBatch", QueueUrl=url, Entries=batch))["Successful"]
    assert sent[0]["MessageId"] == sent[2]["MessageId"] != sent[1]["MessageId"]
    assert sent[0]["SequenceNumber"] < sent[1]["SequenceNumber"]
    for body in ("x", "y"):
        (message,) = await sqs.receive(url, MaxNumberOfMessages=10)
        assert message["Body"] == body
        await sqs.delete(url, message)


# ---- DeleteMessageBatch, ChangeMessageVisibilityBatch ----------------------------------------------------------------


async def test_each_deletion_of_a_batch_has_its_own_result(sqs: SqsServer) -> None:
    url = await sqs.create()
    first, second = await locked(sqs, url, 2)
    answer = await sqs.call(
        "DeleteMessageBatch",
        QueueUrl=url,
        Entries=[
            {"Id": "z", "ReceiptHandle": second},
            {"Id": "malformed", "ReceiptHandle": "x"},
            {"Id": "missing"},
            {"Id": "a", "ReceiptHandle": first},
        ],
    )
    assert ids(answer["Successful"]) == ["z", "a"]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("malformed", INVALID_HANDLE),
        ("missing", "MissingParameter"),
    ]
    assert await sqs.api.counts() == {}


async def test_a_handle_that_a_batch_has_twice_deletes_its_message_once(sqs: SqsServer) -> None:
    """Both succeed, as in SQS, and so does a repeat of the batch."""
    url = await sqs.create()
    (handle,) = await locked(sqs, url, 1)
    batch = [{"Id": one, "ReceiptHandle": handle} for one in ("a", "b")]
    for _ in range(2):
        answer = await sqs.call("DeleteMessageBatch", QueueUrl=url, Entries=batch)
        assert (ids(answer["Successful"]), answer["Failed"]) == (["a", "b"], [])
    assert await sqs.api.counts() == {}


async def test_a_stale_handle_that_a_batch_has_twice_fails_twice(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="5")
    (handle,) = await locked(sqs, url, 1)
    await sqs.api.advance_time(6)
    batch = [{"Id": one, "ReceiptHandle": handle} for one in ("a", "b")]
    answer = await sqs.call("DeleteMessageBatch", QueueUrl=url, Entries=batch)
    assert answer["Successful"] == []
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [("a", INVALID_HANDLE), ("b", INVALID_HANDLE)]
    assert len(await sqs.receive(url)) == 1


async def test_each_visibility_of_a_batch_changes_alone(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="100")
    handles = await locked(sqs, url, 3)
    answer = await sqs.call(
        "ChangeMessageVisibilityBatch",
        QueueUrl=url,
        Entries=[
            {"Id": "at-once", "ReceiptHandle": handles[2], "VisibilityTimeout": 0},
            {"Id": "malformed", "ReceiptHandle": "x", "VisibilityTimeout": 1},
            {"Id": "soon", "ReceiptHandle": handles[1], "VisibilityTimeout": 5},
            {"Id": "long", "ReceiptHandle": handles[0], "VisibilityTimeout": 43_201},
            {"Id": "missing", "ReceiptHandle": handles[0]},
        ],
    )
    assert ids(answer["Successful"]) == ["at-once", "soon"]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("malformed", INVALID_HANDLE),
        ("long", "InvalidParameterValue"),
        ("missing", "MissingParameter"),
    ]
    received = []
    for seconds in (0, 6):
        await sqs.api.advance_time(seconds)
        received += [message["Body"] for message in await sqs.receive(url, MaxNumberOfMessages=10)]
    assert received == ["2", "1"]


async def test_a_handle_has_one_new_visibility_in_a_batch(sqs: SqsServer) -> None:
    url = await sqs.create()
    (handle,) = await locked(sqs, url, 1)
    batch = [{"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": n} for n in (5, 7)]
    batch.append({"Id": "again", "ReceiptHandle": handle, "VisibilityTimeout": 5})
    answer = await sqs.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=batch)
    assert ids(answer["Successful"]) == ["5", "again"]
    (failure,) = answer["Failed"]
    assert (failure["Id"], failure["Code"]) == ("7", "InvalidParameterValue")
    assert "ReceiptHandle" in failure["Message"]
    await sqs.api.advance_time(6)
    assert len(await sqs.receive(url)) == 1


async def test_a_message_that_a_batch_makes_visible_twice_is_visible(sqs: SqsServer) -> None:
    url = await sqs.create()
    (handle,) = await locked(sqs, url, 1)
    batch = [{"Id": one, "ReceiptHandle": handle, "VisibilityTimeout": 0} for one in ("a", "b")]
    answer = await sqs.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=batch)
    assert (ids(answer["Successful"]), answer["Failed"]) == (["a", "b"], [])
    assert len(await sqs.receive(url)) == 1


async def test_batches_in_the_query_protocol_number_their_entries(sqs: SqsServer) -> None:
    url = await sqs.create()
    parameters = {"QueueUrl": url}
    for number in (1, 2):
        entry = f"SendMessageBatchRequestEntry.{number}"
        parameters |= {f"{entry}.Id": str(number), f"{entry}.MessageBody": "x" if number == 1 else "\x00"}
    text = (await sqs.form("SendMessageBatch", parameters)).text
    assert text.count("<SendMessageBatchResultEntry>") == text.count("<BatchResultErrorEntry>") == 1
    assert "<Id>2</Id><Code>InvalidMessageContents</Code><SenderFault>true</SenderFault>" in text
