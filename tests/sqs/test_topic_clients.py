"""The client of SNS that AWS maintains works with topics, subscriptions, publishes and envelopes."""

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from tests.sqs.aws_server import AwsServer, open_aws_server

TOPIC = "arn:aws:sns:eu-central-1:000000000000:orders"
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
async def aws() -> AsyncIterator[AwsServer]:
    async with open_aws_server() as server:
        yield server


async def test_a_queue_gets_a_notification_with_the_message_its_subject_and_its_attributes(aws: AwsServer) -> None:
    url = await aws.subscribed(await aws.topic())
    published = await aws.call(
        aws.sns.publish,
        TopicArn=TOPIC,
        Message="hello <ü>",
        Subject="greeting",
        MessageAttributes={
            "count": {"DataType": "Number", "StringValue": "3"},
            "raw": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
        },
    )
    (message,) = await aws.receive(url, MessageAttributeNames=["All"])
    envelope = json.loads(message["Body"])
    assert TIMESTAMP.fullmatch(envelope.pop("Timestamp"))
    assert envelope == {
        "Type": "Notification",
        "MessageId": published["MessageId"],
        "TopicArn": TOPIC,
        "Subject": "greeting",
        "Message": "hello <ü>",
        "MessageAttributes": {
            "count": {"Type": "Number", "Value": "3"},
            "raw": {"Type": "Binary", "Value": "AP8="},
        },
    }
    assert "MessageAttributes" not in message


async def test_a_raw_subscription_gets_the_message_and_its_attributes(aws: AwsServer) -> None:
    url = await aws.subscribed(await aws.topic(), RawMessageDelivery="true")
    attributes = {"kind": {"DataType": "String", "StringValue": "new"}}
    await aws.call(aws.sns.publish, TopicArn=TOPIC, Message="hello", MessageAttributes=attributes)
    (message,) = await aws.receive(url, MessageAttributeNames=["All"])
    assert (message["Body"], message["MessageAttributes"]) == ("hello", attributes)


async def test_each_subscription_gets_what_its_filter_policy_matches(aws: AwsServer) -> None:
    topic = await aws.topic()
    policies = {"new": '{"kind": ["new"]}', "rest": '{"kind": [{"anything-but": "new"}, {"exists": false}]}'}
    urls = {name: await aws.subscribed(topic, name, FilterPolicy=policy) for name, policy in policies.items()}
    for kind in ("new", "old"):
        attributes = {"kind": {"DataType": "String", "StringValue": kind}}
        await aws.call(aws.sns.publish, TopicArn=topic, Message=kind, MessageAttributes=attributes)
    await aws.call(aws.sns.publish, TopicArn=topic, Message="none")
    found = {name: [json.loads(one["Body"])["Message"] for one in await aws.receive(url)] for name, url in urls.items()}
    assert found == {"new": ["new"], "rest": ["old", "none"]}


async def test_a_wrong_entry_of_a_batch_fails_alone(aws: AwsServer) -> None:
    url = await aws.subscribed(await aws.topic(), RawMessageDelivery="true")
    entries = [
        {"Id": "a", "Message": "first"},
        {"Id": "b", "Message": "second", "Subject": "x" * 101},
        {"Id": "c", "Message": "third"},
    ]
    answer = await aws.call(aws.sns.publish_batch, TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["a", "c"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("b", "InvalidParameter", True)
    assert [one["Body"] for one in await aws.receive(url)] == ["first", "third"]


async def test_topics_and_subscriptions_are_listed_with_empty_lists_where_there_are_none(aws: AwsServer) -> None:
    assert (await aws.call(aws.sns.list_topics))["Topics"] == []
    assert (await aws.call(aws.sns.list_subscriptions))["Subscriptions"] == []
    topic = await aws.topic()
    await aws.subscribed(topic)
    expected = {
        "SubscriptionArn": f"{TOPIC}:billing",
        "Owner": "000000000000",
        "Protocol": "sqs",
        "Endpoint": "arn:aws:sqs:eu-central-1:000000000000:billing",
        "TopicArn": TOPIC,
    }
    assert (await aws.call(aws.sns.list_topics))["Topics"] == [{"TopicArn": TOPIC}]
    assert (await aws.call(aws.sns.list_subscriptions))["Subscriptions"] == [expected]
    assert (await aws.call(aws.sns.list_subscriptions_by_topic, TopicArn=topic))["Subscriptions"] == [expected]


async def test_tags_are_set_listed_and_removed(aws: AwsServer) -> None:
    topic = await aws.topic()
    tags = [{"Key": "team", "Value": "a"}, {"Key": "stage", "Value": ""}]
    await aws.call(aws.sns.tag_resource, ResourceArn=topic, Tags=tags)
    assert (await aws.call(aws.sns.list_tags_for_resource, ResourceArn=topic))["Tags"] == tags
    await aws.call(aws.sns.untag_resource, ResourceArn=topic, TagKeys=["team", "stage"])
    assert (await aws.call(aws.sns.list_tags_for_resource, ResourceArn=topic))["Tags"] == []


async def test_refusals_are_the_exceptions_of_the_client(aws: AwsServer) -> None:
    with pytest.raises(aws.sns.exceptions.NotFoundException) as missing:
        await aws.call(aws.sns.publish, TopicArn=TOPIC, Message="hello")
    assert missing.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404
    topic = await aws.topic()
    with pytest.raises(aws.sns.exceptions.InvalidParameterException, match="peeklock-worker --push"):
        await aws.call(aws.sns.subscribe, TopicArn=topic, Protocol="https", Endpoint="https://hooks.example")
    with pytest.raises(aws.sns.exceptions.FilterPolicyLimitExceededException, match="at most"):
        await aws.subscribed(topic, FilterPolicy=json.dumps({"a": ["x" * 2000]}))
    with pytest.raises(ClientError, match="InvalidAction"):
        await aws.call(aws.sns.list_phone_numbers_opted_out)


async def test_a_fifo_topic_keeps_the_order_of_a_group_and_ignores_duplicates(aws: AwsServer) -> None:
    topic = await aws.topic("orders.fifo", FifoTopic="true", ContentBasedDeduplication="true")
    url, arn = await aws.queue("billing.fifo", FifoQueue="true")
    await aws.call(aws.sns.subscribe, TopicArn=topic, Protocol="sqs", Endpoint=arn)
    sent = [
        await aws.call(aws.sns.publish, TopicArn=topic, Message=text, MessageGroupId="g") for text in ("a", "b", "a")
    ]
    assert sent[0]["MessageId"] == sent[2]["MessageId"] != sent[1]["MessageId"]
    received: list[str] = []
    while messages := await aws.receive(url, AttributeNames=["All"]):
        (message,) = messages
        envelope = json.loads(message["Body"])
        assert envelope["SequenceNumber"] == message["Attributes"]["SequenceNumber"]
        received.append(envelope["Message"])
        await aws.call(aws.sqs.delete_message, QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert received == ["a", "b"]


async def test_the_time_of_an_envelope_is_that_of_the_publish(aws: AwsServer) -> None:
    url = await aws.subscribed(await aws.topic())
    await aws.call(aws.sns.publish, TopicArn=TOPIC, Message="hello")
    (message,) = await aws.receive(url, AttributeNames=["SentTimestamp"])
    sent_at = datetime.fromisoformat(json.loads(message["Body"])["Timestamp"])
    assert sent_at == datetime.fromtimestamp(int(message["Attributes"]["SentTimestamp"]) / 1000, UTC)
