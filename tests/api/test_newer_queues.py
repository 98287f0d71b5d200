"""A queue with a setting that only a newer server knows: shown by this server, and refused by every other verb."""

import asyncio
from typing import Any

import pytest

from app.api.endpoints.routes import OPERATIONS
from app.http.operation import Operation
from app.maintenance.schedule import wake_receivers
from tests.api.api_server import ApiServer, problem
from tests.api.expected_rights import BODIES, headers_of, path_of
from tests.brokers import need_newer_server
from tests.virtual_clock import run_ready_tasks

IN_QUEUES = [operation for operation in OPERATIONS if "{queue}" in operation.path and operation.name != "get_queue"]


async def stored(api: ApiServer) -> Any:
    """Everything that lists show of the queues."""
    return (await api.request_json("GET", "/queues"))["items"]


@pytest.mark.parametrize("operation", IN_QUEUES, ids=lambda operation: operation.name)
async def test_every_operation_on_a_newer_queue_is_refused_and_changes_nothing(
    api: ApiServer, operation: Operation
) -> None:
    await api.send()
    await need_newer_server(api.broker)
    before = await stored(api)
    headers = headers_of(operation)
    answer = await api.http.request(
        operation.method, path_of(operation), json=BODIES.get(operation.name), headers=headers
    )
    refused = problem(answer, 503, "queue-needs-newer-server")
    assert refused["retryable"]
    assert refused["detail"] == (
        "This queue uses a setting that this server does not know yet; send the request to a newer server."
    )
    assert int(answer.headers["retry-after"]) > 0
    assert await stored(api) == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/purge", {"dry_run": True}), ("DELETE", "?dry_run=true", None)],
    ids=["purge", "delete"],
)
async def test_a_newer_queue_has_no_plan(api: ApiServer, method: str, path: str, body: Any) -> None:
    await api.send()
    await need_newer_server(api.broker)
    problem(await api.request(method, f"/queues/orders{path}", body), 503, "queue-needs-newer-server")


@pytest.mark.parametrize("condition", [{"If-Match": "*"}, {"If-None-Match": "*"}])
async def test_a_precondition_does_not_admit_a_change(api: ApiServer, condition: dict[str, str]) -> None:
    await api.send()
    await need_newer_server(api.broker)
    answer = await api.request("PUT", "/queues/orders", {"max_messages": 5}, headers=condition)
    problem(answer, 503, "queue-needs-newer-server")


async def test_dead_letters_are_not_redriven_into_a_newer_queue(api: ApiServer) -> None:
    await api.send()
    await api.send("others")
    (message,) = await api.receive("others")
    await api.settle(message, "dead-letter", "others")
    await need_newer_server(api.broker)
    answer = await api.request("POST", "/queues/others/dead-letter/redrive", {"to_queue": "orders"})
    problem(answer, 503, "queue-needs-newer-server")
    assert await api.counts("others") == {"dead_lettered": 1}


async def test_a_newer_queue_is_shown_with_the_settings_that_this_server_knows(api: ApiServer) -> None:
    await api.send()
    before = await api.request_json("GET", "/queues/orders")
    await need_newer_server(api.broker)
    assert await api.request_json("GET", "/queues/orders") == before
    assert await stored(api) == [before]
    assert (await api.http.get("/metrics")).status_code == 200


async def test_a_waiting_receive_is_refused_when_its_queue_becomes_newer(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders")
    waiting = asyncio.create_task(api.request("POST", "/queues/orders/messages/receive", {"wait_seconds": 20}))
    await run_ready_tasks()
    assert not waiting.done()
    await need_newer_server(api.broker)
    await wake_receivers(api.broker.wait_queue)
    problem(await waiting, 503, "queue-needs-newer-server")
