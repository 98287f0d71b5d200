"""docs/sqs.md: each row of its table of differences is true, and its other tables name what the code has."""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from app.sqs.received_message import SYSTEM_ATTRIBUTES
from app.sqs.table import ACTIONS
from app.sqs.unsupported_attributes import UNSUPPORTED_ATTRIBUTES
from tests.api.api_server import MAX_WAIT
from tests.guides import table
from tests.sqs.sqs_server import SqsServer, arn, redrive_policy
from tests.virtual_clock import run_advancing

PAGE = (Path(__file__).parents[2] / "docs/sqs.md").read_text("utf-8")
TWELVE_HOURS = 43_200

Test: TypeAlias = Callable[[SqsServer], Awaitable[None]]
SHOWN: dict[str, list[str]] = {}
"""The rows of the table, each with the names of the tests that show it."""


def shows(*rows: str) -> Callable[[Test], Test]:
    """Say which rows of the table a test shows."""

    def register(test: Test) -> Test:
        for row in rows:
            SHOWN.setdefault(row, []).append(test.__name__)
        return test

    return register


async def count(sqs: SqsServer, url: str) -> str:
    """Return the ApproximateReceiveCount of the next message."""
    (message,) = await sqs.receive(url, AttributeNames=["All"])
    received: str = message["Attributes"]["ApproximateReceiveCount"]
    return received


def test_each_row_of_the_table_has_a_test() -> None:
    assert {row[0] for row in table(PAGE, "What is different", "about")} == SHOWN.keys()


@shows("a stale receipt handle")
async def test_a_stale_handle_is_refused_with_its_history(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.api.advance_time(31)
    name, sentence = await sqs.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert name == "ReceiptHandleIsInvalid"
    assert "held the message until 20" in sentence
    assert "not received again" in sentence
    (again,) = await sqs.receive(url)
    _, sentence = await sqs.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert "It was received again" in sentence
    await sqs.delete(url, again)


@shows("a repeated delete")
async def test_a_repeated_delete_succeeds(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.delete(url, message)
    await sqs.delete(url, message)


@shows("`ChangeMessageVisibility`")
async def test_each_change_of_the_visibility_counts_from_its_call(sqs: SqsServer) -> None:
    url = await sqs.create(VisibilityTimeout=str(TWELVE_HOURS))
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": TWELVE_HOURS}
    for _ in range(2):
        await sqs.api.advance_time(TWELVE_HOURS - 1)
        await sqs.call("ChangeMessageVisibility", **change)
    await sqs.delete(url, message)
    assert (await sqs.refusal("ChangeMessageVisibility", **change | {"VisibilityTimeout": TWELVE_HOURS + 1}))[0]


@shows("a visibility timeout of 0 in a receive")
async def test_a_receive_locks_for_at_least_a_second(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url, VisibilityTimeout=0)
    assert await sqs.receive(url) == []
    await sqs.api.advance_time(1.1)
    (again,) = await sqs.receive(url)
    assert again["MessageId"] == message["MessageId"]


@shows("`ApproximateReceiveCount`", "dead letters")
async def test_the_last_attempt_has_the_count_of_the_policy_and_needs_no_receive(sqs: SqsServer) -> None:
    failures = await sqs.create("failures")
    policy = redrive_policy("failures", 2)
    url = await sqs.create("orders", RedrivePolicy=policy)
    await sqs.send(url)
    await sqs.fail(url)
    assert await count(sqs, url) == "2"
    await sqs.api.advance_time(31)
    await sqs.forward_dead_letters()
    assert (await sqs.attributes(failures))["ApproximateNumberOfMessages"] == "1"


@shows("retention of dead letters")
async def test_dead_letters_stay(sqs: SqsServer) -> None:
    failures = await sqs.create("failures", MessageRetentionPeriod="60")
    policy = redrive_policy("failures", 1)
    url = await sqs.create("orders", RedrivePolicy=policy, MessageRetentionPeriod="60")
    await sqs.send(url)
    await sqs.fail(url)
    await sqs.forward_dead_letters()
    await sqs.api.advance_time(1_000_000)
    (message,) = await sqs.receive(failures)
    assert message["Body"] == "hello"


@shows("a move task")
async def test_a_moved_message_keeps_its_id_and_its_time(sqs: SqsServer) -> None:
    failures = await sqs.create("failures")
    url = await sqs.create("orders", RedrivePolicy=redrive_policy("failures", 1))
    sent = await sqs.send(url)
    (first,) = await sqs.receive(url, AttributeNames=["SentTimestamp"])
    await sqs.api.advance_time(31)
    await sqs.forward_dead_letters()
    await sqs.call("StartMessageMoveTask", SourceArn=arn("failures"))
    await sqs.run_moves()
    assert await sqs.receive(failures) == []
    (again,) = await sqs.receive(url, AttributeNames=["SentTimestamp", "ApproximateReceiveCount"])
    assert again["MessageId"] == sent["MessageId"]
    assert again["Attributes"] == {**first["Attributes"], "ApproximateReceiveCount": "1"}


@shows("a move task without a destination")
async def test_a_message_that_no_queue_has_forwarded_stays(sqs: SqsServer) -> None:
    failures = await sqs.create("failures")
    await sqs.create("orders", RedrivePolicy=redrive_policy("failures"))
    sent = await sqs.send(failures)
    await sqs.call("StartMessageMoveTask", SourceArn=arn("failures"))
    await sqs.run_moves()
    (task,) = (await sqs.call("ListMessageMoveTasks", SourceArn=arn("failures")))["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 0)
    assert [message["MessageId"] for message in await sqs.receive(failures)] == [sent["MessageId"]]


@shows("the source of a move task")
async def test_dead_letters_of_a_queue_of_its_own_can_be_moved(sqs: SqsServer) -> None:
    url, other = await sqs.create(), await sqs.create("other")
    await sqs.send(url)
    (message,) = await sqs.api.receive()
    await sqs.api.settle(message, "dead-letter")
    await sqs.call("StartMessageMoveTask", SourceArn=arn("orders"), DestinationArn=arn("other"))
    await sqs.run_moves()
    assert len(await sqs.receive(other)) == 1


@shows("a FIFO group")
async def test_a_receive_gives_one_message_of_each_group(sqs: SqsServer) -> None:
    url = await sqs.create("orders.fifo", ContentBasedDeduplication="true")
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        await sqs.send(url, body, MessageGroupId=group)
    assert [one["Body"] for one in await sqs.receive(url, MaxNumberOfMessages=10)] == ["a1", "b1"]


@shows("`DelaySeconds` of a message")
async def test_a_message_may_wait_for_a_week(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url, DelaySeconds=604_800)
    assert (await sqs.refusal("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=604_801))[0]
    assert (await sqs.refusal("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "901"}))[0]


@shows("messages in flight", "counts of messages")
async def test_every_message_can_be_in_flight_and_is_counted(sqs: SqsServer) -> None:
    url = await sqs.create()
    for _ in range(30):
        entries = [{"Id": str(number), "MessageBody": "x"} for number in range(10)]
        await sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)
        await sqs.receive(url, MaxNumberOfMessages=10)
    assert (await sqs.attributes(url))["ApproximateNumberOfMessagesNotVisible"] == "300"


@shows("long polls")
async def test_a_long_poll_ends_at_the_cap_of_the_server(sqs: SqsServer) -> None:
    for cap, waited in ((MAX_WAIT, 20), (5, 5)):
        sqs.api.context = replace(sqs.api.context, long_poll_cap_seconds=cap)
        capped = SqsServer(sqs.api)
        url, begun = await capped.create(), sqs.clock.monotonic()
        assert await run_advancing(sqs.clock, capped.receive(url, WaitTimeSeconds=20)) == []
        assert waited <= sqs.clock.monotonic() - begun < waited + 1


@shows("`PurgeQueue`")
async def test_a_purge_is_done_when_answered_and_can_be_undone(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    for _ in range(2):
        await sqs.call("PurgeQueue", QueueUrl=url)
        assert await sqs.receive(url) == []
    await sqs.api.request_json("POST", "/queues/orders/restore", {})
    assert len(await sqs.receive(url)) == 1


@shows("`DeleteQueue`")
async def test_a_deleted_queue_can_be_created_again_at_once(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    await sqs.call("DeleteQueue", QueueUrl=url)
    assert await sqs.create() == url
    assert await sqs.receive(url) == []


@shows("`SetQueueAttributes`")
async def test_attributes_change_at_once_and_end_no_lock(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "60"})
    assert (await sqs.attributes(url))["VisibilityTimeout"] == "60"
    await sqs.delete(url, message)


@shows("access", "encryption")
async def test_what_the_server_does_not_do_is_refused(sqs: SqsServer) -> None:
    url = await sqs.create()
    permission = {"QueueUrl": url, "Label": "x", "AWSAccountIds": ["000000000000"], "Actions": ["*"]}
    assert (await sqs.refusal("AddPermission", **permission))[0] == "UnsupportedOperation"
    for attribute in ("Policy", "KmsMasterKeyId", "SqsManagedSseEnabled"):
        given = {"QueueUrl": url, "Attributes": {attribute: "true"}}
        assert (await sqs.refusal("SetQueueAttributes", **given))[0] == "InvalidAttributeValue"
    await sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"SqsManagedSseEnabled": "false"})


@shows("names of new queues")
async def test_a_new_name_begins_with_a_letter_or_digit_and_others_can_be_used(sqs: SqsServer) -> None:
    for name in ("-orders", "orders_", "shop.orders"):
        assert (await sqs.refusal("CreateQueue", QueueName=name))[0] == "InvalidParameterValue"
    await sqs.api.send("shop.orders", body="x")
    url = (await sqs.call("GetQueueUrl", QueueName="shop.orders"))["QueueUrl"]
    assert len(await sqs.receive(url)) == 1


@shows("account and region")
async def test_the_account_is_zeros_and_the_region_that_of_the_signature(sqs: SqsServer) -> None:
    url = await sqs.create()
    assert url.endswith("/000000000000/orders")
    signed = {"authorization": "AWS4-HMAC-SHA256 Credential=x/20270115/eu-west-3/sqs/aws4_request, Signature=0"}
    target = {"x-amz-target": "AmazonSQS.GetQueueAttributes", "content-type": "application/x-amz-json-1.0"}
    asked = {"QueueUrl": "https://sqs.eu-west-3.amazonaws.com/123456789012/orders", "AttributeNames": ["QueueArn"]}
    answer = (await sqs.http.post("/", json=asked, headers=signed | target)).json()
    assert answer["Attributes"]["QueueArn"] == "arn:aws:sqs:eu-west-3:000000000000:orders"


@shows("an unknown member of a request")
async def test_an_unknown_member_is_refused(sqs: SqsServer) -> None:
    url = await sqs.create()
    name, sentence = await sqs.refusal("SendMessage", QueueUrl=url, MessageBody="x", DelaySecond=5)
    assert name == "InvalidParameterValue"
    assert "DelaySecond" in sentence


@shows("`MaximumMessageSize`")
async def test_a_larger_size_of_a_queue_is_reported_and_holds(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.api.request_json("PATCH", "/queues/orders", {"max_message_bytes": 2_000_000})
    assert (await sqs.attributes(url))["MaximumMessageSize"] == "2000000"
    await sqs.send(url, "x" * 1_500_000)
    given = {"QueueUrl": url, "Attributes": {"MaximumMessageSize": "1048577"}}
    assert (await sqs.refusal("SetQueueAttributes", **given))[0] == "InvalidAttributeValue"


@shows("`SenderId`")
async def test_a_message_has_no_sender(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url, AttributeNames=["All"])
    assert "SenderId" not in message["Attributes"]


@shows("`FifoThroughputLimit`")
async def test_the_throughput_limit_is_kept(sqs: SqsServer) -> None:
    modes = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    url = await sqs.create("orders.fifo", **modes)
    assert (await sqs.attributes(url, *modes)) == modes


@shows("`ReceiveRequestAttemptId`")
async def test_a_receive_of_a_standard_queue_can_be_repeated(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    first, second = [await sqs.receive(url, ReceiveRequestAttemptId="a") for _ in range(2)]
    assert first == second
    assert len(first) == 1


@shows("session tokens")
async def test_a_session_token_has_no_meaning(sqs: SqsServer) -> None:
    headers = {
        "x-amz-target": "AmazonSQS.ListQueues",
        "content-type": "application/x-amz-json-1.0",
        "x-amz-security-token": "x",
    }
    assert (await sqs.http.post("/", json={}, headers=headers)).status_code == 200


@shows("an empty body from another interface", "a binary body from another interface")
async def test_bodies_that_sqs_does_not_know(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.api.send()
    await sqs.api.send(body_base64=base64.b64encode(b"\x00\xff").decode())
    empty, binary = await sqs.receive(url, MaxNumberOfMessages=2)
    assert (empty["Body"], "MessageAttributes" in empty) == ("", False)
    assert base64.b64decode(binary["Body"]) == b"\x00\xff"
    assert binary["MessageAttributes"] == {"peeklock.encoding": {"DataType": "String", "StringValue": "base64"}}


def test_the_table_of_actions_has_each_with_its_right() -> None:
    shown = {action.strip("`"): right for action, right, *_ in table(PAGE, "Actions", "action")}
    assert shown == {name: getattr(action.right, "value", "any") for name, action in ACTIONS.items()}


async def test_the_table_of_queue_attributes_has_each(sqs: SqsServer) -> None:
    await sqs.create("failures.fifo")
    policy = redrive_policy("failures.fifo")
    with_all = await sqs.attributes(await sqs.create("orders.fifo", RedrivePolicy=policy))
    shown = [row[0].strip("`") for row in table(PAGE, "Queue attributes", "attribute")]
    assert len(shown) == len(set(shown))
    assert set(shown) == with_all.keys() | set(UNSUPPORTED_ATTRIBUTES)


def test_the_table_of_system_attributes_has_each() -> None:
    shown = {row[0].strip("`") for row in table(PAGE, "Messages", "system attribute")}
    assert shown == SYSTEM_ATTRIBUTES.keys()


async def test_the_receiver_on_a_server_without_keys_is_anonymous(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    await sqs.receive(url)
    explained = await sqs.api.request_json("GET", "/queues/orders/messages/1/explain")
    assert explained["holder"] == "anonymous"
