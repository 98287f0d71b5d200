"""Queues through SQS: created, found, changed, purged and deleted, and what their attributes do to messages."""

from typing import Any

import pytest

from app.domain.access import Right
from tests.sqs.sqs_server import SqsServer, arn, open_sqs_server, redrive_policy
from tests.virtual_clock import run_advancing

URL = "/000000000000/orders"


# ---- CreateQueue -----------------------------------------------------------------------------------------------------


async def test_a_queue_is_created_once(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="60")
    assert url == f"{sqs.http.base_url}/000000000000/orders"
    await sqs.send(url)
    assert await sqs.create(VisibilityTimeout="60") == url
    assert await sqs.create() == url
    assert (await sqs.attributes(url))["ApproximateNumberOfMessages"] == "1"


async def test_a_queue_with_other_attributes_exists(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="60")
    name, _ = await sqs.refusal("CreateQueue", QueueName="orders", Attributes={"VisibilityTimeout": "61"})
    assert name == "QueueNameExists"
    assert (await sqs.attributes(url))["VisibilityTimeout"] == "60"


async def test_tags_of_a_queue_that_exists_are_not_compared(sqs: SqsServer) -> None:
    url = await sqs.create()
    assert await sqs.call("CreateQueue", QueueName="orders", tags={"team": "a"}) == {"QueueUrl": url}
    assert await sqs.call("ListQueueTags", QueueUrl=url) == {}


@pytest.mark.parametrize("name", ["", "-orders", "a b", "a" * 81, "orders.fifo", "a/b"])
async def test_a_queue_is_not_created_with_a_name_that_it_cannot_have(sqs: SqsServer, name: str) -> None:
    assert (await sqs.refusal("CreateQueue", QueueName=name))[0] == "InvalidParameterValue"
    assert await sqs.call("ListQueues") == {}


@pytest.mark.parametrize("target", ["absent", "failures.fifo"])
async def test_a_redrive_policy_names_an_existing_queue_of_the_same_kind(sqs: SqsServer, target: str) -> None:
    await sqs.create("failures.fifo")
    url = await sqs.create("other")
    attributes = {"RedrivePolicy": redrive_policy(target)}
    for action, members in (("CreateQueue", {"QueueName": "orders"}), ("SetQueueAttributes", {"QueueUrl": url})):
        assert (await sqs.refusal(action, Attributes=attributes, **members))[0] == "InvalidParameterValue"
    assert "RedrivePolicy" not in await sqs.attributes(url)
    assert (await sqs.refusal("GetQueueUrl", QueueName="orders"))[0] == "QueueDoesNotExist"


async def test_a_queue_does_not_become_its_own_dead_letter_queue(sqs: SqsServer) -> None:
    url = await sqs.create("first")
    second = await sqs.create("second", RedrivePolicy=redrive_policy("first"))
    for queue, target in ((url, "first"), (url, "second")):
        attributes = {"RedrivePolicy": redrive_policy(target)}
        assert (await sqs.refusal("SetQueueAttributes", QueueUrl=queue, Attributes=attributes))[0] == (
            "InvalidParameterValue"
        )
    assert "RedrivePolicy" in await sqs.attributes(second)


async def test_a_redrive_policy_needs_the_right_to_send_to_its_target() -> None:
    async with open_sqs_server(needs_keys=True) as server:
        everything = await server.with_key(*Right)
        await everything.create("failures")
        manager = await server.with_key(Right.MANAGE)
        url = await manager.create()
        attributes = {"RedrivePolicy": redrive_policy("failures")}
        for action, members in (("CreateQueue", {"QueueName": "other"}), ("SetQueueAttributes", {"QueueUrl": url})):
            name, _ = await manager.refusal(action, Attributes=attributes, **members)
            assert name == "AccessDeniedException"
        both = await server.with_key(Right.MANAGE, Right.SEND)
        await both.call("SetQueueAttributes", QueueUrl=url, Attributes=attributes)


# ---- rights ----------------------------------------------------------------------------------------------------------


NEEDED: list[tuple[str, dict[str, Any], Right]] = [
    ("CreateQueue", {"QueueName": "orders"}, Right.MANAGE),
    ("ListQueues", {}, Right.BROWSE),
    ("SetQueueAttributes", {"QueueUrl": URL, "Attributes": {}}, Right.MANAGE),
    ("PurgeQueue", {"QueueUrl": URL}, Right.MANAGE),
    ("ListDeadLetterSourceQueues", {"QueueUrl": URL}, Right.BROWSE),
    ("TagQueue", {"QueueUrl": URL, "Tags": {}}, Right.MANAGE),
    ("UntagQueue", {"QueueUrl": URL, "TagKeys": []}, Right.MANAGE),
    ("ListQueueTags", {"QueueUrl": URL}, Right.BROWSE),
    ("SendMessage", {"QueueUrl": URL, "MessageBody": "1"}, Right.SEND),
    ("ReceiveMessage", {"QueueUrl": URL}, Right.LISTEN),
    ("DeleteQueue", {"QueueUrl": URL}, Right.MANAGE),
]


async def test_each_action_needs_its_right() -> None:
    """DeleteQueue is the last, because the others need the queue."""
    async with open_sqs_server(needs_keys=True) as server:
        await (await server.with_key(*Right)).create()
        holders = {right: await server.with_key(right) for right in Right}
        others = {right: await server.with_key(*(set(Right) - {right})) for right in Right}
        for action, members, right in NEEDED:
            assert (await others[right].refusal(action, **members))[0] == "AccessDeniedException", action
            await holders[right].call(action, **members)


async def test_any_right_finds_a_queue_and_its_attributes() -> None:
    async with open_sqs_server(needs_keys=True) as server:
        await (await server.with_key(*Right)).create()
        for right in Right:
            holder = await server.with_key(right)
            await holder.call("GetQueueUrl", QueueName="orders")
            await holder.call("GetQueueAttributes", QueueUrl=URL, AttributeNames=["All"])
        stranger = await server.with_key(*Right, patterns=("other",))
        for action, members in (("GetQueueUrl", {"QueueName": "orders"}), ("GetQueueAttributes", {"QueueUrl": URL})):
            assert (await stranger.refusal(action, **members))[0] == "AccessDeniedException"


async def test_the_url_of_a_queue_is_found_and_never_creates_it(sqs: SqsServer) -> None:
    for _ in range(2):
        assert (await sqs.refusal("GetQueueUrl", QueueName="orders"))[0] == "QueueDoesNotExist"
    url = await sqs.create()
    for members in ({}, {"QueueOwnerAWSAccountId": "123456789012"}):
        assert await sqs.call("GetQueueUrl", QueueName="orders", **members) == {"QueueUrl": url}


@pytest.mark.parametrize("action", ["AddPermission", "RemovePermission"])
async def test_permissions_belong_to_keys(sqs: SqsServer, action: str) -> None:
    url = await sqs.create()
    name, sentence = await sqs.refusal(action, QueueUrl=url, Label="a")
    assert name == "UnsupportedOperation"
    assert "peeklock key create" in sentence


# ---- attributes ------------------------------------------------------------------------------------------------------


async def test_receivers_keep_their_locks_when_attributes_change(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="60")
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "5"})
    await sqs.api.advance_time(50)
    assert await sqs.receive(url) == []
    await sqs.delete(url, message)


async def test_the_visibility_timeout_of_a_queue_holds_without_one_of_the_request(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout="5")
    await sqs.send(url)
    assert len(await sqs.receive(url)) == 1
    await sqs.api.advance_time(6)
    assert len(await sqs.receive(url, VisibilityTimeout=100)) == 1
    await sqs.api.advance_time(99)
    assert await sqs.receive(url) == []


async def test_the_delay_of_a_queue_holds_for_messages_without_their_own(sqs: SqsServer) -> None:
    url = await sqs.create(DelaySeconds="10")
    await sqs.send(url, "as the queue says")
    await sqs.send(url, "at once", DelaySeconds=0)
    await sqs.send(url, "soon", DelaySeconds=3)
    assert (await sqs.attributes(url))["ApproximateNumberOfMessagesDelayed"] == "2"
    received = []
    for seconds in (0, 3, 7):
        await sqs.api.advance_time(seconds)
        received += [message["Body"] for message in await sqs.receive(url, MaxNumberOfMessages=10)]
    assert received == ["at once", "soon", "as the queue says"]


async def test_the_wait_of_a_queue_holds_for_receives_without_their_own(sqs: SqsServer) -> None:
    url = await sqs.create(ReceiveMessageWaitTimeSeconds="5")
    assert await sqs.receive(url, WaitTimeSeconds=0) == []
    started_at = sqs.clock.monotonic()
    assert await run_advancing(sqs.clock, sqs.receive(url)) == []
    assert sqs.clock.monotonic() - started_at == pytest.approx(5, abs=0.2)


async def test_the_retention_of_a_queue_ends_messages(sqs: SqsServer) -> None:
    url = await sqs.create(MessageRetentionPeriod="60")
    await sqs.send(url)
    await sqs.api.advance_time(61)
    assert await sqs.receive(url) == []
    assert await sqs.api.counts() == {}


async def test_a_message_of_a_queue_without_attributes_lives_for_four_days(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    await sqs.api.advance_time(4 * 86_400 - 1)
    (message,) = await sqs.receive(url, VisibilityTimeout=0)
    assert message["Body"] == "hello"
    await sqs.api.advance_time(2)
    assert await sqs.receive(url) == []


# ---- dead letters ----------------------------------------------------------------------------------------------------


async def test_a_message_becomes_a_dead_letter_after_its_last_attempt(sqs: SqsServer) -> None:
    failures = await sqs.create("failures")
    url = await sqs.create(RedrivePolicy=redrive_policy("failures", 2))
    sent = await sqs.send(url, MessageAttributes={"kind": {"DataType": "String", "StringValue": "new"}})
    await sqs.fail(url)
    await sqs.forward_dead_letters()
    assert await sqs.receive(failures) == []
    (last,) = await sqs.receive(url, AttributeNames=["ApproximateReceiveCount"])
    assert last["Attributes"] == {"ApproximateReceiveCount": "2"}
    await sqs.api.advance_time(31)
    await sqs.forward_dead_letters()
    assert await sqs.receive(url) == []
    (dead,) = await sqs.receive(failures, AttributeNames=["All"], MessageAttributeNames=["kind"])
    assert (dead["MessageId"], dead["Body"]) == (sent["MessageId"], "hello")
    assert dead["Attributes"]["ApproximateReceiveCount"] == "1"
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == arn("orders")
    assert dead["MessageAttributes"] == {"kind": {"DataType": "String", "StringValue": "new"}}


async def test_a_dead_letter_is_kept_longer_than_its_queue_says(sqs: SqsServer) -> None:
    failures = await sqs.create("failures", MessageRetentionPeriod="60")
    url = await sqs.create(MessageRetentionPeriod="60", RedrivePolicy=redrive_policy("failures"))
    await sqs.send(url)
    await sqs.fail(url)
    await sqs.forward_dead_letters()
    await sqs.api.advance_time(100)
    assert len(await sqs.receive(failures)) == 1


# ---- PurgeQueue, DeleteQueue -----------------------------------------------------------------------------------------


async def test_a_purge_removes_what_clients_of_sqs_know_and_can_be_undone(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url, "dead")
    (dead,) = await sqs.api.receive()
    await sqs.api.settle(dead, "dead-letter", reason="bad")
    await sqs.send(url, "in flight")
    (held,) = await sqs.receive(url)
    await sqs.send(url, "delayed", DelaySeconds=60)
    await sqs.send(url, "available")
    since = (await sqs.api.request_json("GET", "/queues/orders"))["created_at"]
    await sqs.call("PurgeQueue", QueueUrl=url)
    assert await sqs.api.counts() == {"dead_lettered": 1}
    name, _ = await sqs.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])
    assert name == "ReceiptHandleIsInvalid"
    await sqs.call("PurgeQueue", QueueUrl=url)
    await sqs.api.request_json("POST", "/queues/orders/restore", {"since": since})
    bodies = [message["Body"] for message in await sqs.receive(url, MaxNumberOfMessages=10)]
    assert sorted(bodies) == ["available", "delayed", "in flight"]


async def test_a_purge_of_a_fifo_queue_removes_messages_behind_the_first_of_their_group(sqs: SqsServer) -> None:
    url = await sqs.create("orders.fifo")
    for number in range(3):
        await sqs.send(url, str(number), MessageGroupId="a", MessageDeduplicationId=str(number))
    await sqs.call("PurgeQueue", QueueUrl=url)
    assert await sqs.api.counts("orders.fifo") == {}


async def test_a_deleted_queue_can_be_made_again_at_once(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.call("DeleteQueue", QueueUrl=url)
    for action in ("DeleteQueue", "ReceiveMessage", "GetQueueAttributes", "PurgeQueue"):
        assert (await sqs.refusal(action, QueueUrl=url))[0] == "QueueDoesNotExist"
    assert await sqs.create(VisibilityTimeout="60") == url
    assert await sqs.receive(url) == []
    handle = message["ReceiptHandle"]
    assert (await sqs.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=handle))[0] == "ReceiptHandleIsInvalid"
