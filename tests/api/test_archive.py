"""Sealed batches over HTTP: listed in pages, and trimmed only with a matching copy."""

from typing import Any

import pytest

from app.broker.administration import archive as verbs
from app.domain.archive import CopiedBatch, TrimResult
from app.maintenance.seal import ArchiveSealer
from tests.api.api_server import ApiServer, pointers
from tests.bounds import bounded


async def seal_batch(api: ApiServer, count: int = 1) -> None:
    """Complete messages and seal them as a batch."""
    for _ in range(count):
        await api.send()
        (message,) = await api.receive()
        assert (await api.settle(message, "complete")).is_success
    sealing = ArchiveSealer(api.broker.administration, 0.001)
    await api.clock.advance(100)
    for _ in bounded("sealing rests"):
        if await sealing.step():
            break


async def batches(api: ApiServer, **query: Any) -> list[Any]:
    """Return the batches of one page."""
    return (await api.request_json("GET", "/archive/batches", params=query))["items"]


async def trim(api: ApiServer, *copies: Any) -> list[str]:
    """Trim these batches and return the results."""
    named = [{name: copy[name] for name in ("number", "row_count", "digest")} for copy in copies]
    answer = await api.request_json("POST", "/archive/trim", {"batches": named})
    assert [batch["number"] for batch in answer["batches"]] == [copy["number"] for copy in copies]
    return [batch["result"] for batch in answer["batches"]]


async def test_a_batch_is_listed_with_its_count_and_digest(api: ApiServer) -> None:
    await seal_batch(api, 2)
    (batch,) = await batches(api)
    assert (batch["number"], batch["row_count"], len(batch["digest"])) == (1, 2, 64)
    assert batch["sealed_at"] < batch["remove_at"]
    assert (batch["removed_at"], batch["removal"]) == (None, None)


async def test_batches_are_listed_in_pages_after_a_number(api: ApiServer) -> None:
    for _ in range(3):
        await seal_batch(api)
    first = await api.request_json("GET", "/archive/batches", params={"limit": 2})
    assert [batch["number"] for batch in first["items"]] == [1, 2]
    rest = await api.request_json("GET", "/archive/batches", params={"limit": 2, "cursor": first["next_cursor"]})
    assert ([batch["number"] for batch in rest["items"]], rest["next_cursor"]) == ([3], None)
    assert [batch["number"] for batch in await batches(api, after=1, limit=2)] == [2, 3]
    assert await batches(api, after=3) == []


@pytest.mark.parametrize("cursor", ["x", "-1", "9" * 19, "٣"])
async def test_an_invalid_cursor_is_refused(api: ApiServer, cursor: str) -> None:
    answer = await api.request("GET", "/archive/batches", params={"cursor": cursor})
    assert pointers(answer) == ["#/query/cursor"]


async def test_a_batch_is_trimmed_once_and_only_with_a_matching_copy(api: ApiServer) -> None:
    await seal_batch(api, 2)
    await seal_batch(api)
    await api.clock.advance(3600)
    one, other = await batches(api)
    assert await trim(api, one) == ["trimmed"]
    assert await trim(api, one, {**other, "digest": "0" * 64}, {**other, "number": 9}) == [
        "already_removed",
        "differs",
        "unknown",
    ]
    trimmed, left = await batches(api)
    assert (trimmed["removal"], trimmed["removed_at"] is None) == ("trimmed", False)
    assert left == other


async def test_a_batch_is_trimmed_an_hour_after_its_last_message_ended(api: ApiServer) -> None:
    await api.send()
    (message,) = await api.receive()
    assert (await api.settle(message, "complete")).is_success
    await seal_batch(api)
    (batch,) = await batches(api)
    assert await trim(api, batch) == ["too_young"]
    assert (await api.settle(message, "complete")).is_success


async def test_batches_not_reached_in_time_are_left_for_another_request(api: ApiServer) -> None:
    for _ in range(3):
        await seal_batch(api)
    await api.clock.advance(3600)
    copies = [CopiedBatch(batch["number"], batch["row_count"], batch["digest"]) for batch in await batches(api)]
    assert await verbs.trim(api.broker.administration, copies, timeout_seconds=0) == [TrimResult.TRIMMED]
    assert await verbs.trim(api.broker.administration, copies) == [
        TrimResult.ALREADY_REMOVED,
        *[TrimResult.TRIMMED] * 2,
    ]


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"batches": []}, "/batches"),
        ({"batches": [{"number": 0, "row_count": 1, "digest": "0" * 64}]}, "/batches/0/number"),
        ({"batches": [{"number": 1, "row_count": 1, "digest": "0" * 63}]}, "/batches/0/digest"),
        ({"batches": [{"number": 1, "row_count": 1, "digest": "0" * 64}] * 1001}, "/batches"),
    ],
)
async def test_an_invalid_trim_request_is_refused(api: ApiServer, wrong: Any, pointer: str) -> None:
    assert pointers(await api.request("POST", "/archive/trim", wrong)) == [pointer]
