"""Tags of queues through SQS: they are labels, and those of this server stay hidden."""

from typing import Any

import pytest

from tests.sqs.sqs_server import SqsServer


async def tags(sqs: SqsServer, url: str) -> dict[str, str]:
    """Return the tags of a queue."""
    found: dict[str, str] = (await sqs.call("ListQueueTags", QueueUrl=url)).get("Tags", {})
    return found


async def test_tags_are_set_replaced_and_removed(sqs: SqsServer) -> None:
    url = (await sqs.call("CreateQueue", QueueName="orders", tags={"team": "a", "stage": "test"}))["QueueUrl"]
    assert await tags(sqs, url) == {"team": "a", "stage": "test"}
    await sqs.call("TagQueue", QueueUrl=url, Tags={"team": "b", "cost": ""})
    assert await tags(sqs, url) == {"team": "b", "stage": "test", "cost": ""}
    await sqs.call("UntagQueue", QueueUrl=url, TagKeys=["team", "stage", "absent"])
    assert await tags(sqs, url) == {"cost": ""}
    await sqs.call("UntagQueue", QueueUrl=url, TagKeys=["cost"])
    assert await sqs.call("ListQueueTags", QueueUrl=url) == {}


async def test_tags_are_labels_of_the_api(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.call("TagQueue", QueueUrl=url, Tags={"team": "a"})
    settings = await sqs.api.request_json("GET", "/queues/orders")
    assert settings["labels"] == {"team": "a"}
    await sqs.api.request_json("PATCH", "/queues/orders", {"labels": {"stage": "test"}})
    assert await tags(sqs, url) == {"team": "a", "stage": "test"}


async def test_labels_that_hold_attributes_are_no_tags(sqs: SqsServer) -> None:
    url = await sqs.create("orders.fifo", ContentBasedDeduplication="true")
    assert await tags(sqs, url) == {}
    await sqs.call("TagQueue", QueueUrl=url, Tags={"team": "a"})
    assert await tags(sqs, url) == {"team": "a"}
    assert (await sqs.attributes(url))["ContentBasedDeduplication"] == "true"
    name, _ = await sqs.refusal("UntagQueue", QueueUrl=url, TagKeys=["sqs:ContentBasedDeduplication"])
    assert name == "InvalidParameterValue"


@pytest.mark.parametrize("changed", [{"": "a"}, {"sqs:a": "b"}, {"a": "\n"}, {f"{n}": "" for n in range(51)}], ids=len)
async def test_tags_that_no_queue_can_have_are_refused(sqs: SqsServer, changed: dict[str, str]) -> None:
    url = await sqs.create()
    assert (await sqs.refusal("TagQueue", QueueUrl=url, Tags=changed))[0] == "InvalidParameterValue"
    assert await tags(sqs, url) == {}


async def test_receivers_keep_their_locks_when_tags_change(sqs: SqsServer) -> None:
    url = await sqs.create()
    await sqs.send(url)
    (message,) = await sqs.receive(url)
    await sqs.call("TagQueue", QueueUrl=url, Tags={"team": "a"})
    await sqs.call("UntagQueue", QueueUrl=url, TagKeys=["team"])
    await sqs.delete(url, message)


async def test_tags_in_the_query_protocol_have_a_key_and_a_value(sqs: SqsServer) -> None:
    url = await sqs.create()
    parameters: dict[str, Any] = {"QueueUrl": url, "Tag.1.Key": "team", "Tag.1.Value": "a", "Tag.2.Key": "b"}
    assert (await sqs.form("TagQueue", {**parameters, "Tag.2.Value": ""})).status_code == 200
    text = (await sqs.form("ListQueueTags", {"QueueUrl": url})).text
    assert "<Tag><Key>team</Key><Value>a</Value></Tag><Tag><Key>b</Key><Value></Value></Tag>" in text
    assert (await sqs.form("UntagQueue", {"QueueUrl": url, "TagKey.1": "team"})).status_code == 200
    assert await tags(sqs, url) == {"b": ""}


async def test_tags_of_an_unknown_queue_are_not_found(sqs: SqsServer) -> None:
    for action, members in (("TagQueue", {"Tags": {}}), ("UntagQueue", {"TagKeys": []}), ("ListQueueTags", {})):
        assert (await sqs.refusal(action, QueueUrl="/0/absent", **members))[0] == "QueueDoesNotExist"
