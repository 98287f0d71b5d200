"""What /metrics says of queues: to whom, how often the store is asked for it, and while the store is slow."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api import figures, metrics
from app.api.application import build
from app.api.front import Front
from app.broker.catalogue import Catalogue
from app.domain.access import Right
from app.domain.queue import QueueCounts
from tests.api.house import METRICS_KEY, House, problem

NAMED = 'peeklock_queue_messages{queue="orders",state="available"} 1.0'
TOTAL = 'peeklock_messages{state="available"} 1.0'


class Counting:
    """Counts how often the store is asked for counts, and may keep its callers waiting."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()
        self._counts = house.broker.store.queues.counts
        monkeypatch.setattr(house.broker.store.queues, "counts", self.counts)

    async def counts(self, queue_ids: Sequence[int]) -> Mapping[int, QueueCounts]:
        self.asked += 1
        await self.open.wait()
        return await self._counts(queue_ids)


async def read(house: House, key: str | None = None) -> list[str]:
    answer = await house.http.get("/metrics", headers={"authorization": f"Bearer {key}"} if key else {})
    assert answer.status_code == 200
    return answer.text.splitlines()


# ---- to whom ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_asks_for_no_keys_names_its_queues(house: House) -> None:
    await house.send()
    assert {NAMED, TOTAL, "peeklock_queues 1.0"} <= set(await read(house))


async def test_without_a_key_there_are_totals_and_no_names(guarded: House) -> None:
    await prepare(guarded)
    lines = await read(guarded)
    assert TOTAL in lines
    assert "orders" not in "".join(lines)


async def test_the_metrics_key_and_a_key_that_may_browse_see_names(guarded: House) -> None:
    await prepare(guarded)
    assert NAMED in await read(guarded, METRICS_KEY)
    assert NAMED in await read(guarded, await guarded.key(Right.BROWSE, principal="watcher"))


async def test_the_scheme_of_the_metrics_key_may_be_written_in_any_case(guarded: House) -> None:
    await prepare(guarded)
    answer = await guarded.http.get("/metrics", headers={"authorization": f"bEARER  {METRICS_KEY} "})
    assert NAMED in answer.text.splitlines()


async def test_a_key_without_the_right_to_browse_every_queue_sees_totals(guarded: House) -> None:
    await prepare(guarded)
    for number, key in enumerate(
        [
            await guarded.key(Right.SEND, Right.LISTEN, principal="worker"),
            await guarded.key(Right.BROWSE, patterns=("bills",), principal="clerk"),
        ]
    ):
        lines = await read(guarded, key)
        assert TOTAL in lines, number
        assert "orders" not in "".join(lines), number


async def test_a_key_that_is_none_is_refused(guarded: House) -> None:
    problem(await guarded.http.get("/metrics", headers={"authorization": "Bearer wrong"}), 401, "unauthenticated")


async def test_series_of_queues_can_be_switched_off_and_are_bounded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.send()
    await house.send(queue="bills")
    monkeypatch.setattr(metrics, "MOST_NAMED", 1)
    text = "".join(await read(house))
    assert 'queue="bills"' in text
    assert 'queue="orders"' not in text
    silent = Front(build(replace(house.desk, names_queues=False)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(silent), base_url="http://peeklock.test") as http:
        text = (await http.get("/metrics")).text
    assert 'peeklock_messages{state="available"} 2.0' in text
    assert "bills" not in text


async def prepare(house: House) -> None:
    key = await house.key(*Right, principal="owner")
    await house.call("PUT", "/queues/orders", {}, headers={"authorization": f"Bearer {key}"})
    await house.call("POST", "/queues/orders/messages", {}, headers={"authorization": f"Bearer {key}"})


# ---- how often, and while the store is slow --------------------------------------------------------------------------


async def test_all_that_ask_within_a_second_share_one_collection(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.send()
    store = Counting(house, monkeypatch)
    await asyncio.gather(*(read(house) for _ in range(10)))
    await read(house)
    assert store.asked == 1
    await house.clock.advance(1)
    await read(house)
    assert store.asked == 2


async def test_a_slow_store_is_up_with_its_last_figures(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.send()
    store = Counting(house, monkeypatch)
    assert {"peeklock_store_up 1.0", "peeklock_store_slow 0.0"} <= set(await read(house))
    monkeypatch.setattr(figures, "PATIENCE_SECONDS", 0.01)
    await house.clock.advance(1)
    store.open.clear()
    for _ in range(3):
        assert {"peeklock_store_up 1.0", "peeklock_store_slow 1.0", NAMED} <= set(await read(house))
    assert house.broker.tally["slow_collections"] == 3
    assert store.asked == 2, "the collection under way is shared by those that come later"
    store.open.set()
    await house.send()
    await house.clock.advance(1)
    assert "peeklock_store_slow 0.0" in await read(house)


# ---- a limit of queues -----------------------------------------------------------------------------------------------


async def test_no_queue_is_made_above_the_limit(house: House) -> None:
    catalogue = Catalogue(house.broker.store.queues, house.clock, auto_create=True, most_queues=2)
    house.desk = replace(house.desk, broker=replace(house.broker, catalogue=catalogue))
    limited = limit(house)
    await limited.send(queue="one")
    await limited.ask("PUT", "/queues/two", {})
    problem(await limited.call("POST", "/queues/three/messages", {}), 409, "too-many-queues")
    problem(await limited.call("PUT", "/queues/three", {}), 409, "too-many-queues")
    await limited.ask("PUT", "/queues/two", {"description": "changed"})
    await limited.send(queue="one")
    await limited.ask("DELETE", "/queues/two")
    await limited.send(queue="three")


def limit(house: House) -> Any:
    """The same server with another limit of queues."""
    return House(house.desk.broker, house.clock, house.doorkeeper)
