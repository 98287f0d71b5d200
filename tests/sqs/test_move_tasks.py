"""Move tasks through SQS: dead letters go back or elsewhere, and a task is followed and cancelled by its handle."""

from base64 import urlsafe_b64encode
from typing import Any

import pytest

from app.domain.access import Right
from tests.brokers import dead_letter_all
from tests.sqs.sqs_server import SqsServer, arn, open_sqs_server, redrive_policy

HANDLES = [
    "",
    "x",
    "%",
    "ä",
    "b3JkZXJzLzE",
    *(urlsafe_b64encode(text).decode() for text in (b"orders", b"/a", b"a/\xff")),
]


async def dead_letters(sqs: SqsServer, *bodies: str, source: str = "orders", target: str = "failures") -> str:
    """Let messages of a queue become dead letters in another one, and return the URL of the first."""
    await sqs.create(target)
    url = await sqs.create(source, RedrivePolicy=redrive_policy(target))
    for body in bodies:
        await sqs.send(url, body)
        await sqs.fail(url)
    await sqs.forward_dead_letters()
    return url


async def start(sqs: SqsServer, source: str = "failures", **members: Any) -> str:
    """Start a task and return its handle."""
    answer = await sqs.call("StartMessageMoveTask", SourceArn=arn(source), **members)
    assert list(answer) == ["TaskHandle"]
    handle: str = answer["TaskHandle"]
    return handle


async def tasks(sqs: SqsServer, source: str = "failures", **members: Any) -> list[Any]:
    """List tasks of a queue."""
    results: list[Any] = (await sqs.call("ListMessageMoveTasks", SourceArn=arn(source), **members))["Results"]
    return results


async def bodies(sqs: SqsServer, url: str) -> list[str]:
    """Receive what is available in a queue."""
    return [message["Body"] for message in await sqs.receive(url, MaxNumberOfMessages=10)]


# ---- what moves ------------------------------------------------------------------------------------------------------


async def test_dead_letters_go_back_to_their_sources_without_a_destination(sqs: SqsServer) -> None:
    first = await dead_letters(sqs, "1", "2", source="first")
    second = await dead_letters(sqs, "3", source="second")
    await start(sqs)
    await sqs.run_moves()
    (again,) = await sqs.receive(second, AttributeNames=["ApproximateReceiveCount"])
    assert (again["Body"], again["Attributes"]) == ("3", {"ApproximateReceiveCount": "1"})
    assert await bodies(sqs, first) == ["1", "2"]
    (task,) = await tasks(sqs)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 3)
    assert "DestinationArn" not in task


async def test_dead_letters_go_to_the_destination(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1")
    other = await sqs.create("other")
    await start(sqs, DestinationArn=arn("other"))
    await sqs.run_moves()
    assert await bodies(sqs, other) == ["1"]
    assert (await tasks(sqs))[0]["DestinationArn"] == arn("other")


async def test_a_message_whose_source_is_gone_stays(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1", source="first")
    second = await dead_letters(sqs, "2", source="second")
    await start(sqs)
    await sqs.call("DeleteQueue", QueueUrl=second)
    await sqs.run_moves()
    (task,) = await tasks(sqs)
    counts = (task["ApproximateNumberOfMessagesMoved"], task["ApproximateNumberOfMessagesToMove"])
    assert (task["Status"], *counts) == ("COMPLETED", 1, 2)
    assert await bodies(sqs, "/000000000000/failures") == ["2"]


async def test_dead_letters_that_stay_in_their_queue_become_available_in_it(sqs: SqsServer) -> None:
    """A native client can dead-letter a message in a queue that has no redrive policy."""
    url = await sqs.create()
    await sqs.send(url, "dead")
    (message,) = await sqs.api.receive("orders")
    await sqs.api.settle(message, "dead-letter", reason="bad")
    await sqs.send(url, "available")
    assert (await sqs.attributes(url))["ApproximateNumberOfMessages"] == "1"
    await start(sqs, "orders")
    await sqs.run_moves()
    assert sorted(await bodies(sqs, url)) == ["available", "dead"]
    (task,) = await tasks(sqs, "orders")
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)


async def test_a_task_keeps_its_rate(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1", "2", "3")
    await start(sqs, MaxNumberOfMessagesPerSecond=2)
    await sqs.run_moves()
    (task,) = await tasks(sqs)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("RUNNING", 2)
    assert task["MaxNumberOfMessagesPerSecond"] == 2
    await sqs.clock.advance(1)
    await sqs.run_moves()
    assert (await tasks(sqs))[0]["ApproximateNumberOfMessagesMoved"] == 3


# ---- what is told of tasks -------------------------------------------------------------------------------------------


async def test_only_a_running_task_has_a_handle(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1")
    started_at = sqs.clock.now() // 1000
    handle = await start(sqs)
    assert await tasks(sqs) == [
        {
            "TaskHandle": handle,
            "Status": "RUNNING",
            "SourceArn": arn("failures"),
            "ApproximateNumberOfMessagesMoved": 0,
            "ApproximateNumberOfMessagesToMove": 1,
            "StartedTimestamp": started_at,
        }
    ]
    await sqs.run_moves()
    assert await tasks(sqs) == [
        {
            "Status": "COMPLETED",
            "SourceArn": arn("failures"),
            "ApproximateNumberOfMessagesMoved": 1,
            "ApproximateNumberOfMessagesToMove": 1,
            "StartedTimestamp": started_at,
        }
    ]


async def test_a_task_that_fails_says_why(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1")
    other = await sqs.create("other")
    await start(sqs, DestinationArn=arn("other"))
    await sqs.call("DeleteQueue", QueueUrl=other)
    await sqs.run_moves()
    (task,) = await tasks(sqs)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "Queue other was deleted.")
    assert "TaskHandle" not in task


async def test_tasks_are_listed_newest_first_and_one_unless_more_are_wanted(sqs: SqsServer) -> None:
    await dead_letters(sqs)
    rates = range(1, 13)
    for rate in rates:
        await sqs.clock.advance(1)
        await start(sqs, MaxNumberOfMessagesPerSecond=rate)
        await sqs.run_moves()
    found = [task["MaxNumberOfMessagesPerSecond"] for task in await tasks(sqs, MaxResults=10)]
    assert found == list(rates)[:1:-1]
    assert [task["MaxNumberOfMessagesPerSecond"] for task in await tasks(sqs)] == [12]
    assert len(await tasks(sqs, MaxResults=3)) == 3
    assert await tasks(sqs, "orders") == []
    for number in (0, 11):
        answer = await sqs.refusal("ListMessageMoveTasks", SourceArn=arn("failures"), MaxResults=number)
        assert answer[0] == "InvalidParameterValue"


async def test_the_query_protocol_lists_each_task_in_an_element(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1")
    for _ in range(2):
        await start(sqs)
        await sqs.run_moves()
    text = (await sqs.form("ListMessageMoveTasks", {"SourceArn": arn("failures"), "MaxResults": "2"})).text
    assert text.count("<ListMessageMoveTasksResultEntry><Status>COMPLETED</Status>") == 2


# ---- cancellations ---------------------------------------------------------------------------------------------------


async def test_a_cancelled_task_moves_nothing_more(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1", "2")
    handle = await start(sqs, MaxNumberOfMessagesPerSecond=1)
    await sqs.run_moves()
    for _ in range(2):
        answer = await sqs.call("CancelMessageMoveTask", TaskHandle=handle)
        assert answer == {"ApproximateNumberOfMessagesMoved": 1}
    await sqs.clock.advance(5)
    await sqs.run_moves()
    (task,) = await tasks(sqs)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", 1)
    assert "TaskHandle" not in task
    await start(sqs)


async def test_an_ended_task_cannot_be_cancelled(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1")
    handle = await start(sqs)
    await sqs.run_moves()
    name, sentence = await sqs.refusal("CancelMessageMoveTask", TaskHandle=handle)
    assert (name, sentence) == ("ResourceNotFoundException", "This move task has already ended.")


@pytest.mark.parametrize("handle", HANDLES)
async def test_a_handle_that_no_server_gives_finds_no_task(sqs: SqsServer, handle: str) -> None:
    await sqs.create()
    name, sentence = await sqs.refusal("CancelMessageMoveTask", TaskHandle=handle)
    assert (name, sentence) == ("ResourceNotFoundException", "No move task has this TaskHandle.")


async def test_a_task_or_queue_that_does_not_exist_is_not_found(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1")
    requests = [
        ("CancelMessageMoveTask", {"TaskHandle": urlsafe_b64encode(b"failures/0123").decode()}),
        ("CancelMessageMoveTask", {"TaskHandle": urlsafe_b64encode(b"absent/0123").decode()}),
        ("StartMessageMoveTask", {"SourceArn": arn("absent")}),
        ("StartMessageMoveTask", {"SourceArn": arn("failures"), "DestinationArn": arn("absent")}),
        ("ListMessageMoveTasks", {"SourceArn": arn("absent")}),
    ]
    refused = [await sqs.refusal(action, **members) for action, members in requests]
    assert [name for name, _ in refused] == ["ResourceNotFoundException"] * 5
    assert await tasks(sqs) == []


# ---- refusals --------------------------------------------------------------------------------------------------------


async def test_one_task_of_a_queue_runs_at_a_time(sqs: SqsServer) -> None:
    await dead_letters(sqs, "1")
    handle = await start(sqs)
    name, _ = await sqs.refusal("StartMessageMoveTask", SourceArn=arn("failures"))
    assert name == "UnsupportedOperation"
    await sqs.call("CancelMessageMoveTask", TaskHandle=handle)
    await start(sqs)


@pytest.mark.parametrize("members", [{}, {"DestinationArn": arn("other")}], ids=str)
async def test_a_source_takes_dead_letters_or_holds_some(sqs: SqsServer, members: dict[str, str]) -> None:
    url = await sqs.create()
    await sqs.create("other")
    await sqs.send(url, "available")
    name, sentence = await sqs.refusal("StartMessageMoveTask", SourceArn=arn("orders"), **members)
    assert name == "InvalidParameterValue"
    assert sentence == "Queue orders is the dead-letter queue of no queue, and holds no dead letters."


@pytest.mark.parametrize(
    "members",
    [
        {"SourceArn": "failures"},
        {"SourceArn": "arn:aws:sns:us-east-1:000000000000:failures"},
        {"DestinationArn": "other"},
        {"DestinationArn": arn("failures")},
        {"MaxNumberOfMessagesPerSecond": 0},
        {"MaxNumberOfMessagesPerSecond": 501},
    ],
    ids=str,
)
async def test_a_malformed_move_is_refused(sqs: SqsServer, members: dict[str, Any]) -> None:
    await dead_letters(sqs, "1")
    name, _ = await sqs.refusal("StartMessageMoveTask", **{"SourceArn": arn("failures"), **members})
    assert name == "InvalidParameterValue"
    assert await tasks(sqs) == []


async def test_a_move_needs_manage_on_its_source_and_send_on_its_targets() -> None:
    async with open_sqs_server(needs_keys=True) as server:
        everything = await server.with_key(*Right)
        await dead_letters(everything, "1")
        await everything.create("other")
        alone = await server.with_key(Right.MANAGE, patterns=("failures",))
        for members in ({}, {"DestinationArn": arn("other")}, {"DestinationArn": arn("absent")}):
            name, _ = await alone.refusal("StartMessageMoveTask", SourceArn=arn("failures"), **members)
            assert name == "AccessDeniedException"
        handle = await start(everything)
        sender = await server.with_key(Right.SEND, Right.BROWSE, patterns=("*",))
        for action, members in (
            ("StartMessageMoveTask", {"SourceArn": arn("failures")}),
            ("ListMessageMoveTasks", {"SourceArn": arn("failures")}),
            ("CancelMessageMoveTask", {"TaskHandle": handle}),
        ):
            assert (await sender.refusal(action, **members))[0] == "AccessDeniedException"
        await alone.call("CancelMessageMoveTask", TaskHandle=handle)
        await start(everything, DestinationArn=arn("other"))


async def test_dead_letters_move_within_their_queue_without_the_right_to_send() -> None:
    async with open_sqs_server(needs_keys=True) as server:
        everything = await server.with_key(*Right)
        url = await everything.create()
        await everything.send(url)
        broker = server.api.broker
        assert await dead_letter_all(broker.store, await broker.queue_cache.by_name("orders")) == 1
        alone = await server.with_key(Right.MANAGE, patterns=("orders",))
        await start(alone, "orders")
        await server.run_moves()
        assert len(await everything.receive(url)) == 1
