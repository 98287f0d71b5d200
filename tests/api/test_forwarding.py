"""Messages that are sent to a queue which forwards are stored in the last queue of the chain."""

from itertools import product
from typing import Any

import pytest

from app.domain.access import Right
from app.domain.queue import MAX_FORWARDING_HOPS
from tests.api.api_server import ApiServer, open_api_server, pointers, problem
from tests.api.topic_requests import publish, subscribe
from tests.brokers import set_forwarding


async def chain(api: ApiServer, *names: str, **settings: Any) -> None:
    """Make queues, each of which forwards to the next one. The last one has these settings."""
    *others, last = names
    await api.request_json("PUT", f"/queues/{last}", settings)
    for name, target in reversed([*zip(others, names[1:], strict=True)]):
        await api.request_json("PUT", f"/queues/{name}", {"forward_to": target})


async def test_every_kind_of_send_is_forwarded(api: ApiServer) -> None:
    await chain(api, "a", "b", "c")
    assert (await api.send("a", body=1))["state"] == "available"
    await api.request_json("POST", "/queues/a/messages/batch", {"messages": [{"body": 2}, {"body": 3}]})
    await api.request_json("POST", "/queues/a/messages/batch", {"messages": [{"body": 4}], "atomic": False})
    await api.request("POST", "/queues/a/messages/raw", content=b"5", headers={"content-type": "application/json"})
    await api.request("POST", "/queues/a/messages", {"body": 6}, headers={"Idempotency-Key": "k"})
    await api.request_json("POST", "/transactions/execute", {"sends": [{"queue": "a", "body": 7}]})
    await api.request_json("PUT", "/topics/orders", {})
    await subscribe(api, "s", target_queue="a")
    await publish(api, body=8)
    await api.request_json("POST", "/queues/a/messages", {"body": 9, "durability": "volatile"})
    await api.broker.volatile_buffer.close()
    assert [message["body"] for message in await api.receive("c", max_messages=100)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert await api.counts("a") == await api.counts("b") == {}


@pytest.mark.parametrize("kind", ["messages", "messages/batch"])
async def test_the_settings_of_the_last_queue_apply(api: ApiServer, kind: str) -> None:
    await chain(api, "a", "b", max_messages=1, default_ttl_seconds=60, duplicate_detection_window_seconds=60)
    await api.request_json("PATCH", "/queues/a", {"max_message_bytes": 1})
    message = {"body": "long", "message_id": "m"}
    path, request = f"/queues/a/{kind}", message if kind == "messages" else {"messages": [message]}
    assert (await api.request("POST", path, request)).status_code == 201
    assert "Queue b has no room" in problem(await api.request("POST", path, request), 507, "queue-full")["detail"]
    await api.advance_time(61)
    assert await api.counts("b") == {}


@pytest.mark.parametrize("disabled", ["a", "b", "c"])
async def test_each_queue_on_the_way_must_accept_sends(api: ApiServer, disabled: str) -> None:
    await chain(api, "a", "b", "c")
    await api.request_json("PATCH", f"/queues/{disabled}", {"status": "send_disabled"})
    refused = await api.request("POST", "/queues/a/messages", {})
    assert f"Queue {disabled} " in problem(refused, 403, "send-disabled")["detail"]


async def test_messages_that_are_in_the_queue_already_stay(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/b", {})
    await api.send("a", body="early")
    await api.request_json("PATCH", "/queues/a", {"forward_to": "b"})
    await api.send("a", body="late")
    assert [message["body"] for message in await api.receive("a", max_messages=9)] == ["early"]
    await api.request_json("PATCH", "/queues/a", {"forward_to": None})
    await api.send("a", body="last")
    assert [message["body"] for message in await api.receive("a", max_messages=9)] == ["last"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_letters_to"])
async def test_a_bad_target_is_refused_and_changes_nothing(api: ApiServer, setting: str, method: str) -> None:
    await chain(api, "a", "b")
    absent = await api.request(method, "/queues/b", {setting: "absent"})
    assert pointers(absent) == [f"/{setting}"]
    for target in ("a", "b"):
        problem(await api.request(method, "/queues/b", {setting: target}), 409, "forwarding-cycle")
    problem(await api.request(method, "/queues/b", {setting: "a b"}), 422, "invalid-request")
    assert (await api.request_json("GET", "/queues/b"))[setting] is None


async def test_a_chain_that_would_be_too_long_is_refused_wherever_it_is_made_longer(api: ApiServer) -> None:
    names = [f"q{number}" for number in range(MAX_FORWARDING_HOPS + 2)]
    await chain(api, *names[1:])
    assert (await api.send(names[1]))["state"] == "available"
    whole = f"A message is forwarded at most 4 times: Queue {' forwards to '.join(names)}."
    refused = await api.request("PUT", f"/queues/{names[0]}", {"forward_to": names[1]})
    assert problem(refused, 409, "forwarding-too-long")["detail"] == whole
    for method, changed in (("PATCH", 1), ("PUT", 1), ("PATCH", 3), ("PATCH", MAX_FORWARDING_HOPS)):
        await api.request_json("PATCH", f"/queues/{names[changed]}", {"forward_to": None})
        await api.request_json("PUT", f"/queues/{names[0]}", {"forward_to": names[1]})
        refused = await api.request(method, f"/queues/{names[changed]}", {"forward_to": names[changed + 1]})
        assert problem(refused, 409, "forwarding-too-long")["detail"] == whole
        assert (await api.request_json("GET", f"/queues/{names[changed]}"))["forward_to"] is None
        assert (await api.request("DELETE", f"/queues/{names[0]}")).status_code == 204
        await api.request_json("PATCH", f"/queues/{names[changed]}", {"forward_to": names[changed + 1]})


async def test_a_cycle_that_no_check_has_seen_ends_in_a_refusal(api: ApiServer) -> None:
    await chain(api, "a", "b")
    await set_forwarding(api.broker, "b", "a")
    problem(await api.request("POST", "/queues/a/messages", {}), 409, "forwarding-too-long")


async def test_a_target_that_was_deleted_refuses_sends_until_it_is_made_again(api: ApiServer) -> None:
    await chain(api, "a", "b")
    await api.send("a")
    queue = await api.broker.store.queues.by_name("b")
    assert queue is not None
    # Another process deletes it, so it is still cached here.
    assert await api.broker.store.queues.delete(queue)
    detail = problem(await api.request("POST", "/queues/a/messages", {}), 404, "queue-not-found")["detail"]
    assert detail == "Queue a forwards to queue b, which does not exist."
    await api.request_json("PUT", "/queues/b", {})
    await api.send("a")
    assert await api.counts("b") == {"available": 1}


async def test_a_target_that_was_made_again_elsewhere_gets_the_message(api: ApiServer) -> None:
    await chain(api, "a", "b")
    await api.send("a")
    queues = api.broker.store.queues
    queue = await queues.by_name("b")
    assert queue is not None
    assert await queues.delete(queue)
    await queues.create("b", queue.settings)
    await api.send("a")
    assert await api.counts("b") == {"available": 1}


async def test_a_key_that_may_not_send_to_the_target_does_not_forward_to_it() -> None:
    async with open_api_server(needs_keys=True) as api:
        admin = {"Authorization": f"Bearer {await api.new_key(*Right)}"}
        rights = (Right.MANAGE, Right.SEND)
        owner = {"Authorization": f"Bearer {await api.new_key(*rights, patterns=('mine',), principal='owner')}"}
        await api.request_json("PUT", "/queues/payroll", {}, headers=admin)
        await api.request_json("PUT", "/queues/mine", {}, headers=owner)
        for method, setting in product(("PUT", "PATCH"), ("forward_to", "forward_dead_letters_to")):
            for target in ("payroll", "absent"):
                refused = await api.request(method, "/queues/mine", {setting: target}, headers=owner)
                problem(refused, 403, "forbidden")
        await api.request_json("PATCH", "/queues/mine", {"forward_to": "payroll"}, headers=admin)
        assert (await api.request("POST", "/queues/mine/messages", {}, headers=owner)).status_code == 201
