"""Move tasks over HTTP: they are started, listed, read and cancelled, with the rights on every queue that takes messages."""

from typing import Any

import pytest

from app.domain.access import Right
from app.maintenance.dead_letters import DeadLetterForwarder
from app.maintenance.moves import advance_moves
from tests.api.api_server import ApiServer, pointers, problem
from tests.bounds import bounded

PATH = "/queues/orders/moves"


async def run(api: ApiServer) -> None:
    """Run the background loop until no task has more to do at this time."""
    for _ in bounded("the passes end"):
        if await advance_moves(api.broker.administration):
            return


async def start(api: ApiServer, path: str = PATH, **body: Any) -> Any:
    """Start a task."""
    response = await api.request("POST", path, body)
    assert response.status_code == 201, response.text
    task = response.json().pop("move")
    assert response.headers["location"] == f"/v1{path}/{task['id']}"
    return task


async def dead_letter_home(api: ApiServer, *queues: str) -> None:
    """Let these queues forward a dead letter each to queue `failures`."""
    await api.request_json("PUT", "/queues/failures")
    for queue in queues:
        await api.request_json("PUT", f"/queues/{queue}", {"forward_dead_letters_to": "failures"})
        await api.send(queue, body=queue)
        (message,) = await api.receive(queue)
        await api.settle(message, "dead-letter", queue, reason="bad")
    await DeadLetterForwarder(api.broker.administration).step()
    assert await api.counts("failures") == {"available": len(queues)}


async def test_a_task_moves_messages_in_the_background(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/repairs")
    for n in range(3):
        await api.send(body=n)
    started = await start(api, to_queue="repairs", rate_per_second=2)
    times = {name: started.pop(name) for name in ("id", "started_at")}
    assert started == {
        "state": "running",
        "to_queue": "repairs",
        "rate_per_second": 2,
        "found": 3,
        "moved": 0,
        "ended_at": None,
        "reason": None,
    }
    await run(api)
    task = await api.request_json("GET", f"{PATH}/{times['id']}")
    assert task == {**started, **times, "moved": 2}
    assert await api.counts("repairs") == {"available": 2}
    await api.clock.advance(1)
    await run(api)
    (task,) = (await api.request_json("GET", PATH))["items"]
    assert (task["state"], task["moved"]) == ("completed", 3)
    assert task["ended_at"] > task["started_at"]
    assert [message["body"] for message in await api.receive("repairs", max_messages=9)] == [0, 1, 2]


async def test_dead_letters_go_back_without_a_target(api: ApiServer) -> None:
    await dead_letter_home(api, "first", "second")
    task = await start(api, "/queues/failures/moves")
    assert (task["to_queue"], task["rate_per_second"], task["found"]) == (None, None, 2)
    await run(api)
    assert [await api.counts(queue) for queue in ("failures", "first", "second")] == [{}, *[{"available": 1}] * 2]
    (message,) = await api.receive("first")
    assert (message["body"], message["delivery_count"], message["properties"]) == (
        "first",
        1,
        {"dead_letter_queue": "first"},
    )


async def test_dead_letters_of_the_queue_itself_become_available_in_it(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders")
    await api.send(body="dead")
    (message,) = await api.receive()
    await api.settle(message, "dead-letter", reason="bad")
    await api.send(body="available")
    plan = await api.request_json("POST", PATH, {"dry_run": True})
    assert plan["count"] == 1
    task = await start(api)
    assert (task["to_queue"], task["found"]) == (None, 1)
    await run(api)
    assert await api.counts() == {"available": 2}
    (moved,) = (await api.request_json("GET", PATH))["items"]
    assert (moved["state"], moved["moved"]) == ("completed", 1)


async def test_a_task_that_fails_says_why(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/repairs")
    await api.send(body=1)
    task = await start(api, to_queue="repairs")
    await api.request_json("DELETE", "/queues/repairs")
    await run(api)
    failed = await api.request_json("GET", f"{PATH}/{task['id']}")
    assert (failed["state"], failed["moved"], failed["reason"]) == ("failed", 0, "Queue repairs was deleted.")


async def test_a_task_is_cancelled(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/repairs")
    await api.send(body=1)
    task = await start(api, to_queue="repairs")
    problem(await api.request("POST", PATH, {"to_queue": "repairs"}), 409, "move-running")
    for _ in range(2):
        cancelled = await api.request_json("POST", f"{PATH}/{task['id']}/cancel")
        assert (cancelled["id"], cancelled["state"], cancelled["moved"]) == (task["id"], "cancelled", 0)
    await run(api)
    assert await api.counts() == {"available": 1}
    other = await start(api, to_queue="repairs")
    await run(api)
    problem(await api.request("POST", f"{PATH}/{other['id']}/cancel", {}), 409, "move-ended")


async def test_a_dry_run_answers_what_would_move(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/repairs", {"max_message_bytes": 1})
    await api.send(body=1)
    await api.send(body=22)
    plan = await api.request_json("POST", PATH, {"to_queue": "repairs", "dry_run": True})
    (sample,) = plan.pop("sample")
    assert (sample["sequence_number"], sample["state"]) == (1, "available")
    assert plan == {"count": 1, "bytes": 1, "complete": True}
    assert (await api.request_json("GET", PATH))["items"] == []


@pytest.mark.parametrize(
    "body",
    [{}, {"to_queue": "orders"}, {"to_queue": "", "dry_run": True}, {"rate_per_second": 0}, {"filter": "true"}],
    ids=str,
)
async def test_a_move_that_cannot_start_is_refused(api: ApiServer, body: dict[str, Any]) -> None:
    await api.request_json("PUT", "/queues/orders")
    (pointer,) = pointers(await api.request("POST", PATH, body))
    assert pointer == f"/{next(iter(body), 'to_queue')}"


async def test_what_does_not_exist_is_not_found(api: ApiServer) -> None:
    problem(await api.request("POST", PATH, {}), 404, "queue-not-found")
    problem(await api.request("GET", PATH), 404, "queue-not-found")
    await api.request_json("PUT", "/queues/orders")
    missing = problem(await api.request("POST", PATH, {"to_queue": "repairs"}), 404, "queue-not-found")
    assert missing["errors"] == [{"pointer": "#/body/to_queue", "detail": "There is no queue named repairs."}]
    for task_id in ("absent", "%00", "ä"):
        problem(await api.request("GET", f"{PATH}/{task_id}"), 404, "move-not-found")
        problem(await api.request("POST", f"{PATH}/{task_id}/cancel", {}), 404, "move-not-found")


async def test_a_move_needs_the_right_to_send_to_each_target(api_with_keys: ApiServer) -> None:
    """A sender chooses the properties of a message, so its `dead_letter_queue` alone opens no queue."""
    api = api_with_keys

    async def use_key(*rights: Right, patterns: tuple[str, ...]) -> None:
        secret = await api.new_key(*rights, patterns=patterns, principal=",".join(patterns))
        api.http.headers["Authorization"] = f"Bearer {secret}"

    await use_key(*Right, patterns=("*",))
    await dead_letter_home(api, "first", "second")
    await api.send("alone", body=1)
    (message,) = await api.receive("alone")
    await api.settle(message, "dead-letter", "alone", reason="bad")
    await use_key(Right.MANAGE, patterns=("failures",))
    for body in ({}, {"to_queue": "first"}, {"to_queue": "absent"}):
        problem(await api.request("POST", "/queues/failures/moves", body), 403, "forbidden")
    await use_key(Right.MANAGE, patterns=("alone",))
    await start(api, "/queues/alone/moves")
    await use_key(Right.MANAGE, Right.SEND, patterns=("failures", "first"))
    refused = problem(await api.request("POST", "/queues/failures/moves", {}), 403, "forbidden")
    assert "second" in refused["detail"]
    assert (await api.request("POST", "/queues/failures/moves", {"to_queue": "first"})).status_code == 201
