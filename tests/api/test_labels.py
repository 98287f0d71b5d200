"""Labels of queues, topics and subscriptions: kept as given, replaced by PUT, merged by PATCH, without an effect on messages."""

from typing import Any

import msgspec
import pytest

from app.domain.queue import MAX_LABELS, MAX_LABELS_BYTES
from tests.api.api_server import ApiServer, pointers

ORDERS = "/queues/orders"
EU = "/topics/sales/subscriptions/eu"


@pytest.fixture(params=[ORDERS, "/topics/orders", EU])
async def path(request: pytest.FixtureRequest, api: ApiServer) -> str:
    """The path of what has labels."""
    await api.request_json("PUT", "/topics/sales", {})
    return request.param


async def labels(api: ApiServer, path: str) -> Any:
    return (await api.request_json("GET", path))["labels"]


def largest_labels() -> dict[str, str]:
    """Labels with as many bytes of JSON as are allowed, the first of which can still grow."""
    found = {"first": ""} | {f"{number:070}": "v" * 256 for number in range(MAX_LABELS - 1)}
    missing = MAX_LABELS_BYTES - len(msgspec.json.encode(found))
    assert 0 < missing < 256
    return found | {"first": "v" * missing}


async def test_labels_are_merged_by_patch_and_replaced_by_put(api: ApiServer, path: str) -> None:
    await api.request_json("PUT", path, {"labels": {"a": "1", "b": "2"}})
    await api.request_json("PATCH", path, {"labels": {"b": None, "c": "", "absent": None}})
    assert await labels(api, path) == {"a": "1", "c": ""}
    await api.request_json("PATCH", path, {})
    assert await labels(api, path) == {"a": "1", "c": ""}
    await api.request_json("PUT", path, {"labels": {"d": "4"}})
    assert await labels(api, path) == {"d": "4"}
    await api.request_json("PATCH", path, {"labels": None})
    assert await labels(api, path) == {}


async def test_all_labels_can_be_exchanged_by_one_patch(api: ApiServer, path: str) -> None:
    before = {f"before {number}": "" for number in range(MAX_LABELS)}
    after = {f"after {number}": "" for number in range(MAX_LABELS)}
    await api.request_json("PUT", path, {"labels": before})
    assert pointers(await api.request("PATCH", path, {"labels": {"one": "more"}})) == ["/labels"]
    await api.request_json("PATCH", path, {"labels": {**dict.fromkeys(before), **after}})
    assert await labels(api, path) == after


async def test_the_same_labels_in_another_order_change_nothing(api: ApiServer, path: str) -> None:
    first = await api.request("PUT", path, {"labels": {"a": "1", "b": "2"}})
    second = await api.request("PUT", path, {"labels": {"b": "2", "a": "1"}})
    assert first.headers["etag"] == second.headers["etag"]


async def test_the_bytes_of_all_labels_are_limited(api: ApiServer, path: str) -> None:
    most = largest_labels()
    await api.request_json("PUT", path, {"labels": most})
    assert await labels(api, path) == most
    (name, *_) = most
    for method, over in (("PUT", {**most, name: f"{most[name]}x"}), ("PATCH", {name: f"{most[name]}x"})):
        refused = await api.request(method, path, {"labels": over})
        assert pointers(refused) == ["/labels"]
        assert str(MAX_LABELS_BYTES) in refused.json()["detail"]
    assert await labels(api, path) == most


@pytest.mark.parametrize("text", [rb"\ud800", rb"\u0000", rb"\udc00\ud800"])
@pytest.mark.parametrize("body", [b'{"labels": {"a": "%s"}}', b'{"labels": {"%s": "a"}}'])
async def test_a_label_with_a_character_that_no_text_can_have_is_refused(
    api: ApiServer, path: str, text: bytes, body: bytes
) -> None:
    refused = await api.request("PUT", path, content=body % text)
    assert refused.status_code in (400, 422), refused.text
    assert (await api.request("GET", path)).status_code == 404


async def test_a_label_has_up_to_1024_characters(api: ApiServer, path: str) -> None:
    await api.request_json("PUT", path, {"labels": {"n" * 128: "é" * 1024}})
    assert await labels(api, path) == {"n" * 128: "é" * 1024}
    for method in ("PUT", "PATCH"):
        for wrong in ({"a": "v" * 1025}, {"n" * 129: ""}, {"": "a"}, {"a": 1}, {"a": "nul\0"}, ["a"]):
            assert pointers(await api.request(method, path, {"labels": wrong})) == ["/labels"], wrong
    many = {f"{number}": "" for number in range(MAX_LABELS + 1)}
    assert pointers(await api.request("PUT", path, {"labels": many})) == ["/labels"]
    assert pointers(await api.request("PATCH", path, {"labels": many})) == ["/labels"]
    assert await labels(api, path) == {"n" * 128: "é" * 1024}


@pytest.mark.parametrize("path", ["/topics/sales", EU])
async def test_a_change_of_other_settings_keeps_the_labels(api: ApiServer, path: str) -> None:
    await api.request_json("PUT", "/topics/sales", {})
    await api.request_json("PUT", path, {"labels": {"a": "1"}})
    change = {"filter": "true"} if path == EU else {"description": "Orders."}
    assert (await api.request_json("PATCH", path, change))["labels"] == {"a": "1"}
    listed = await api.request_json("GET", path.rpartition("/")[0])
    assert [item["labels"] for item in listed["items"]] == [{"a": "1"}]
    assert (await api.request_json("PUT", path, {}))["labels"] == {}


async def test_a_change_of_labels_ends_no_lock(api: ApiServer) -> None:
    await api.send()
    (message,) = await api.receive()
    await api.request_json("PATCH", ORDERS, {"labels": {"team": "payments"}})
    assert (await api.settle(message, "complete")).status_code == 200
