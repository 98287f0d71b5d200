"""Topics through SNS: attributes, subscriptions, rights and refusals, next to the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from xml.etree import ElementTree

from app.domain.access import Right
from app.sqs.message_bodies import md5_of_body
from tests.sqs.signing import SignedBy
from tests.sqs.sqs_server import SqsServer, open_sqs_server
from tests.sqs.topic_requests import BILLING, TOPIC, act, attributes_of, refusal, send_action, text_of

SUBSCRIPTION = f"{TOPIC}:billing"


async def subscribe(sqs: SqsServer, queue: str = "billing", **attributes: str) -> str:
    """Subscribe a queue, which is created if it does not exist, and return its URL."""
    url = await sqs.create(queue)
    await act(sqs, "CreateTopic", Name="orders")
    endpoint = f"arn:aws:sqs:us-east-1:000000000000:{queue}"
    await act(sqs, "Subscribe", TopicArn=TOPIC, Protocol="sqs", Endpoint=endpoint, Attributes=attributes)
    return url


async def bodies(sqs: SqsServer, url: str) -> list[str]:
    return [message["Body"] for message in await sqs.receive(url, MaxNumberOfMessages=10)]


# ---- topics ----------------------------------------------------------------------------------------------------------


async def test_a_topic_is_created_once_and_deleted_as_often_as_asked(sqs: SqsServer) -> None:
    for _ in range(2):
        assert text_of(await act(sqs, "CreateTopic", Name="orders"), "TopicArn") == TOPIC
    assert [topic["name"] for topic in (await sqs.api.http.get("/v1/topics")).json()["items"]] == ["orders"]
    for _ in range(2):
        await act(sqs, "DeleteTopic", TopicArn=TOPIC)
    assert (await refusal(sqs, "GetTopicAttributes", TopicArn=TOPIC))[:2] == (404, "NotFound")


async def test_a_topic_that_exists_has_the_attributes_and_tags_that_are_given(sqs: SqsServer) -> None:
    tags = {"Tags.member.1.Key": "team", "Tags.member.1.Value": "a"}
    await act(sqs, "CreateTopic", Name="orders", Attributes={"DisplayName": "Orders"}, **tags)
    await act(sqs, "CreateTopic", Name="orders")
    await act(sqs, "CreateTopic", Name="orders", Attributes={"DisplayName": "Orders"}, **tags)
    _, code, sentence = await refusal(sqs, "CreateTopic", Name="orders", Attributes={"DisplayName": "Other"})
    assert (code, "different attributes" in sentence) == ("InvalidParameter", True)
    other = {"Tags.member.1.Key": "team", "Tags.member.1.Value": "b"}
    assert "different tags" in (await refusal(sqs, "CreateTopic", Name="orders", **other))[2]


async def test_attributes_of_a_topic_are_read_as_they_were_set(sqs: SqsServer) -> None:
    await subscribe(sqs)
    await act(sqs, "SetTopicAttributes", TopicArn=TOPIC, AttributeName="DisplayName", AttributeValue="Orders")
    assert attributes_of(await act(sqs, "GetTopicAttributes", TopicArn=TOPIC)) == {
        "TopicArn": TOPIC,
        "Owner": "000000000000",
        "DisplayName": "Orders",
        "SubscriptionsConfirmed": "1",
        "SubscriptionsPending": "0",
        "SubscriptionsDeleted": "0",
    }
    await act(sqs, "SetTopicAttributes", TopicArn=TOPIC, AttributeName="DisplayName")
    assert attributes_of(await act(sqs, "GetTopicAttributes", TopicArn=TOPIC))["DisplayName"] == ""


async def test_a_fifo_topic_has_a_name_that_says_so(sqs: SqsServer) -> None:
    fifo = {"FifoTopic": "true", "ContentBasedDeduplication": "True"}
    await act(sqs, "CreateTopic", Name="orders.fifo", Attributes=fifo)
    found = attributes_of(await act(sqs, "GetTopicAttributes", TopicArn=f"{TOPIC}.fifo"))
    assert (
        found.items()
        >= {"FifoTopic": "true", "ContentBasedDeduplication": "true", "FifoThroughputScope": "Topic"}.items()
    )
    for members in ({"Name": "orders.fifo"}, {"Name": "orders", "Attributes": {"FifoTopic": "true"}}):
        assert "ends with .fifo" in (await refusal(sqs, "CreateTopic", **members))[2]


async def test_attributes_that_promise_what_the_server_does_not_do_are_refused(sqs: SqsServer) -> None:
    url = await subscribe(sqs)
    assert url
    for name in ("Policy", "KmsMasterKeyId", "DeliveryPolicy", "SignatureVersion", "TracingConfig"):
        members = {"TopicArn": TOPIC, "AttributeName": name}
        status, code, sentence = await refusal(sqs, "SetTopicAttributes", **members, AttributeValue="2")
        assert (status, code) == (400, "InvalidParameter")
        assert sentence.startswith(f"{name} cannot have this value. ")
        await act(sqs, "SetTopicAttributes", **members, AttributeValue="")
    for name in ("RedrivePolicy", "DeliveryPolicy", "SubscriptionRoleArn"):
        members = {"SubscriptionArn": SUBSCRIPTION, "AttributeName": name}
        _, _, sentence = await refusal(sqs, "SetSubscriptionAttributes", **members, AttributeValue="{}")
        assert sentence.startswith(f"{name} cannot have this value. ")


# ---- subscriptions ---------------------------------------------------------------------------------------------------


async def test_a_subscription_is_made_once_and_its_repeat_must_be_equal(sqs: SqsServer) -> None:
    await subscribe(sqs, RawMessageDelivery="true")
    members = {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": BILLING}
    again = await act(sqs, "Subscribe", **members, Attributes={"RawMessageDelivery": "True"})
    assert text_of(again, "SubscriptionArn") == SUBSCRIPTION
    _, code, sentence = await refusal(sqs, "Subscribe", **members)
    assert code == "InvalidParameter"
    assert "already exists with different attributes" in sentence  # MassTransit looks for the word exists


async def test_attributes_of_a_subscription_are_read_as_they_were_set(sqs: SqsServer) -> None:
    await subscribe(sqs)
    policy = '{"kind": [{"prefix": "new"}]}'
    members = {"SubscriptionArn": SUBSCRIPTION, "AttributeName": "FilterPolicy"}
    await act(sqs, "SetSubscriptionAttributes", **members, AttributeValue=policy)
    found = attributes_of(await act(sqs, "GetSubscriptionAttributes", SubscriptionArn=SUBSCRIPTION))
    assert json.loads(found.pop("FilterPolicy")) == json.loads(policy)
    assert found == {
        "SubscriptionArn": SUBSCRIPTION,
        "TopicArn": TOPIC,
        "Owner": "000000000000",
        "Protocol": "sqs",
        "Endpoint": BILLING,
        "ConfirmationWasAuthenticated": "true",
        "PendingConfirmation": "false",
        "RawMessageDelivery": "false",
        "FilterPolicyScope": "MessageAttributes",
    }
    await act(sqs, "SetSubscriptionAttributes", **members, AttributeValue="{}")
    found = attributes_of(await act(sqs, "GetSubscriptionAttributes", SubscriptionArn=SUBSCRIPTION))
    assert "FilterPolicy" not in found


async def test_the_scope_of_a_policy_can_change(sqs: SqsServer) -> None:
    url = await subscribe(sqs, FilterPolicy='{"kind":["new"]}', RawMessageDelivery="true")
    members = {"SubscriptionArn": SUBSCRIPTION, "AttributeName": "FilterPolicyScope"}
    await act(sqs, "SetSubscriptionAttributes", **members, AttributeValue="MessageBody")
    for body in ('{"kind":"new"}', '{"kind":"old"}', "new"):
        await act(sqs, "Publish", TopicArn=TOPIC, Message=body)
    assert await bodies(sqs, url) == ['{"kind":"new"}']
    assert "FilterPolicyScope" in (await refusal(sqs, "SetSubscriptionAttributes", **members, AttributeValue="Body"))[2]


async def test_a_filter_that_was_set_through_the_api_is_not_reported_as_a_policy(sqs: SqsServer) -> None:
    await subscribe(sqs, FilterPolicy='{"kind":["new"]}')
    await sqs.api.http.patch("/v1/topics/orders/subscriptions/billing", json={"filter": "message.priority > 5"})
    found = attributes_of(await act(sqs, "GetSubscriptionAttributes", SubscriptionArn=SUBSCRIPTION))
    assert "FilterPolicy" not in found


async def test_raw_delivery_can_be_changed_for_later_messages(sqs: SqsServer) -> None:
    url = await subscribe(sqs)
    await act(sqs, "Publish", TopicArn=TOPIC, Message="first")
    members = {"SubscriptionArn": SUBSCRIPTION, "AttributeName": "RawMessageDelivery"}
    await act(sqs, "SetSubscriptionAttributes", **members, AttributeValue="true")
    await act(sqs, "Publish", TopicArn=TOPIC, Message="second")
    first, second = await bodies(sqs, url)
    assert (json.loads(first)["Message"], second) == ("first", "second")


async def test_subscriptions_end_as_often_as_asked(sqs: SqsServer) -> None:
    url = await subscribe(sqs)
    for _ in range(2):
        await act(sqs, "Unsubscribe", SubscriptionArn=SUBSCRIPTION)
    await act(sqs, "Publish", TopicArn=TOPIC, Message="unheard")
    assert await bodies(sqs, url) == []


async def test_only_queues_of_the_same_kind_that_exist_are_subscribed(sqs: SqsServer) -> None:
    await act(sqs, "CreateTopic", Name="orders")
    members = {"TopicArn": TOPIC, "Protocol": "sqs"}
    assert "does not exist" in (await refusal(sqs, "Subscribe", **members, Endpoint=BILLING))[2]
    assert "FIFO" in (await refusal(sqs, "Subscribe", **members, Endpoint=f"{BILLING}.fifo"))[2]
    for protocol in ("http", "https", "email", "sms", "lambda"):
        sentence = (await refusal(sqs, "Subscribe", TopicArn=TOPIC, Protocol=protocol, Endpoint="x"))[2]
        assert "peeklock-worker --push" in sentence


async def test_a_long_list_of_subscriptions_has_pages(sqs: SqsServer) -> None:
    for number in range(3):
        name = f"topic-{number}"
        await sqs.api.http.put(f"/v1/topics/{name}", json={})
        for subscription in range(60):
            path = f"/v1/topics/{name}/subscriptions/s{subscription:03}"
            assert (await sqs.api.http.put(path, json={})).status_code == 201
    found: list[str] = []
    token = ""
    while True:
        answer = await act(sqs, "ListSubscriptions", **({"NextToken": token} if token else {}))
        page = [element.text or "" for element in answer.iter() if element.tag.endswith("}SubscriptionArn")]
        assert len(page) <= 100
        found += page
        if answer.find(".//{*}NextToken") is None:
            break
        token = text_of(answer, "NextToken")
    arns = [f"arn:aws:sns:us-east-1:000000000000:topic-{n}:s{s:03}" for n in range(3) for s in range(60)]
    assert found == arns


# ---- messages --------------------------------------------------------------------------------------------------------


async def test_the_message_is_stored_raw_and_other_receivers_see_it_so(sqs: SqsServer) -> None:
    await subscribe(sqs)
    await act(sqs, "Publish", TopicArn=TOPIC, Message="hello", Subject="greeting")
    (message,) = await sqs.api.receive("billing")
    assert (message["body"], message["subject"]) == ("hello", "greeting")
    assert message["properties"] == {"sns:topic": "orders"}


async def test_a_message_that_is_published_through_the_api_is_put_into_an_envelope_too(sqs: SqsServer) -> None:
    url = await subscribe(sqs)
    message_id = "0123456789abcdef0123456789abcdef"
    body = {"body": {"order": 17}, "properties": {"region": "eu"}, "message_id": message_id}
    await sqs.api.http.post("/v1/topics/orders/messages", json=body)
    envelope = json.loads((await bodies(sqs, url))[0])
    assert envelope["Message"] == '{"order":17}'
    assert envelope["MessageAttributes"] == {"region": {"Type": "String", "Value": "eu"}}
    assert envelope["MessageId"] == "01234567-89ab-cdef-0123-456789abcdef"


async def test_a_subject_of_any_characters_arrives_with_the_digest_of_its_envelope(sqs: SqsServer) -> None:
    url = await subscribe(sqs)
    subject = "a\ufffeb\uffffc\x80"
    await sqs.api.http.post("/v1/topics/orders/messages", json={"body": "m", "subject": subject})
    answer = ElementTree.fromstring((await sqs.form("ReceiveMessage", {"QueueUrl": url})).text)
    body, digest = answer.findtext(".//{*}Body", ""), answer.findtext(".//{*}MD5OfBody", "")
    assert (json.loads(body)["Subject"], md5_of_body(body)) == (subject, digest)


async def test_a_structured_message_has_a_text_for_queues(sqs: SqsServer) -> None:
    url = await subscribe(sqs, RawMessageDelivery="true")
    for texts in ({"default": "d", "sqs": "q"}, {"default": "d", "email": "e"}):
        await act(sqs, "Publish", TopicArn=TOPIC, Message=json.dumps(texts), MessageStructure="json")
    assert await bodies(sqs, url) == ["q", "d"]
    too_deep = f'{{"default":"d","email":{"[" * 1000}{"]" * 1000}}}'
    wrong = (
        "{}",
        "[]",
        '{"sqs":"q"}',
        '{"default":1}',
        '{"default":1,"sqs":"q"}',
        '{"default":""}',
        "{",
        "[" * 5000,
        too_deep,
    )
    for message in wrong:
        members = {"TopicArn": TOPIC, "Message": message, "MessageStructure": "json"}
        assert (await refusal(sqs, "Publish", **members))[1] == "InvalidParameter"


async def test_messages_that_no_topic_can_carry_are_refused(sqs: SqsServer) -> None:
    await subscribe(sqs)
    cases: list[dict[str, Any]] = [
        {"TopicArn": TOPIC, "Message": ""},
        {"TopicArn": TOPIC, "Message": "m", "Subject": ""},
        {"TopicArn": TOPIC, "Message": "m", "Subject": "a\nb"},
        {"TopicArn": TOPIC, "Message": "m", "MessageStructure": "xml"},
        {"TopicArn": TOPIC, "Message": "m", "MessageDeduplicationId": "d"},
        {"TargetArn": TOPIC, "Message": "m"},
        {"PhoneNumber": "+4930123456", "Message": "m"},
        {"Message": "m"},
        {"TopicArn": SUBSCRIPTION, "Message": "m"},
        {"TopicArn": BILLING, "Message": "m"},
        {"TopicArn": TOPIC, "Message": "m", "MessageAttributes.entry.1.Name": "n"},
        {"TopicArn": TOPIC, "Message": "m", "Unknown": "x"},
    ]
    for members in cases:
        assert (await refusal(sqs, "Publish", **members))[:2] == (400, "InvalidParameter"), members


async def test_a_publish_to_a_full_queue_is_throttled(sqs: SqsServer) -> None:
    await subscribe(sqs)
    await sqs.api.http.patch("/v1/queues/billing", json={"max_messages": 1})
    await act(sqs, "Publish", TopicArn=TOPIC, Message="first")
    assert (await refusal(sqs, "Publish", TopicArn=TOPIC, Message="second"))[:2] == (429, "Throttled")


# ---- rights ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def closed_server() -> AsyncIterator[SqsServer]:
    """A server with a key, which its client has, for everything."""
    async with open_sqs_server(needs_keys=True) as server:
        yield await server.with_key(*Right)


async def test_each_action_needs_the_right_that_the_api_needs() -> None:
    async with closed_server() as server:
        await subscribe(server)
        sender, browser = await server.with_key(Right.SEND), await server.with_key(Right.BROWSE)
        manager = await server.with_key(Right.MANAGE)
        await act(sender, "Publish", TopicArn=TOPIC, Message="m")
        await act(browser, "GetTopicAttributes", TopicArn=TOPIC)
        await act(manager, "SetTopicAttributes", TopicArn=TOPIC, AttributeName="DisplayName", AttributeValue="o")
        for client, action, members in (
            (browser, "Publish", {"TopicArn": TOPIC, "Message": "m"}),
            (sender, "GetTopicAttributes", {"TopicArn": TOPIC}),
            (sender, "CreateTopic", {"Name": "other"}),
            (sender, "DeleteTopic", {"TopicArn": TOPIC}),
            (sender, "Unsubscribe", {"SubscriptionArn": SUBSCRIPTION}),
            (manager, "Subscribe", {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": BILLING}),
        ):
            assert (await refusal(client, action, **members))[:2] == (403, "AuthorizationError"), action


async def test_lists_have_what_the_client_may_browse() -> None:
    async with closed_server() as server:
        await subscribe(server)
        await act(server, "CreateTopic", Name="secret")
        narrow = await server.with_key(Right.BROWSE, patterns=("orders",))
        listed = await send_action(narrow, "ListTopics")
        assert ("orders" in listed.text, "secret" in listed.text) == (True, False)
        other = await server.with_key(Right.BROWSE, patterns=("secret",))
        assert "billing" in (await send_action(narrow, "ListSubscriptions")).text
        assert "billing" not in (await send_action(other, "ListSubscriptions")).text


async def test_a_signature_for_queues_is_none_for_topics() -> None:
    async with closed_server() as server:
        assert (await server.form("ListQueues")).status_code == 200
        assert (await send_action(server, "ListTopics")).status_code == 200
        auth = server.http.auth
        assert isinstance(auth, SignedBy)
        confused = SqsServer(server.api, SignedBy(auth.key_id, auth.secret, server.clock.now, service="sqs"))
        assert (await refusal(confused, "ListTopics"))[1] == "SignatureDoesNotMatch"
