"""Lists of queues through SQS: by prefix, in pages, and only what a key may browse."""

from typing import Any

import pytest

from app.domain.access import Right
from tests.sqs.sqs_server import SqsServer, open_sqs_server, redrive_policy

NAMES = ("a", "b.1", "b.2", "b.3", "c")


async def names(sqs: SqsServer, action: str = "ListQueues", **members: Any) -> list[str]:
    """Return the names of a list, which must be complete."""
    answer = await sqs.call(action, **members)
    assert "NextToken" not in answer
    urls: list[str] = answer.get("QueueUrls", answer.get("queueUrls", []))
    return [url.removeprefix("http://peeklock.test/000000000000/") for url in urls]


async def pages(sqs: SqsServer, action: str = "ListQueues", **members: Any) -> list[list[str]]:
    """Return the names of all pages of a list."""
    found: list[list[str]] = []
    token: dict[str, str] = {}
    while True:
        answer = await sqs.call(action, **members, **token)
        urls: list[str] = answer.get("QueueUrls", answer.get("queueUrls", []))
        found.append([url.rpartition("/")[2] for url in urls])
        if "NextToken" not in answer:
            return found
        token = {"NextToken": answer["NextToken"]}


async def test_an_empty_list_has_no_member(sqs: SqsServer) -> None:
    assert await sqs.call("ListQueues") == {}
    url = await sqs.create()
    assert await sqs.call("ListDeadLetterSourceQueues", QueueUrl=url) == {}


async def test_queues_are_listed_by_name_and_prefix(sqs: SqsServer) -> None:
    for name in reversed(NAMES):
        await sqs.api.request_json("PUT", f"/queues/{name}")
    assert await names(sqs) == list(NAMES)
    assert await names(sqs, QueueNamePrefix="b.") == ["b.1", "b.2", "b.3"]
    assert await names(sqs, QueueNamePrefix="b.2") == ["b.2"]
    assert await names(sqs, QueueNamePrefix="d") == []


async def test_only_a_list_with_max_results_has_pages(sqs: SqsServer) -> None:
    for name in NAMES:
        await sqs.api.request_json("PUT", f"/queues/{name}")
    assert await pages(sqs, MaxResults=2) == [["a", "b.1"], ["b.2", "b.3"], ["c"]]
    assert await pages(sqs, MaxResults=2, QueueNamePrefix="b") == [["b.1", "b.2"], ["b.3"]]
    assert await pages(sqs, MaxResults=5) == [list(NAMES)]


@pytest.mark.parametrize("number", [0, 1001])
async def test_a_page_has_from_1_to_1000_queues(sqs: SqsServer, number: int) -> None:
    assert (await sqs.refusal("ListQueues", MaxResults=number))[0] == "InvalidParameterValue"


@pytest.mark.parametrize("token", ["%", "a b", "\x00", "ä"])
async def test_a_token_of_another_list_is_refused(sqs: SqsServer, token: str) -> None:
    url = await sqs.create()
    for action, members in (("ListQueues", {}), ("ListDeadLetterSourceQueues", {"QueueUrl": url})):
        name, sentence = await sqs.refusal(action, NextToken=token, MaxResults=1, **members)
        assert name == "InvalidParameterValue"
        assert sentence == "This NextToken did not come from this list."


async def test_a_key_sees_the_queues_that_it_may_browse() -> None:
    async with open_sqs_server(needs_keys=True) as server:
        everything = await server.with_key(*Right)
        for name in ("a", "b-1", "b-2", "b-3", "c"):
            await everything.create(name)
        some = await server.with_key(Right.BROWSE, patterns=("b-*", "c", "d"))
        assert await names(some) == ["b-1", "b-2", "b-3", "c"]
        assert await names(some, QueueNamePrefix="b-3") == ["b-3"]
        assert await names(some, QueueNamePrefix="a") == []
        assert await pages(some, MaxResults=3) == [["b-1", "b-2", "b-3"], ["c"]]
        inner = await server.with_key(Right.BROWSE, patterns=("*-1",))
        assert (await inner.refusal("ListQueues"))[0] == "AccessDeniedException"
        sender = await server.with_key(Right.SEND)
        assert (await sender.refusal("ListQueues"))[0] == "AccessDeniedException"


async def test_the_sources_of_a_dead_letter_queue_are_listed_in_pages(sqs: SqsServer) -> None:
    url = await sqs.create("failures")
    await sqs.create("other")
    for name in ("c", "a", "b"):
        await sqs.create(name, RedrivePolicy=redrive_policy("failures"))
    action = "ListDeadLetterSourceQueues"
    answer = await sqs.call(action, QueueUrl=url)
    assert list(answer) == ["queueUrls"]
    assert await names(sqs, action, QueueUrl=url) == ["a", "b", "c"]
    assert await pages(sqs, action, QueueUrl=url, MaxResults=2) == [["a", "b"], ["c"]]
    text = (await sqs.form(action, {"QueueUrl": url})).text
    assert text.count("<QueueUrl>") == 3


async def test_sources_that_a_key_may_not_browse_are_hidden() -> None:
    async with open_sqs_server(needs_keys=True) as server:
        everything = await server.with_key(*Right)
        url = await everything.create("failures")
        for name in ("a", "b"):
            await everything.create(name, RedrivePolicy=redrive_policy("failures"))
        some = await server.with_key(Right.BROWSE, patterns=("failures", "b"))
        assert await names(some, "ListDeadLetterSourceQueues", QueueUrl=url) == ["b"]


async def test_the_sources_of_an_unknown_queue_are_not_listed(sqs: SqsServer) -> None:
    assert (await sqs.refusal("ListDeadLetterSourceQueues", QueueUrl="/0/absent"))[0] == "QueueDoesNotExist"
