"""A restore brings purged and cancelled messages back over HTTP."""

from typing import Any

import pytest

from tests.api.api_server import ApiServer, pointers, problem

PATH = "/queues/orders/restore"


async def purge(api: ApiServer, count: int = 3) -> None:
    for n in range(count):
        await api.send(body=n, properties={"n": n}, subject="s", priority=n % 10)
    await api.request_json("POST", "/queues/orders/purge")


async def test_purged_messages_return_with_their_content(api: ApiServer) -> None:
    sent = await api.send(body={"n": 1}, message_id="one", subject="s", priority=8, group_id="g", properties={"a": 1})
    (before,) = (await api.request_json("GET", "/queues/orders/messages"))["items"]
    await api.request_json("POST", "/queues/orders/purge")
    await api.clock.advance(5)
    assert await api.request_json("POST", PATH) == {"restored": 1}
    (restored,) = (await api.request_json("GET", "/queues/orders/messages"))["items"]
    assert restored["sequence_number"] > sent["sequence_number"]
    changed = {"sequence_number", "enqueued_at", "available_at"}
    assert {name for name in restored if restored[name] != before[name]} == changed
    assert await api.request_json("POST", PATH) == {"restored": 0}


async def test_cancelled_messages_and_those_of_a_deleted_queue_return(api: ApiServer) -> None:
    sent = await api.send()
    await api.request_json("DELETE", f"/queues/orders/messages/{sent['sequence_number']}")
    await api.request_json("DELETE", "/queues/orders")
    problem(await api.request("POST", PATH), 404, "queue-not-found")
    await api.request_json("PUT", "/queues/orders")
    assert await api.request_json("POST", PATH) == {"restored": 1}


async def test_time_filter_and_limit_select(api: ApiServer) -> None:
    await purge(api)
    await api.clock.advance(60)
    await purge(api, 2)
    late = {"since": "2027-01-15T09:00:30+01:00"}
    assert await api.request_json("POST", PATH, {**late, "filter": "message.properties.n == 0"}) == {"restored": 1}
    assert await api.request_json("POST", PATH, {"limit": 2}) == {"restored": 2}
    assert await api.request_json("POST", PATH, late) == {"restored": 1}
    assert await api.request_json("POST", PATH, {"filter": "message.state == 'available'"}) == {"restored": 1}


async def test_a_dry_run_answers_what_the_restore_would_bring_back(api: ApiServer) -> None:
    await purge(api)
    wanted = {"filter": "message.properties.n > 0", "dry_run": True}
    plan = await api.request_json("POST", PATH, wanted)
    sample = plan.pop("sample")
    assert plan == {"restored": 0, "count": 2, "bytes": 2 * len('1{"n":1}'), "complete": True}
    assert [(message["state"], message["subject"], message["priority"]) for message in sample] == [
        ("available", "s", 1),
        ("available", "s", 2),
    ]
    assert await api.counts() == {}
    assert await api.request_json("POST", PATH, {**wanted, "dry_run": False}) == {"restored": 2}


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_queue_that_accepts_no_message_refuses(api: ApiServer, dry_run: bool) -> None:
    await purge(api)
    await api.request_json("PATCH", "/queues/orders", {"status": "send_disabled"})
    problem(await api.request("POST", PATH, {"dry_run": dry_run}), 403, "send-disabled")
    await api.request_json("PATCH", "/queues/orders", {"status": "active", "max_messages": 1})
    await api.send()
    problem(await api.request("POST", PATH, {"dry_run": dry_run}), 507, "queue-full")


async def test_what_is_too_large_for_the_queue_stays_in_the_archive(api: ApiServer) -> None:
    await purge(api, 11)  # the body of the last has one digit more
    await api.request_json("PATCH", "/queues/orders", {"max_message_bytes": len('0{"n":0}')})
    assert await api.request_json("POST", PATH) == {"restored": 10}


@pytest.mark.parametrize(
    ("wanted", "pointer"),
    [
        ({"since": "yesterday"}, "/since"),
        ({"since": "2027-01-15T09:00:30"}, "/since"),
        ({"limit": 0}, "/limit"),
        ({"filter": "("}, "/filter"),
        ({"states": ["available"]}, "/states"),
    ],
)
async def test_an_invalid_restore_restores_nothing(api: ApiServer, wanted: dict[str, Any], pointer: str) -> None:
    await purge(api)
    assert pointers(await api.request("POST", PATH, wanted)) == [pointer]
    assert await api.counts() == {}
