"""Requests of many megabytes: correct ones are accepted, and hostile ones take memory in proportion to their bytes."""

from app.http.list_limits import UNCHECKED_COMMAS
from tests.sqs.sqs_server import SqsServer

TABLE = "1,2\n" * UNCHECKED_COMMAS
ATTRIBUTES = {"format": {"DataType": "String", "StringValue": "csv"}}


async def test_a_body_with_many_commas_can_have_attributes(sqs: SqsServer) -> None:
    """Objects with a limit of members are measured ahead in such a request."""
    url = await sqs.create()
    await sqs.send(url, TABLE, MessageAttributes=ATTRIBUTES)
    (message,) = await sqs.receive(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == ATTRIBUTES
