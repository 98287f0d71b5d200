"""Subscriptions that both SNS and the API change keep what the other one has set, within the limits of both."""

from __future__ import annotations

import json
from typing import Any

from app.domain.queue import MAX_LABELS, MAX_LABELS_BYTES
from tests.sqs.sqs_server import SqsServer
from tests.sqs.topic_requests import BILLING, TOPIC, act, attributes_of, refusal

SUBSCRIPTION = f"{TOPIC}:billing"
PATH = "/v1/topics/orders/subscriptions/billing"


async def subscribe(sqs: SqsServer, **attributes: str) -> str:
    """Subscribe a new queue, and return its URL."""
    url = await sqs.create("billing")
    await act(sqs, "CreateTopic", Name="orders")
    await act(sqs, "Subscribe", TopicArn=TOPIC, Protocol="sqs", Endpoint=BILLING, Attributes=attributes)
    return url


async def patch(sqs: SqsServer, **members: Any) -> None:
    response = await sqs.api.http.patch(PATH, json=members)
    assert response.status_code == 200, response.text


async def settings(sqs: SqsServer) -> Any:
    return (await sqs.api.http.get(PATH)).json()


def attribute(name: str, value: str) -> dict[str, str]:
    return {"SubscriptionArn": SUBSCRIPTION, "AttributeName": name, "AttributeValue": value}


async def test_another_scope_does_not_replace_a_filter_of_the_api(sqs: SqsServer) -> None:
    await subscribe(sqs, FilterPolicy='{"kind":["new"]}')
    await patch(sqs, filter="message.priority > 5")
    refused = await refusal(sqs, "SetSubscriptionAttributes", **attribute("FilterPolicyScope", "MessageBody"))
    assert refused[1:] == (
        "InvalidParameter",
        "The filter of this subscription was set through the API. Set FilterPolicy to replace it.",
    )
    await act(sqs, "SetSubscriptionAttributes", **attribute("FilterPolicyScope", "MessageAttributes"))
    assert (await settings(sqs))["filter"] == "message.priority > 5"


async def test_another_scope_does_not_restore_a_policy_that_the_api_has_removed(sqs: SqsServer) -> None:
    await subscribe(sqs, FilterPolicy='{"kind":["new"]}')
    await patch(sqs, filter=None)
    await act(sqs, "SetSubscriptionAttributes", **attribute("FilterPolicyScope", "MessageBody"))
    assert (await settings(sqs))["filter"] is None
    found = attributes_of(await act(sqs, "GetSubscriptionAttributes", SubscriptionArn=SUBSCRIPTION))
    assert "FilterPolicy" not in found


async def test_a_policy_counts_as_a_label(sqs: SqsServer) -> None:
    await subscribe(sqs)
    policy = attribute("FilterPolicy", '{"kind":["new"]}')
    await patch(sqs, labels={f"label-{number}": "" for number in range(MAX_LABELS)})
    assert (await refusal(sqs, "SetSubscriptionAttributes", **policy))[1] == "InvalidParameter"
    await patch(sqs, labels=None)
    await patch(sqs, labels={f"label-{number}": "x" * 1000 for number in range(MAX_LABELS_BYTES // 1020)})
    large = attribute("FilterPolicy", json.dumps({"kind": ["x" * 950]}))
    assert (await refusal(sqs, "SetSubscriptionAttributes", **large))[1] == "InvalidParameter"


async def test_the_topic_of_envelopes_counts_as_a_property(sqs: SqsServer) -> None:
    await subscribe(sqs, RawMessageDelivery="true")
    enveloped = attribute("RawMessageDelivery", "false")
    for properties in ({f"p{number}": 1 for number in range(64)}, {"large": "x" * 4080}):
        await patch(sqs, set_properties=None)
        await patch(sqs, set_properties=properties)
        assert (await refusal(sqs, "SetSubscriptionAttributes", **enveloped))[1] == "InvalidParameter"
    await patch(sqs, set_properties=None)
    await patch(sqs, set_properties={"region": "eu"})
    await act(sqs, "SetSubscriptionAttributes", **enveloped)
    assert (await settings(sqs))["set_properties"] == {"region": "eu", "sns:topic": "orders"}


async def test_a_repeat_of_subscribe_does_not_compare_what_only_the_api_can_set(sqs: SqsServer) -> None:
    policy = {"FilterPolicy": '{"kind":["new"]}'}
    await subscribe(sqs, **policy)
    await patch(sqs, labels={"team": "a"}, set_properties={"region": "eu"})
    members = {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": BILLING}
    await act(sqs, "Subscribe", **members, Attributes=policy)
    assert (await settings(sqs))["labels"]["team"] == "a"
    await patch(sqs, filter="message.priority > 5")
    assert "different attributes" in (await refusal(sqs, "Subscribe", **members, Attributes=policy))[2]
    await sqs.create("other")
    await patch(sqs, filter='message.properties.kind == "new"', target_queue="other")
    assert "different attributes" in (await refusal(sqs, "Subscribe", **members, Attributes=policy))[2]


async def test_a_queue_that_is_subscribed_with_another_name_is_refused_with_the_reason(sqs: SqsServer) -> None:
    await sqs.create("billing")
    await act(sqs, "CreateTopic", Name="orders")
    await sqs.api.http.put("/v1/topics/orders/subscriptions/other", json={"target_queue": "billing"})
    members = {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": BILLING}
    refused = await refusal(sqs, "Subscribe", **members, Attributes={"RawMessageDelivery": "true"})
    assert refused[1] == "InvalidParameter"
    assert "already exists with another name" in refused[2]  # MassTransit looks for the word exists


async def test_a_policy_with_any_characters_is_a_label_and_comes_back(sqs: SqsServer) -> None:
    policy = {"kind": ["\0\x7f\ufffe\uffff\U0001f600"]}
    await subscribe(sqs, FilterPolicy=json.dumps(policy))
    found = attributes_of(await act(sqs, "GetSubscriptionAttributes", SubscriptionArn=SUBSCRIPTION))
    assert json.loads(found["FilterPolicy"]) == policy
    await patch(sqs, labels=(await settings(sqs))["labels"])


async def test_a_publisher_cannot_name_another_topic_in_an_envelope(sqs: SqsServer) -> None:
    url = await subscribe(sqs)
    await sqs.api.http.post("/v1/topics/orders/messages", json={"body": "m", "properties": {"sns:topic": "payroll"}})
    (message,) = await sqs.receive(url)
    assert json.loads(message["Body"])["TopicArn"] == TOPIC
