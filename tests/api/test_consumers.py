"""Consumers report themselves over HTTP, and are listed until the time of their report is over."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.access import Right
from app.domain.consumer import MAX_CONSUMERS_OF_QUEUE
from tests.api.api_server import ApiServer, pointers, problem
from tests.brokers import UnknownConsumers

PATH = "/queues/orders/consumers"
WHY = "5 failures in a row; the last: The target answered 500."
PAUSED = {"state": "paused", "reason": WHY, "target": "https://shop.example/orders"}


@pytest.fixture(autouse=True)
async def _queue(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {})


async def consumers(api: ApiServer, queue: str = "orders") -> list[Any]:
    """Return the consumers of a queue."""
    return (await api.request_json("GET", f"/queues/{queue}/consumers"))["items"]


async def test_a_consumer_that_is_paused_is_listed_with_its_reason(api: ApiServer) -> None:
    assert (await api.request("PUT", f"{PATH}/web-1", PAUSED)).status_code == 204
    (listed,) = await consumers(api)
    times = {listed.pop(name) for name in ("first_reported_at", "state_since", "reported_at")}
    assert listed == {"consumer": "web-1", "principal": "anonymous", **PAUSED}
    assert len(times) == 1


async def test_a_consumer_that_receives_has_no_reason(api: ApiServer) -> None:
    await api.request_json("PUT", f"{PATH}/web-1", {"state": "receiving"})
    (listed,) = await consumers(api)
    assert listed["state"] == "receiving"
    assert not {"reason", "target"} & {*listed}


@pytest.mark.parametrize(("fields", "seconds"), [({}, 60), ({"ttl_seconds": 300}, 300), ({"ttl_seconds": 1}, 1)])
async def test_a_report_counts_for_its_time(api: ApiServer, fields: dict[str, Any], seconds: int) -> None:
    await api.request_json("PUT", f"{PATH}/web-1", {"state": "receiving", **fields})
    await api.advance_time(seconds - 0.1)
    assert len(await consumers(api)) == 1
    await api.advance_time(0.1)
    assert await consumers(api) == []


async def test_a_state_has_the_time_of_its_first_report(api: ApiServer) -> None:
    for fields in ({"state": "receiving"}, PAUSED, PAUSED):
        await api.request_json("PUT", f"{PATH}/web-1", fields)
        await api.advance_time(10)
    (listed,) = await consumers(api)
    assert listed["first_reported_at"] < listed["state_since"] < listed["reported_at"]


async def test_a_consumer_that_stops_removes_its_report(api: ApiServer) -> None:
    await api.request_json("PUT", f"{PATH}/web-1", PAUSED)
    for _ in range(2):
        assert (await api.request("DELETE", f"{PATH}/web-1")).status_code == 204
    assert await consumers(api) == []


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"state": "idle"}, "/state"),
        ({}, "/state"),
        ({"state": "paused"}, "/reason"),
        ({"state": "receiving", "reason": WHY}, "/reason"),
        ({"state": "paused", "reason": ""}, "/reason"),
        ({"state": "paused", "reason": " \u3000"}, "/reason"),
        ({"state": "paused", "reason": "two\nlines"}, "/reason"),
        ({"state": "paused", "reason": "a C1 control \x9b31m"}, "/reason"),
        ({"state": "paused", "reason": "an override \u202etxt.exe"}, "/reason"),
        ({"state": "paused", "reason": "an isolate \u2066txt"}, "/reason"),
        ({"state": "paused", "reason": "x" * 501}, "/reason"),
        ({"state": "receiving", "target": "ftp://shop.example/"}, "/target"),
        ({"state": "receiving", "target": "https://shop.example/a b"}, "/target"),
        ({"state": "receiving", "target": "https://me:tiger@shop.example/"}, "/target"),
        ({"state": "receiving", "target": "https://shop.example?key=1"}, "/target"),
        ({"state": "receiving", "target": "https://shop.example/#key"}, "/target"),
        ({"state": "receiving", "target": "https://shop.example/" + "x" * 480}, "/target"),
        ({"state": "receiving", "ttl_seconds": 0.9}, "/ttl_seconds"),
        ({"state": "receiving", "ttl_seconds": 300.1}, "/ttl_seconds"),
        ({"state": "receiving", "since": 1}, "/since"),
    ],
)
async def test_a_report_that_is_not_valid_is_refused(api: ApiServer, fields: dict[str, Any], pointer: str) -> None:
    refused = await api.request("PUT", f"{PATH}/web-1", fields)
    assert pointers(refused) == [pointer]
    assert await consumers(api) == []


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("name", ["a b", "x" * 129, "-a", "a%2Fb"])
async def test_a_name_of_a_consumer_has_the_form_of_that_of_a_queue(api: ApiServer, method: str, name: str) -> None:
    body = {"state": "receiving"} if method == "PUT" else None
    refused = await api.request(method, f"{PATH}/{name}", body)
    assert pointers(refused) == ["#/path/consumer"]


async def test_a_queue_that_was_deleted_has_no_consumers_when_it_is_made_again(api: ApiServer) -> None:
    await api.request_json("PUT", f"{PATH}/web-1", PAUSED)
    await api.request_json("DELETE", "/queues/orders")
    for response in (
        await api.request("GET", PATH),
        await api.request("PUT", f"{PATH}/web-1", PAUSED),
        await api.request("DELETE", f"{PATH}/web-1"),
    ):
        problem(response, 404, "queue-not-found")
    await api.request_json("PUT", "/queues/orders", {})
    assert await consumers(api) == []


async def test_a_queue_with_its_limit_of_consumers_takes_no_further_one(api: ApiServer) -> None:
    for number in range(MAX_CONSUMERS_OF_QUEUE):
        await api.request_json("PUT", f"{PATH}/c{number}", PAUSED)
    refused = problem(await api.request("PUT", f"{PATH}/other", PAUSED), 409, "too-many-consumers")
    assert refused["retryable"] is True
    assert len(await consumers(api)) == MAX_CONSUMERS_OF_QUEUE


async def test_while_reports_cannot_be_known_no_list_is_answered(api: ApiServer) -> None:
    without_redis = ApiServer(replace(api.broker, consumers=UnknownConsumers()), api.clock, None)
    for response in (
        await without_redis.request("GET", PATH),
        await without_redis.request("PUT", f"{PATH}/web-1", PAUSED),
        await without_redis.request("DELETE", f"{PATH}/web-1"),
    ):
        assert problem(response, 503, "consumers-unknown")["retryable"] is True


async def test_a_consumer_belongs_to_the_principal_of_its_key(api_with_keys: ApiServer) -> None:
    api = api_with_keys
    manage = await api.new_key(Right.MANAGE, Right.BROWSE)
    owners = {name: await api.new_key(Right.LISTEN, patterns=("orders",), principal=name) for name in ("a", "b")}
    headers = {name: {"authorization": f"Bearer {key}"} for name, key in {**owners, "manage": manage}.items()}
    await api.request_json("PUT", "/queues/orders", {}, headers=headers["manage"])
    for name in owners:
        await api.request_json("PUT", f"{PATH}/web-1", PAUSED, headers=headers[name])
    await api.request_json("DELETE", f"{PATH}/web-1", headers=headers["a"])
    (listed,) = (await api.request_json("GET", PATH, headers=headers["manage"]))["items"]
    assert listed["principal"] == "b"
