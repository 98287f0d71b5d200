"""Requests of many megabytes: correct ones are accepted, and hostile ones take memory in proportion to their bytes."""

import tracemalloc

import pytest

from app.http.list_limits import UNCHECKED_COMMAS
from tests.memory_bound import MIB, REQUESTS
from tests.sqs.sqs_server import BASE_URL, SqsServer

TABLE = "1,2\n" * UNCHECKED_COMMAS
SIZE = MIB
ATTRIBUTES = {"format": {"DataType": "String", "StringValue": "csv"}}
IN_ENTRY = ('{"Entries":[{"Id":"a","MessageBody":"a","MessageAttributes":{', "}}]}")
IN_LIST = (IN_ENTRY[0] + '"a":{"DataType":"String","StringListValues":[', "]}" + IN_ENTRY[1])


async def test_a_body_with_many_commas_can_have_attributes(sqs: SqsServer) -> None:
    """Objects with a limit of members are measured ahead in such a request."""
    url = await sqs.create()
    await sqs.send(url, TABLE, MessageAttributes=ATTRIBUTES)
    (message,) = await sqs.receive(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == ATTRIBUTES


@pytest.mark.parametrize(
    ("action", "before", "entry", "after"),
    [
        ("SendMessageBatch", '{"Entries":[', "1", "]}"),
        ("DeleteMessageBatch", '{"Entries":[', "1", "]}"),
        ("ChangeMessageVisibilityBatch", '{"Entries":[', "1", "]}"),
        ("SendMessageBatch", IN_LIST[0], '"a"', IN_LIST[1]),
        ("SendMessageBatch", IN_ENTRY[0], '"a":{"DataType":""}', IN_ENTRY[1]),
        ("SendMessage", '{"MessageBody":"a","MessageAttributes":{', '"a":{"DataType":""}', "}}"),
        ("ReceiveMessage", '{"AttributeNames":[', '"a"', "]}"),
        ("UntagQueue", '{"TagKeys":[', '"a"', "]}"),
    ],
)
async def test_the_refusal_of_millions_of_entries_takes_a_bounded_multiple_of_the_body(
    sqs: SqsServer, action: str, before: str, entry: str, after: str
) -> None:
    url = await sqs.create()
    body = f"{before}{','.join([entry] * (SIZE // (len(entry) + 1)))}{after}"
    headers = {"x-amz-target": f"AmazonSQS.{action}"}
    path = url.removeprefix(BASE_URL)
    await sqs.http.post(path, content="{}", headers=headers)
    tracemalloc.start()
    try:
        await sqs.http.post(path, content=body, headers=headers)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / len(body) < REQUESTS


@pytest.mark.parametrize("number", [11, 1000])
async def test_more_entries_than_a_batch_has_are_refused_as_such(sqs: SqsServer, number: int) -> None:
    url = await sqs.create()
    name, _ = await sqs.refusal("DeleteMessageBatch", QueueUrl=url, Entries=[{}] * number)
    assert name == "TooManyEntriesInBatchRequest"


async def test_a_receive_that_waits_keeps_no_long_names_in_memory(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.receive(url, MessageAttributeNames=["a" * 1024])
    name, _ = await sqs.refusal("ReceiveMessage", QueueUrl=url, MessageAttributeNames=["a" * 1025])
    assert name == "InvalidParameterValue"
