"""Messages through SQS: sent, received, deleted, hidden for longer or shorter, and refused with what has happened."""

from tests.sqs.sqs_server import SqsServer


async def test_a_message_is_received_once_and_deleted(sqs: SqsServer) -> None:
    url = await sqs.create()
    sent = await sqs.send(url, "hello ✓")
    (message,) = await sqs.receive(url)
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "hello ✓")
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert await sqs.receive(url) == []
    await sqs.delete(url, message)
    assert (await sqs.attributes(url))["ApproximateNumberOfMessagesNotVisible"] == "0"


async def test_a_repeated_deletion_succeeds(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.delete(url, message)
    await sqs.delete(url, message)


async def test_a_stale_receipt_handle_deletes_nothing(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="30")
    await sqs.send(url)
    (stale,) = await sqs.receive(url)
    await sqs.api.advance_time(31)
    (fresh,) = await sqs.receive(url)
    name, sentence = await sqs.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=stale["ReceiptHandle"])
    assert name == "ReceiptHandleIsInvalid"
    assert "It was received again since." in sentence
    metrics = (await sqs.http.get("/metrics")).text
    assert 'peeklock_request_seconds_count{operation="sqs_delete_message",outcome="lock-lost"} 1.0' in metrics
    await sqs.delete(url, fresh)


async def test_a_lock_that_has_ended_is_reported_even_if_no_receiver_has_the_message(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="30")
    await sqs.send(url)
    (stale,) = await sqs.receive(url)
    await sqs.api.advance_time(31)
    for action, members in (("DeleteMessage", {}), ("ChangeMessageVisibility", {"VisibilityTimeout": 10})):
        name, sentence = await sqs.refusal(action, QueueUrl=url, ReceiptHandle=stale["ReceiptHandle"], **members)
        assert name == "ReceiptHandleIsInvalid"
        assert "It was not received again since." in sentence


async def test_a_shorter_visibility_timeout_brings_the_message_back_earlier(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="600")
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    handle = message["ReceiptHandle"]
    await sqs.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=5)
    await sqs.api.advance_time(4)
    assert await sqs.receive(url) == []
    await sqs.api.advance_time(2)
    assert len(await sqs.receive(url)) == 1


async def test_a_visibility_timeout_of_zero_counts_as_a_failure_and_ends_the_lock_at_once(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = await sqs.receive(url, AttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}


async def test_both_interfaces_work_on_one_queue(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url, "from SQS")
    await sqs.api.send("orders", body={"from": "the API"})
    (native,) = await sqs.api.receive("orders")
    (other,) = await sqs.receive(url)
    assert native["body"] == "from SQS"
    assert other["Body"] == '{"from":"the API"}'
    await sqs.api.settle(native, "complete")
    await sqs.delete(url, other)
    assert await sqs.api.counts() == {}


async def test_a_queue_is_not_created_by_a_send(sqs: SqsServer) -> None:
    url = f"{sqs.http.base_url}/000000000000/unknown"
    assert (await sqs.refusal("SendMessage", QueueUrl=url, MessageBody="hello"))[0] == "QueueDoesNotExist"


async def test_an_attempt_at_a_queue_that_was_created_again_receives_its_messages(sqs: SqsServer) -> None:
    bodies: list[str] = []
    for body in ("first", "second"):
        url = await sqs.create("orders.fifo")
        await sqs.send(url, body, MessageGroupId="a", MessageDeduplicationId=body)
        bodies += [message["Body"] for message in await sqs.receive(url, ReceiveRequestAttemptId="attempt")]
        await sqs.call("DeleteQueue", QueueUrl=url)
    assert bodies == ["first", "second"]
