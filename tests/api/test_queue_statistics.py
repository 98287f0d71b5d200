"""Queues in /metrics: who sees their names, how often the store is read, and what a slow store changes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api.application import build_application
from app.broker.administration.queues import QueueWithCounts
from app.broker.queue_cache import QueueCache
from app.domain.access import Right
from app.domain.queue import Queue, QueueCounts, QueueSettings
from app.domain.refusals import StoreUnavailable
from app.http.message_counters import MAX_COUNTED_QUEUES
from app.http.metrics import MAX_NAMED_QUEUES, Metrics, MetricsSnapshot
from app.http.metrics_page import MetricsPage
from app.http.queue_statistics import _TIMEOUT_SECONDS, QueueStatistics
from app.http.request_id import RequestIdMiddleware
from tests.api.api_server import METRICS_KEY, ApiServer, problem
from tests.brokers import ChangedStore
from tests.faults.polling import wait_until

NAMED = 'peeklock_queue_messages{queue="orders",state="available"} 1.0'
TOTAL = 'peeklock_messages{state="available"} 1.0'


class CountingStore:
    """Counts the reads of the store, and delays or refuses them on demand."""

    def __init__(self, api: ApiServer) -> None:
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()
        self.is_down = False
        self._counts = api.broker.store.queues.counts
        self.api = api.with_store(queues=ChangedStore(api.broker.store.queues, counts=self.counts))

    async def counts(self, queue_ids: Sequence[int]) -> Mapping[int, QueueCounts]:
        self.asked += 1
        await self.open.wait()
        if self.is_down:
            raise StoreUnavailable
        return await self._counts(queue_ids)


async def read_metrics(api: ApiServer, key: str | None = None) -> list[str]:
    answer = await api.http.get("/metrics", headers={"authorization": f"Bearer {key}"} if key else {})
    assert answer.status_code == 200
    return answer.text.splitlines()


# ---- who sees names ---------------------------------------------------------------------------------------------------------


async def test_a_server_without_keys_names_its_queues(api: ApiServer) -> None:
    await api.send()
    assert {NAMED, TOTAL, "peeklock_queues 1.0"} <= set(await read_metrics(api))


async def test_a_request_without_a_key_gets_totals_without_names(api_with_keys: ApiServer) -> None:
    await prepare(api_with_keys)
    lines = await read_metrics(api_with_keys)
    assert TOTAL in lines
    assert "orders" not in "".join(lines)


async def test_the_metrics_key_and_a_key_that_may_browse_see_names(api_with_keys: ApiServer) -> None:
    await prepare(api_with_keys)
    assert NAMED in await read_metrics(api_with_keys, METRICS_KEY)
    assert NAMED in await read_metrics(api_with_keys, await api_with_keys.new_key(Right.BROWSE, principal="watcher"))


async def test_the_scheme_of_the_metrics_key_may_be_written_in_any_case(api_with_keys: ApiServer) -> None:
    await prepare(api_with_keys)
    answer = await api_with_keys.http.get("/metrics", headers={"authorization": f"bEARER  {METRICS_KEY} "})
    assert NAMED in answer.text.splitlines()


async def test_a_key_without_the_right_to_browse_every_queue_sees_totals(api_with_keys: ApiServer) -> None:
    await prepare(api_with_keys)
    for number, key in enumerate(
        [
            await api_with_keys.new_key(Right.SEND, Right.LISTEN, principal="worker"),
            await api_with_keys.new_key(Right.BROWSE, patterns=("bills",), principal="clerk"),
        ]
    ):
        lines = await read_metrics(api_with_keys, key)
        assert TOTAL in lines, number
        assert "orders" not in "".join(lines), number


@pytest.mark.parametrize("key", ["wrong", "", METRICS_KEY[:-1], f"{METRICS_KEY}x", METRICS_KEY.upper()])
async def test_an_unknown_key_is_refused(api_with_keys: ApiServer, key: str) -> None:
    answer = await api_with_keys.http.get("/metrics", headers={"authorization": f"Bearer {key}"})
    problem(answer, 401, "unauthenticated")


def test_the_number_of_queues_with_their_own_series_is_bounded() -> None:
    queues = [listed_queue(number) for number in range(MAX_NAMED_QUEUES + 1)]
    text = Metrics().render(MetricsSnapshot(queues, "none")).decode()
    assert f'queue="queue-{MAX_NAMED_QUEUES - 1}"' in text
    assert f'queue="queue-{MAX_NAMED_QUEUES}"' not in text
    assert f"peeklock_queues {len(queues)}.0" in text


NAMED_EVENT = 'peeklock_queue_message_events_total{event="sent",queue="queue-1"} 3.0'


@pytest.mark.parametrize(("per_queue", "named"), [(True, [NAMED_EVENT]), (False, [])])
def test_what_happened_to_messages_has_names_where_queues_have(per_queue: bool, named: list[str]) -> None:
    metrics = Metrics()
    metrics.count_messages(1, "sent", 3)
    metrics.count_messages(2, "sent", 4)  # of a queue that is deleted
    lines = metrics.render(MetricsSnapshot([listed_queue(1)], "none", per_queue=per_queue)).decode().splitlines()
    assert 'peeklock_message_events_total{event="sent"} 7.0' in lines
    assert [line for line in lines if line.startswith("peeklock_queue_message_events_total{")] == named


def test_the_messages_of_very_many_queues_count_in_totals_only() -> None:
    metrics = Metrics()
    for number in range(1, MAX_COUNTED_QUEUES + 3):
        metrics.count_messages(number, "sent")
    queues = [listed_queue(number) for number in (1, MAX_COUNTED_QUEUES + 1)]
    lines = metrics.render(MetricsSnapshot(queues, "none")).decode().splitlines()
    assert f'peeklock_message_events_total{{event="sent"}} {MAX_COUNTED_QUEUES + 2}.0' in lines
    named = [line for line in lines if line.startswith("peeklock_queue_message_events_total{")]
    assert named == ['peeklock_queue_message_events_total{event="sent",queue="queue-1"} 1.0']


def event_series(metrics: Metrics, snapshot: MetricsSnapshot) -> list[str]:
    """Return the series of message events, in total and by queue."""
    lines = metrics.render(snapshot).decode().splitlines()
    return [line.removeprefix("peeklock_") for line in lines if "message_events_total{" in line]


def test_a_deleted_queue_leaves_its_series_to_a_new_one() -> None:
    metrics, new = Metrics(), MAX_COUNTED_QUEUES + 1
    for number in range(1, new):
        metrics.count_messages(number, "sent", 2)
    remaining = MetricsSnapshot([listed_queue(number) for number in (1, new)], "none")
    metrics.free_deleted_queues(remaining)
    metrics.count_messages(new, "sent", 3)
    metrics.count_messages(1, "sent")
    assert event_series(metrics, remaining) == [
        f'message_events_total{{event="sent"}} {MAX_COUNTED_QUEUES * 2 + 4}.0',
        'queue_message_events_total{event="sent",queue="queue-1"} 3.0',
        f'queue_message_events_total{{event="sent",queue="queue-{new}"}} 3.0',
    ]


def test_a_process_counts_each_of_many_queues_that_live_shortly() -> None:
    metrics = Metrics()
    for number in range(1, 2 * MAX_COUNTED_QUEUES, 500):
        for queue_id in range(number, number + 500):
            metrics.count_messages(queue_id, "sent", 5)
        snapshot = MetricsSnapshot([listed_queue(number + 499)], "none")
        metrics.free_deleted_queues(snapshot)
        assert event_series(metrics, snapshot)[1:] == [
            f'queue_message_events_total{{event="sent",queue="queue-{number + 499}"}} 5.0'
        ]


@pytest.mark.parametrize("change", [{"queues": None}, {"is_slow": True}, {"queues": []}])
def test_a_series_stays_while_the_queues_are_not_known(change: dict[str, Any]) -> None:
    metrics, snapshot = Metrics(), MetricsSnapshot([listed_queue(1), listed_queue(3)], "none")
    for number in (1, 3):
        metrics.count_messages(number, "sent")
    metrics.free_deleted_queues(replace(MetricsSnapshot([listed_queue(3)], "none"), **change))
    assert len(event_series(metrics, snapshot)) == 3


def test_a_queue_that_is_newer_than_the_known_ones_keeps_its_series() -> None:
    metrics = Metrics()
    metrics.count_messages(7, "sent")
    metrics.free_deleted_queues(MetricsSnapshot([listed_queue(6)], "none"))
    assert len(event_series(metrics, MetricsSnapshot([listed_queue(7)], "none"))) == 2


class KnownStatistics(QueueStatistics):
    """Statistics that return a snapshot of one queue."""

    def __init__(self, queue_id: int) -> None:
        self.known = MetricsSnapshot([listed_queue(queue_id)], "none")

    async def snapshot(self) -> MetricsSnapshot:
        return self.known


async def test_an_answer_frees_the_series_of_deleted_queues(api: ApiServer) -> None:
    metrics, new = Metrics(), MAX_COUNTED_QUEUES + 1
    page = MetricsPage(metrics, KnownStatistics(new), api.clock)
    for number in range(1, new + 1):
        metrics.count_messages(number, "sent")
    series = f'peeklock_queue_message_events_total{{event="sent",queue="queue-{new}"}} 1.0'
    assert series not in (await page.read(per_queue=True)).decode()
    metrics.count_messages(new, "sent")
    assert series in (await page.read(per_queue=True)).decode()


def test_no_created_series_is_exposed() -> None:
    metrics = Metrics()
    metrics.count("locks_expired")
    metrics.count_messages(1, "sent")
    assert "_created" not in metrics.render(MetricsSnapshot([listed_queue(1)], "none")).decode()


def listed_queue(number: int) -> QueueWithCounts:
    queue = Queue(number, f"queue-{number}", QueueSettings(), version=1, created_at=0, updated_at=0)
    return QueueWithCounts(queue, QueueCounts(available=1))


async def test_sends_that_wait_for_a_commit_are_counted(api: ApiServer) -> None:
    transaction = (await api.request_json("POST", "/transactions"))["id"]
    await api.send(transaction_id=transaction)
    text = (await api.http.get("/metrics")).text
    assert 'peeklock_messages{state="uncommitted"} 1.0' in text
    assert 'peeklock_messages{state="available"} 0.0' in text


async def test_series_of_queues_can_be_switched_off(api: ApiServer) -> None:
    await api.send()
    await api.send(queue="bills")
    silent = RequestIdMiddleware(build_application(replace(api.context, metrics_per_queue=False)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(silent), base_url="http://peeklock.test") as http:
        text = (await http.get("/metrics")).text
    assert 'peeklock_messages{state="available"} 2.0' in text
    assert "bills" not in text


async def prepare(api: ApiServer) -> None:
    key = await api.new_key(*Right, principal="owner")
    await api.request("PUT", "/queues/orders", {}, headers={"authorization": f"Bearer {key}"})
    await api.request("POST", "/queues/orders/messages", {}, headers={"authorization": f"Bearer {key}"})


# ---- how often, and while the store is slow --------------------------------------------------------------------------


async def test_requests_within_a_second_share_one_collection(api: ApiServer) -> None:
    await api.send()
    store = CountingStore(api)
    await asyncio.gather(*(read_metrics(store.api) for _ in range(10)))
    await read_metrics(store.api)
    assert store.asked == 1
    await api.clock.advance(1)
    await read_metrics(store.api)
    assert store.asked == 2


async def test_callers_who_see_totals_share_one_answer_a_second(api_with_keys: ApiServer) -> None:
    await prepare(api_with_keys)
    first, second = (f'peeklock_events_total{{event="locks_expired"}} {count}.0' for count in (1, 2))
    api_with_keys.context.metrics.count("locks_expired")
    assert first in await read_metrics(api_with_keys)
    api_with_keys.context.metrics.count("locks_expired")
    assert first in await read_metrics(api_with_keys)
    assert second in await read_metrics(api_with_keys, METRICS_KEY)
    await api_with_keys.clock.advance(1)
    assert second in await read_metrics(api_with_keys)


async def test_a_slow_store_is_up_with_its_last_known_counts(api: ApiServer) -> None:
    await api.send()
    store = CountingStore(api)
    assert {"peeklock_store_up 1.0", "peeklock_store_slow 0.0"} <= set(await read_metrics(store.api))
    await api.clock.advance(1)
    store.open.clear()
    for _ in range(3):
        reading = asyncio.create_task(read_metrics(store.api))
        await wait_until(lambda: store.asked == 2, "the store is asked")
        await api.clock.advance(_TIMEOUT_SECONDS)
        assert {"peeklock_store_up 1.0", "peeklock_store_slow 1.0", NAMED} <= set(await reading)
    assert api.broker.counters["slow_collections"] == 3
    assert store.asked == 2, "the collection under way is shared by those that come later"
    store.open.set()
    await api.send()
    await api.clock.advance(1)
    assert "peeklock_store_slow 0.0" in await read_metrics(store.api)


async def test_a_store_that_answers_no_more_is_down_and_has_no_counts(api: ApiServer) -> None:
    await api.send()
    store = CountingStore(api)
    assert {"peeklock_store_up 1.0", NAMED} <= set(await read_metrics(store.api))
    await api.clock.advance(1)
    store.is_down = True
    lines = await read_metrics(store.api)
    assert {"peeklock_store_up 0.0", "peeklock_store_slow 0.0"} <= set(lines)
    assert NAMED not in lines


# ---- a limit of queues -----------------------------------------------------------------------------------------------


async def test_no_queue_is_created_above_the_limit(api: ApiServer) -> None:
    queue_cache = QueueCache(api.broker.store.queues, api.clock, auto_create=True, max_queues=2)
    limited = ApiServer(replace(api.broker, queue_cache=queue_cache), api.clock, api.authenticator)
    await limited.send(queue="one")
    await limited.request_json("PUT", "/queues/two", {})
    problem(await limited.request("POST", "/queues/three/messages", {}), 409, "too-many-queues")
    problem(await limited.request("PUT", "/queues/three", {}), 409, "too-many-queues")
    await limited.request_json("PUT", "/queues/two", {"description": "changed"})
    await limited.send(queue="one")
    await limited.request_json("DELETE", "/queues/two")
    await limited.send(queue="three")
