"""Topics and subscriptions over HTTP."""

import asyncio
from typing import Any

import pytest

from app.domain.access import Right
from app.domain.topic import MAX_SET_PROPERTIES_BYTES
from tests.api.api_server import ApiServer, open_api_server, pointers, problem
from tests.api.topic_requests import publish, received, subscribe

KEY = {"Idempotency-Key": "k"}


@pytest.fixture(autouse=True)
async def topic(api: ApiServer) -> None:
    """The topic `orders` without subscriptions."""
    await api.request_json("PUT", "/topics/orders", {})


# ---- topics ----------------------------------------------------------------------------------------------------------


async def test_a_topic_is_created_changed_and_deleted(api: ApiServer) -> None:
    created = await api.request("PUT", "/topics/new", {"description": "News."})
    assert created.status_code == 201
    same = await api.request("PUT", "/topics/new", {"description": "News."})
    assert (same.status_code, same.headers["etag"]) == (200, created.headers["etag"])
    changed = await api.request("PATCH", "/topics/new", {"description": None})
    assert changed.json()["description"] == ""
    assert changed.headers["etag"] != created.headers["etag"]
    problem(
        await api.request("DELETE", "/topics/new", headers={"If-Match": created.headers["etag"]}),
        412,
        "precondition-failed",
    )
    assert (await api.request("DELETE", "/topics/new")).status_code == 204
    problem(await api.request("GET", "/topics/new"), 404, "topic-not-found")
    problem(await api.request("PUT", "/topics/new", {}, headers={"If-Match": "*"}), 412, "precondition-failed")
    problem(await api.request("PUT", "/topics/orders", {}, headers={"If-None-Match": "*"}), 412, "precondition-failed")


async def test_topics_are_listed_page_by_page(api: ApiServer) -> None:
    for name in ("a", "b"):
        await api.request_json("PUT", f"/topics/{name}", {})
    page = await api.request_json("GET", "/topics?limit=2")
    assert [item["name"] for item in page["items"]] == ["a", "b"]
    page = await api.request_json("GET", f"/topics?limit=2&cursor={page['next_cursor']}")
    assert ([item["name"] for item in page["items"]], page["next_cursor"]) == (["orders"], None)


async def test_other_tasks_run_between_the_messages_of_a_test(api: ApiServer) -> None:
    await subscribe(api, "eu", filter="message.properties.region == 'eu'")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def turns_of_test(size: int) -> int:
        before = turns
        await api.request_json("POST", "/topics/orders/subscriptions/eu/test", {"messages": [{}] * size})
        return turns - before

    counting = asyncio.create_task(count_turns())
    assert await turns_of_test(100) >= await turns_of_test(1) + 10
    before = turns
    await asyncio.gather(*(turns_of_test(100) for _ in range(10)))
    assert turns >= before + 100, "many tests at once take turns"
    counting.cancel()


@pytest.mark.parametrize("name", ["a b", "-a", "a" * 129, "%00", "a%2Fb", "%F0%9F%98%80"])
async def test_a_hostile_name_is_refused(api: ApiServer, name: str) -> None:
    problem(await api.request("PUT", f"/topics/{name}", {}), 422, "invalid-request")
    problem(await api.request("PUT", f"/topics/orders/subscriptions/{name}", {}), 422, "invalid-request")
    problem(await api.request("POST", f"/topics/{name}/messages", {}), 422, "invalid-request")


# ---- subscriptions ---------------------------------------------------------------------------------------------------


async def test_a_subscription_gets_a_queue_of_its_own(api: ApiServer) -> None:
    created = await api.request("PUT", "/topics/orders/subscriptions/audit", {})
    assert created.status_code == 201
    assert created.json()["target_queue"] == "orders.audit"
    assert (await api.request("GET", "/queues/orders.audit")).status_code == 200
    page = await api.request_json("GET", "/topics/orders/subscriptions")
    assert [item["name"] for item in page["items"]] == ["audit"]
    assert await api.request_json("GET", "/topics/orders/subscriptions/audit") == page["items"][0]


async def test_the_queue_of_a_deleted_subscription_stays(api: ApiServer) -> None:
    await subscribe(api, "audit")
    await publish(api, body="kept")
    assert (await api.request("DELETE", "/topics/orders/subscriptions/audit")).status_code == 204
    problem(await api.request("GET", "/topics/orders/subscriptions/audit"), 404, "subscription-not-found")
    assert (await publish(api, body="lost"))["stored"] is False
    assert await received(api, "orders.audit") == ["kept"]


async def test_a_queue_with_a_subscription_is_not_deleted(api: ApiServer) -> None:
    await subscribe(api, "audit")
    refusal = problem(await api.request("DELETE", "/queues/orders.audit"), 409, "queue-is-target")
    assert "Subscription audit of topic orders" in refusal["detail"]
    assert (await api.request("DELETE", "/topics/orders")).status_code == 204
    assert (await api.request("DELETE", "/queues/orders.audit")).status_code == 204


async def test_a_patch_changes_the_given_settings_alone(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/q", {})
    await subscribe(api, "s", target_queue="q", filter="true", set_properties={"a": 1, "b": 2}, remove_properties=["c"])
    path = "/topics/orders/subscriptions/s"
    changed = await api.request_json("PATCH", path, {"set_properties": {"a": None, "d": 4}})
    settings = ("target_queue", "filter", "set_properties", "remove_properties")
    assert [changed[name] for name in settings] == ["q", "true", {"b": 2, "d": 4}, ["c"]]
    changed = await api.request_json(
        "PATCH", path, {"filter": None, "set_properties": None, "remove_properties": None, "target_queue": None}
    )
    assert [changed[name] for name in settings] == ["orders.s", None, {}, []]


async def test_a_filter_that_reads_bodies_is_tested_on_given_messages(api: ApiServer) -> None:
    await subscribe(api, "large", filter="message.body.total > 10")
    path = "/topics/orders/subscriptions/large/test"
    messages = [
        {"body": {"total": 11}},
        {"body": {"total": 10}},
        {"body": "text"},
        {"body_base64": "eyJ0b3RhbCI6IDEyfQ=="},
    ]
    assert await api.request_json("POST", path, {"messages": messages}) == {"matches": [True, False, False, True]}
    for body in ({}, {"queue": "orders.large"}):
        refused = await api.request("POST", path, body)
        assert pointers(refused) == ["/messages"]
        assert "reads bodies" in refused.json()["errors"][0]["detail"]


async def test_the_filter_of_a_receiver_reads_no_body(api: ApiServer) -> None:
    await subscribe(api, "all")
    refused = await api.request("POST", "/queues/orders.all/messages/receive", {"filter": "message.body.total > 10"})
    assert pointers(refused) == ["/filter"]
    assert "cannot read the body" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"filter": "message.subject =="}, "/filter"),
        ({"filter": "message.subject == 'a'" + " || true" * 200}, "/filter"),
        ({"filter": " + ".join(["message.subject"] * 9)}, "/filter"),
        ({"filter": "message.sequence_number > 5"}, "/filter"),
        ({"filter": "message.body == 'x'"}, "/filter"),
        ({"filter": "message.body.tags[0] == 1"}, "/filter"),
        ({"filter": "message.subject.matches('a+')"}, "/filter"),
        ({"set_properties": {"a": [1]}}, "/set_properties/a"),
        ({"set_properties": {"a": "x" * MAX_SET_PROPERTIES_BYTES}}, "/set_properties"),
        ({"set_properties": {f"p{number}": 1 for number in range(65)}}, "/set_properties"),
        ({"remove_properties": [f"p{number}" for number in range(65)]}, "/remove_properties"),
        ({"remove_properties": [""]}, "/remove_properties"),
        ({"remove_properties": [f"{number:02}" + "ä" * 63 for number in range(33)]}, "/remove_properties"),
        ({"target_queue": "a b"}, "/target_queue"),
    ],
)
async def test_bad_settings_of_a_subscription_are_refused(
    api: ApiServer, settings: dict[str, Any], pointer: str
) -> None:
    await subscribe(api, "kept")
    for method, name in (("PUT", "s"), ("PATCH", "kept")):
        refused = await api.request(method, f"/topics/orders/subscriptions/{name}", settings)
        (fault,) = problem(refused, 422, "invalid-request")["errors"]
        assert fault["pointer"].startswith(f"#/body{pointer}")
    assert len((await api.request_json("GET", "/topics/orders/subscriptions"))["items"]) == 1


async def test_the_default_queue_needs_a_name_that_a_queue_can_have(api: ApiServer) -> None:
    refused = await api.request("PUT", f"/topics/orders/subscriptions/{'s' * 128}", {})
    assert problem(refused, 422, "invalid-request")["errors"][0]["pointer"] == "#/body/target_queue"


async def test_a_target_queue_must_exist_and_be_free(api: ApiServer) -> None:
    path = "/topics/orders/subscriptions"
    problem(await api.request("PUT", f"{path}/s", {"target_queue": "absent"}), 404, "queue-not-found")
    await subscribe(api, "first")
    problem(await api.request("PUT", f"{path}/second", {"target_queue": "orders.first"}), 409, "target-queue-taken")


# ---- rights ----------------------------------------------------------------------------------------------------------


async def test_a_key_for_the_topic_publishes_and_does_nothing_else() -> None:
    async with open_api_server(needs_keys=True) as api:
        admin = {"Authorization": f"Bearer {await api.new_key(*Right)}"}
        sender = {"Authorization": f"Bearer {await api.new_key(Right.SEND, patterns=('orders',), principal='sender')}"}
        await api.request_json("PUT", "/topics/orders", {}, headers=admin)
        await api.request_json("PUT", "/topics/other", {}, headers=admin)
        await api.request_json("PUT", "/topics/orders/subscriptions/s", {}, headers=admin)
        sent = await api.request("POST", "/topics/orders/messages", {}, headers=sender)
        assert sent.json()["matched"] == 1
        for method, path in (
            ("POST", "/topics/other/messages"),
            ("POST", "/queues/orders.s/messages"),
            ("PUT", "/topics/orders"),
            ("GET", "/topics/orders"),
            ("GET", "/topics"),
            ("DELETE", "/topics/orders/subscriptions/s"),
            ("POST", "/topics/orders/subscriptions/s/test"),
        ):
            problem(await api.request(method, path, None, headers=sender), 403, "forbidden")


async def test_a_manager_of_a_topic_cannot_reach_other_queues_by_it() -> None:
    async with open_api_server(needs_keys=True) as api:
        admin = {"Authorization": f"Bearer {await api.new_key(*Right)}"}
        manager = {"Authorization": f"Bearer {await api.new_key(Right.MANAGE, patterns=('orders',), principal='m')}"}
        both = {
            "Authorization": f"Bearer {await api.new_key(Right.MANAGE, Right.SEND, patterns=('orders', 'mine', 'orders.*'), principal='b')}"
        }
        for queue in ("payroll", "mine"):
            await api.request_json("PUT", f"/queues/{queue}", {}, headers=admin)
        await api.request_json("PUT", "/topics/orders", {}, headers=manager)
        path = "/topics/orders/subscriptions/s"
        for settings in ({"target_queue": "payroll"}, {"target_queue": "absent"}, {}):
            problem(await api.request("PUT", path, settings, headers=manager), 403, "forbidden")
        problem(await api.request("PUT", path, {"target_queue": "payroll"}, headers=both), 403, "forbidden")
        assert (await api.request("PUT", path, {"target_queue": "mine"}, headers=both)).status_code == 201
        problem(await api.request("PATCH", path, {"target_queue": "payroll"}, headers=both), 403, "forbidden")
        assert (await api.request("PATCH", path, {"target_queue": None}, headers=both)).status_code == 200


# ---- test ------------------------------------------------------------------------------------------------------------


async def test_a_test_of_a_subscription_stores_nothing(api: ApiServer) -> None:
    await subscribe(api, "eu", filter="message.properties.region == 'eu'")
    messages = [{"properties": {"region": "eu"}}, {}, {"properties": {"region": 7}}]
    answer = await api.request_json("POST", "/topics/orders/subscriptions/eu/test", {"messages": messages})
    assert answer == {"matches": [True, False, False]}
    assert await api.counts("orders.eu") == {}
    too_many = {"messages": [{}] * 101}
    problem(await api.request("POST", "/topics/orders/subscriptions/eu/test", too_many), 422, "invalid-request")


async def test_a_subscription_is_tested_on_the_newest_messages_of_its_queue(api: ApiServer) -> None:
    await subscribe(api, "eu")
    numbers = []
    for region in ("eu", "us", "eu"):
        await publish(api, properties={"region": region})
        numbers.append((await api.request_json("GET", "/queues/orders.eu/messages"))["items"][-1]["sequence_number"])
    await subscribe(api, "eu", filter="message.properties.region == 'eu'")
    before = await api.request_json("GET", "/queues/orders.eu/messages")
    answer = await api.request_json("POST", "/topics/orders/subscriptions/eu/test", {})
    assert answer == {"matches": [True, False, True], "sequence_numbers": numbers[::-1]}
    assert await api.request_json("GET", "/queues/orders.eu/messages") == before


async def test_a_test_reads_at_most_100_messages_of_the_queue_that_it_names(api: ApiServer) -> None:
    await subscribe(api, "eu", filter="message.subject == 'new'")
    await api.request_json("PUT", "/queues/log", {})
    messages = [{"subject": "old"}] * 20 + [{"subject": "new"}] * 90
    await api.request_json("POST", "/queues/log/messages/batch", {"messages": messages})
    answer = await api.request_json("POST", "/topics/orders/subscriptions/eu/test", {"queue": "log"})
    assert answer["matches"] == [True] * 90 + [False] * 10
    assert answer["sequence_numbers"] == sorted(answer["sequence_numbers"], reverse=True)
    assert await api.request_json("POST", "/topics/orders/subscriptions/eu/test", {}) == {
        "matches": [],
        "sequence_numbers": [],
    }


async def test_a_test_on_messages_of_a_queue_is_refused(api: ApiServer) -> None:
    await subscribe(api, "eu")
    path = "/topics/orders/subscriptions/eu/test"
    problem(await api.request("POST", path, {"queue": "absent"}), 404, "queue-not-found")
    problem(await api.request("POST", path, {"queue": "a b"}), 422, "invalid-request")
    problem(await api.request("POST", path, {"queue": "orders.eu", "messages": [{}]}), 422, "invalid-request")


async def test_a_test_on_messages_of_a_queue_needs_the_right_to_browse_it() -> None:
    async with open_api_server(needs_keys=True) as api:
        admin = {"Authorization": f"Bearer {await api.new_key(Right.MANAGE, Right.SEND)}"}
        reader = {
            "Authorization": f"Bearer {await api.new_key(Right.BROWSE, patterns=('orders', 'mine'), principal='r')}"
        }
        for path in ("/queues/mine", "/topics/orders", "/topics/orders/subscriptions/s"):
            await api.request_json("PUT", path, {}, headers=admin)
        path = "/topics/orders/subscriptions/s/test"
        problem(await api.request("POST", path, {}, headers=reader), 403, "forbidden")
        assert (await api.request("POST", path, {"queue": "mine"}, headers=reader)).status_code == 200
