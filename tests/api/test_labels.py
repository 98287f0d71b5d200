"""Labels of a queue: kept as they are given, replaced by PUT, merged by PATCH, without an effect on messages."""

from typing import Any

import msgspec
import pytest

from app.domain.queue import MAX_LABELS, MAX_LABELS_BYTES
from tests.api.api_server import ApiServer, pointers, problem

ORDERS = "/queues/orders"


async def labels(api: ApiServer) -> Any:
    return (await api.request_json("GET", ORDERS))["labels"]


def largest_labels() -> dict[str, str]:
    """Labels with as many bytes of JSON as are allowed, the first of which can still grow."""
    found = {"first": ""} | {f"{number:070}": "v" * 256 for number in range(MAX_LABELS - 1)}
    missing = MAX_LABELS_BYTES - len(msgspec.json.encode(found))
    assert 0 < missing < 256
    return found | {"first": "v" * missing}


async def test_labels_are_merged_by_patch_and_replaced_by_put(api: ApiServer) -> None:
    await api.request_json("PUT", ORDERS, {"labels": {"a": "1", "b": "2"}})
    await api.request_json("PATCH", ORDERS, {"labels": {"b": None, "c": "", "absent": None}})
    assert await labels(api) == {"a": "1", "c": ""}
    await api.request_json("PATCH", ORDERS, {"description": "Orders."})
    assert await labels(api) == {"a": "1", "c": ""}
    await api.request_json("PUT", ORDERS, {"labels": {"d": "4"}})
    assert await labels(api) == {"d": "4"}
    await api.request_json("PATCH", ORDERS, {"labels": None})
    assert await labels(api) == {}


async def test_all_labels_can_be_exchanged_by_one_patch(api: ApiServer) -> None:
    before = {f"before {number}": "" for number in range(MAX_LABELS)}
    after = {f"after {number}": "" for number in range(MAX_LABELS)}
    await api.request_json("PUT", ORDERS, {"labels": before})
    assert pointers(await api.request("PATCH", ORDERS, {"labels": {"one": "more"}})) == ["/labels"]
    await api.request_json("PATCH", ORDERS, {"labels": {**dict.fromkeys(before), **after}})
    assert await labels(api) == after


async def test_the_same_labels_in_another_order_change_nothing(api: ApiServer) -> None:
    first = await api.request("PUT", ORDERS, {"labels": {"a": "1", "b": "2"}})
    second = await api.request("PUT", ORDERS, {"labels": {"b": "2", "a": "1"}})
    assert first.headers["etag"] == second.headers["etag"]


async def test_the_bytes_of_all_labels_are_limited(api: ApiServer) -> None:
    most = largest_labels()
    await api.request_json("PUT", ORDERS, {"labels": most})
    assert await labels(api) == most
    (name, *_) = most
    for method, over in (("PUT", {**most, name: f"{most[name]}x"}), ("PATCH", {name: f"{most[name]}x"})):
        refused = await api.request(method, ORDERS, {"labels": over})
        assert pointers(refused) == ["/labels"]
        assert str(MAX_LABELS_BYTES) in refused.json()["detail"]
    assert await labels(api) == most


@pytest.mark.parametrize("text", [rb"\ud800", rb"\u0000", rb"\udc00\ud800"])
@pytest.mark.parametrize("body", [b'{"labels": {"a": "%s"}}', b'{"labels": {"%s": "a"}}'])
async def test_a_label_with_a_character_that_no_text_can_have_is_refused(
    api: ApiServer, text: bytes, body: bytes
) -> None:
    refused = await api.request("PUT", ORDERS, content=body % text)
    assert refused.status_code in (400, 422), refused.text
    problem(await api.request("GET", ORDERS), 404, "queue-not-found")


async def test_a_change_of_labels_ends_no_lock(api: ApiServer) -> None:
    await api.send()
    (message,) = await api.receive()
    await api.request_json("PATCH", ORDERS, {"labels": {"team": "payments"}})
    assert (await api.settle(message, "complete")).status_code == 200
