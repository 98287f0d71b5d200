"""Filtered scans have a bounded cost and still find every match that stays available."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from app.broker.administration.browse import browse, try_filter
from app.broker.administration.page_limits import PageLimits
from app.broker.administration.plan import plan_restore, plan_selection
from app.broker.administration.purge import purge
from app.broker.administration.redrive import redrive
from app.broker.administration.restore import restore
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import CelFilter, MatchAll
from app.broker.filtering.search_state import MAX_BATCH_SIZE as LARGEST_BATCH_SIZE
from app.broker.filtering.search_state import SearchRegistry
from app.broker.notify_receivers import on_remote_messages
from app.broker.receiving import receive_filtered
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.receiving.search_limits import SearchLimits
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon
from app.broker.settling.settle import settle_one
from app.domain.delivery import Claim, DeliveryPosition
from app.domain.instant import Instant
from app.domain.message import (
    MAX_PROPERTIES_BYTES,
    BodyKind,
    Envelope,
    Message,
    MessageHeaders,
    MessageMetadata,
    MessageState,
)
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import Overloaded, RateLimited
from app.domain.sending import NewMessage
from app.domain.settlement import token_of, undelivered_release
from app.domain.weight import MAX_RESPONSE_BYTES, MESSAGE_OVERHEAD_BYTES
from app.locks.notifier import LocalNotifier
from app.maintenance.schedule import wake_receivers
from app.runtime.wait_queue import WaitQueue
from tests.brokers import OpenBroker, dead_letter_all, result_of, sqlite_broker
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import VirtualClock, run_ready_tasks

READ_SECONDS = 0.01
MAX_BATCH_SIZE = 10


class SlowStore:
    """A store in which each read takes time; it counts reads and the messages that they return."""

    def __init__(self, store: Any, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.reads = 0
        self.messages_read = 0
        self.read_by_number = 0
        self.largest = 0
        self.max_concurrent = 0
        self._concurrent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def candidates(
        self, queue_id: int, source: MessageState, after: DeliveryPosition, most: int
    ) -> Sequence[MessageMetadata]:
        self.largest = max(self.largest, most)
        return await self._read(partial(self._store.candidates, queue_id, source, after, most))

    async def browse_metadata(
        self, queue_id: int, states: Sequence[MessageState], after: int, most: int
    ) -> Sequence[MessageMetadata]:
        self.largest = max(self.largest, most)
        return await self._read(partial(self._store.browse_metadata, queue_id, states, after, most))

    async def read_metadata(self, queue_id: int, numbers: Sequence[int]) -> Sequence[MessageMetadata]:
        self.read_by_number += len(numbers)
        return await self._store.read_metadata(queue_id, numbers)

    async def _read(self, read: Callable[[], Awaitable[Sequence[MessageMetadata]]]) -> Sequence[MessageMetadata]:
        self.reads += 1
        self._concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self._concurrent)
        await self._clock.sleep(READ_SECONDS)
        messages = await read()
        self._concurrent -= 1
        self.messages_read += len(messages)
        return messages


@dataclass
class Scene:
    """A queue with messages that no filter of the test matches."""

    broker: OpenBroker
    store: SlowStore
    queue: Queue
    clock: VirtualClock
    waiting: list["asyncio.Task[list[Message]]"] = field(default_factory=list)

    async def fill(self, count: int, subject: str = "other", **envelope: Any) -> None:
        new_messages = [NewMessage(Envelope("", MessageHeaders(subject=subject), **envelope))] * count
        await send(self.broker.sending, self.queue.name, new_messages)

    def wait(self, subject: str, seconds: float = 3000) -> "asyncio.Task[list[Message]]":
        task = asyncio.create_task(
            result_of(receive(self.broker.receiving, self.queue, receive_request(subject, seconds)))
        )
        self.waiting.append(task)
        return task

    def limit_searches(self, **limits: Any) -> None:
        """Change some limits of the searches of this test."""
        self.broker = replace(self.broker, search_limits=replace(self.broker.search_limits, **limits))

    async def is_found(self, task: "asyncio.Task[list[Message]]", *, within: int) -> bool:
        """Return whether the receiver gets its message within these seconds, with a periodic wake-up each second."""
        for _ in range(within):
            await wake_receivers(self.broker.wait_queue)
            await self.clock.advance(1)
            if task.done():
                return True
        return False


def receive_request(subject: str, seconds: float = 0.0) -> ReceiveRequest:
    return ReceiveRequest(wait_seconds=seconds, message_filter=CelFilter(f"message.subject == '{subject}'"))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        store = SlowStore(broker.store, clock)
        limits = SearchLimits(batch_size=MAX_BATCH_SIZE)
        scene = Scene(replace(broker, store=store, search_limits=limits), store, queue, clock)
        yield scene
        broker.wait_queue.close()
        for task in scene.waiting:
            task.cancel()
        if scene.waiting:
            await asyncio.wait(scene.waiting)


class RemoteNotifier(LocalNotifier):
    """The notifier of another process, which forwards message numbers to this one."""

    def __init__(self, wait_queue: WaitQueue[int], scene: Scene) -> None:
        super().__init__(wait_queue)
        self._scene = scene

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        super().notify(queue_id, count)
        on_remote_messages(self._scene.broker.searches, self._scene.broker.wait_queue, queue_id, passed_numbers)


def another_process(scene: Scene) -> OpenBroker:
    """Return a broker on the same store with its own receivers and searches."""
    wait_queue = WaitQueue[int](scene.clock)
    return replace(
        scene.broker,
        wait_queue=wait_queue,
        notifier=RemoteNotifier(wait_queue, scene),
        searches=SearchRegistry(scene.clock, 200),
    )


# ---- costs -----------------------------------------------------------------------------------------------------------


async def test_filtered_reads_run_one_at_a_time_for_half_of_the_time(scene: Scene) -> None:
    await scene.fill(1000)
    for number in range(20):
        scene.wait(f"wanted-{number}")
    await scene.clock.advance(5)
    assert scene.store.max_concurrent == 1
    assert scene.store.reads == pytest.approx(5 / READ_SECONDS / 2, rel=0.02)


async def test_a_hundred_filtered_receivers_use_at_most_half_of_the_time(scene: Scene) -> None:
    await scene.fill(1000)
    for number in range(100):
        scene.wait(f"wanted-{number}")
    await scene.clock.advance(5)
    assert scene.store.reads == pytest.approx(5 / READ_SECONDS / 2, rel=0.02)
    other, _ = await scene.broker.store.queues.create("other", QueueSettings())
    # The clock does not move, so none of this waits for a read to end.
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await send(scene.broker.sending, other.name, [NewMessage(Envelope("at-once"))])
        (message,) = (await receive(scene.broker.receiving, other, ReceiveRequest())).result
    assert message.envelope.message_id == "at-once"


async def test_a_wake_up_reads_new_messages_and_not_the_whole_queue(scene: Scene) -> None:
    await scene.fill(300)
    for number in range(5):
        scene.wait(f"wanted-{number}")
    await scene.clock.advance(60)
    again = receive_filtered.RESCAN_BATCHES * MAX_BATCH_SIZE
    assert scene.store.messages_read <= 5 * (300 + again)
    scene.store.messages_read = 0
    await scene.fill(1)
    await scene.clock.advance(0.5)
    assert scene.store.messages_read <= 5 * (1 + again)
    # Within the same second no search rescans what it has passed.
    scene.store.reads = scene.store.messages_read = 0
    await scene.fill(1)
    await scene.clock.advance(0.2)
    assert (scene.store.reads, scene.store.messages_read) == (5, 5)
    assert scene.store.read_by_number == 0, "the searches have yet to reach the new message"


async def test_a_short_queue_costs_one_read_per_request(scene: Scene) -> None:
    for _ in range(2):
        await scene.fill(3)
        scene.store.reads = 0
        request = scene.wait("wanted", 0)
        await scene.clock.advance(5)
        assert await request == []
        assert scene.store.reads == 1


async def test_a_search_continues_at_the_end_that_a_scan_from_the_front_reached(scene: Scene) -> None:
    for seconds in (0, 3000):
        await scene.fill(3)
        scene.wait("wanted", seconds)
        await scene.clock.advance(0.1)
    scene.store.messages_read = 0
    await scene.fill(1)
    await scene.clock.advance(0.1)
    assert scene.store.messages_read == 1


async def test_each_receiver_reads_a_message_held_by_a_transaction_once(scene: Scene) -> None:
    await scene.fill(200)
    for _ in range(2):
        scene.wait("wanted")
    await scene.clock.advance(20)

    async def nothing(_claim: Claim, _numbers: Sequence[int]) -> list[Message]:
        return []

    scene.store.claim_by_number = nothing
    await send(scene.broker.sending, scene.queue.name, [WANTED_MESSAGE])
    await scene.clock.advance(5)
    assert scene.store.read_by_number == 2


async def test_a_request_whose_time_is_over_stops_reading(scene: Scene) -> None:
    scene.limit_searches(min_seconds=READ_SECONDS)
    await scene.fill(3 * MAX_BATCH_SIZE)
    request = scene.wait("wanted", 0)
    await scene.clock.advance(1)
    assert (request.result(), scene.store.reads) == ([], 1)


async def test_a_full_request_leaves_the_rescan_to_the_next_request(scene: Scene) -> None:
    await scene.fill(3 * MAX_BATCH_SIZE)
    scene.wait("wanted", 0)
    await scene.clock.advance(5)
    await send(scene.broker.sending, scene.queue.name, [WANTED_MESSAGE])
    full = scene.wait("wanted", 0)
    await scene.clock.advance(0.5)
    assert len(full.result()) == 1
    scene.store.reads = 0
    scene.wait("wanted", 0)
    await scene.clock.advance(0.5)
    assert scene.store.reads == 2 + receive_filtered.RESCAN_BATCHES, "the front, the end, and the messages between them"


async def test_a_receiver_that_claims_every_noted_message_wakes_no_other(scene: Scene) -> None:
    await scene.fill(200)
    for _ in range(2):
        scene.wait("wanted")
    await scene.clock.advance(20)
    scene.store.reads = 0
    await send(scene.broker.sending, scene.queue.name, [WANTED_MESSAGE])
    await scene.clock.advance(0.5)
    assert [task.done() for task in scene.waiting] == [True, False]
    # The wake-up visits each receiver once: the other one reads ahead of its search and rescans what it has passed.
    assert scene.store.reads == 1 + receive_filtered.RESCAN_BATCHES


async def test_receivers_with_the_same_filter_share_a_search(scene: Scene) -> None:
    await scene.fill(300)
    first = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    assert await first == []
    scene.store.messages_read = 0
    scene.wait("wanted")
    await scene.clock.advance(0.5)
    assert scene.store.messages_read <= (2 + receive_filtered.RESCAN_BATCHES) * MAX_BATCH_SIZE


async def test_a_batch_of_large_messages_is_smaller(scene: Scene) -> None:
    scene.limit_searches(batch_bytes=100_000)
    await scene.fill(60, properties=b'{"a": "%s"}' % (b"x" * 30_000))
    scene.wait("wanted")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        # Filters run on the event loop in batches, which takes real time.
        while scene.store.messages_read < 60:
            await scene.clock.advance(0.1)
    assert scene.store.largest <= 3


async def test_a_batch_of_small_messages_is_larger(scene: Scene) -> None:
    scene.limit_searches(batch_bytes=MAX_BATCH_SIZE * MESSAGE_OVERHEAD_BYTES)
    await scene.fill(60)
    scene.wait("wanted")
    await scene.clock.advance(0.01)
    assert scene.store.largest == 1, "the first message may be as large as any"
    await scene.clock.advance(0.5)
    assert scene.store.largest == MAX_BATCH_SIZE


async def test_a_filtered_receiver_above_the_limit_is_refused(scene: Scene) -> None:
    broker = replace(scene.broker, searches=SearchRegistry(scene.clock, 2))
    first, second = (
        asyncio.create_task(result_of(receive(broker.receiving, scene.queue, receive_request(name, 50))))
        for name in ("one", "two")
    )
    await run_ready_tasks()
    with pytest.raises(RateLimited, match=r"receivers with a filter \(PEEKLOCK_MAX_FILTERED_RECEIVERS\): 2"):
        await receive(broker.receiving, scene.queue, receive_request("three"))
    first.cancel()
    await asyncio.wait([first])
    third = asyncio.create_task(result_of(receive(broker.receiving, scene.queue, receive_request("three", 50))))
    await scene.clock.advance(1)
    assert not third.done()
    for task in (second, third):
        task.cancel()
        await asyncio.wait([task])


async def test_a_filtered_page_ends_at_its_limit_and_returns_a_cursor(scene: Scene) -> None:
    broker = replace(scene.broker, page_limits=PageLimits(batch_size=10, max_bytes=1))
    await scene.fill(20)
    await scene.fill(1, "wanted")
    message_filter = CelFilter("message.subject == 'wanted'")
    pages = 0
    found: list[Message] = []
    after: int | None = 0
    while after is not None:
        request = asyncio.create_task(
            browse(broker.administration, scene.queue, [MessageState.AVAILABLE], message_filter, after, 5)
        )
        await scene.clock.advance(1)
        page, after = request.result()
        found += page
        pages += 1
    assert (len(found), pages) == (1, 3)


async def test_filtered_purges_and_redrives_take_turns_with_receivers(scene: Scene) -> None:
    await scene.fill(1000)
    nothing = MessageSelection(
        [MessageState.AVAILABLE], CelFilter("message.subject == 'wanted'"), batch_size=MAX_BATCH_SIZE
    )
    requests = [
        asyncio.create_task(purge(scene.broker.administration, scene.queue, nothing)),
        asyncio.create_task(redrive(scene.broker.administration, scene.queue, scene.queue, nothing, None)),
    ]
    scene.wait("wanted")
    await scene.clock.advance(1)
    assert scene.store.max_concurrent == 1
    assert scene.store.reads == pytest.approx(1 / READ_SECONDS / 2, abs=1)
    await scene.clock.advance(10)
    assert [request.result() for request in requests] == [0, 0]


WANTED = CelFilter("message.subject == 'wanted'")
WANTED_MESSAGE = NewMessage(Envelope("", MessageHeaders(subject="wanted")), priority=9)
Request = Callable[[OpenBroker, Queue, Any], Awaitable[object]]


def selection_of(message_filter: Any) -> MessageSelection:
    return MessageSelection([MessageState.AVAILABLE], message_filter, batch_size=MAX_BATCH_SIZE)


REQUESTS: dict[str, Request] = {
    "page": lambda broker, queue, chosen: browse(broker.administration, queue, [MessageState.AVAILABLE], chosen, 0, 5),
    "trial": lambda broker, queue, chosen: try_filter(broker.administration, queue, chosen, 5),
    "purge": lambda broker, queue, chosen: purge(broker.administration, queue, selection_of(chosen)),
    "plan": lambda broker, queue, chosen: plan_selection(broker.administration, queue, selection_of(chosen)),
    "redrive": lambda broker, queue, chosen: redrive(broker.administration, queue, queue, selection_of(chosen), None),
    "restore": lambda broker, queue, chosen: restore(broker.administration, queue, selection_of(chosen), Instant(0)),
    "plan of a restore": lambda broker, queue, chosen: plan_restore(
        broker.administration, queue, selection_of(chosen), Instant(0)
    ),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=list(REQUESTS))
async def test_a_request_with_a_filter_above_the_limit_is_refused_before_it_reads(
    scene: Scene, request_of: Request
) -> None:
    broker = replace(scene.broker, searches=SearchRegistry(scene.clock, 2, max_requests=2))
    await scene.fill(1000)
    first, second = (
        asyncio.create_task(browse(broker.administration, scene.queue, [MessageState.AVAILABLE], WANTED, 0, 5))
        for _ in range(2)
    )
    await run_ready_tasks()
    reads = scene.store.reads
    with pytest.raises(Overloaded, match=r"already reads for 2 requests with a filter\. The request had no effect"):
        await asyncio.wait_for(request_of(broker, scene.queue, WANTED), TIMEOUT_SECONDS)
    assert scene.store.reads == reads

    unfiltered = asyncio.create_task(request_of(broker, scene.queue, MatchAll()))
    first.cancel()
    await asyncio.wait([first])
    admitted = asyncio.create_task(request_of(broker, scene.queue, WANTED))
    await scene.clock.advance(100)
    await asyncio.gather(second, admitted, unfiltered)


async def test_receivers_with_a_filter_do_not_count_as_other_requests(scene: Scene) -> None:
    scene.broker = replace(scene.broker, searches=SearchRegistry(scene.clock, 2, max_requests=1))
    await scene.fill(100)
    for name in ("one", "two"):
        scene.wait(name)
    page = asyncio.create_task(browse(scene.broker.administration, scene.queue, [MessageState.AVAILABLE], WANTED, 0, 5))
    await scene.clock.advance(10)
    assert page.result() == ([], None)


async def test_unfiltered_reads_do_not_wait_for_filtered_ones(scene: Scene) -> None:
    await scene.fill(1000)
    for number in range(100):
        scene.wait(f"wanted-{number}")
    await scene.clock.advance(1)
    everything = MessageSelection([MessageState.AVAILABLE], MatchAll(), limit=5, batch_size=MAX_BATCH_SIZE)
    purged = asyncio.create_task(purge(scene.broker.administration, scene.queue, everything))
    await scene.clock.advance(READ_SECONDS)
    assert purged.result() == 5
    page = asyncio.create_task(
        browse(scene.broker.administration, scene.queue, [MessageState.AVAILABLE], MatchAll(), 0, 5)
    )
    await scene.clock.advance(READ_SECONDS)
    assert len(page.result()[0]) == 5


async def test_a_filtered_purge_ends_at_its_timeout_once_it_has_found_messages(scene: Scene) -> None:
    for apart in (2 * MAX_BATCH_SIZE, 500, 0):
        await scene.fill(1, "wanted")
        await scene.fill(apart)
    selection = MessageSelection(
        [MessageState.AVAILABLE], CelFilter("message.subject == 'wanted'"), batch_size=MAX_BATCH_SIZE
    )
    timeout_seconds = 10 * READ_SECONDS
    first = asyncio.create_task(purge(scene.broker.administration, scene.queue, selection, timeout_seconds))
    await scene.clock.advance(2 * timeout_seconds)
    assert first.result() == 2
    # A result of 0 means that none is left, so a purge without a match continues.
    for expected in (1, 0):
        again = asyncio.create_task(purge(scene.broker.administration, scene.queue, selection, timeout_seconds))
        await scene.clock.advance(2)
        assert again.result() == expected


async def test_a_filtered_redrive_ends_at_its_timeout_once_it_has_found_messages(scene: Scene) -> None:
    await scene.fill(1, "wanted")
    await scene.fill(500)
    assert await dead_letter_all(scene.broker.store, scene.queue) == 501
    selection = MessageSelection(
        [MessageState.DEAD_LETTERED], CelFilter("message.subject == 'wanted'"), batch_size=MAX_BATCH_SIZE
    )
    timeout_seconds = 10 * READ_SECONDS
    first = asyncio.create_task(
        redrive(scene.broker.administration, scene.queue, scene.queue, selection, None, timeout_seconds)
    )
    await scene.clock.advance(2 * timeout_seconds)
    assert first.result() == 1
    assert scene.store.reads <= 12


async def test_a_purge_or_redrive_without_a_match_ends_while_others_send(scene: Scene) -> None:
    """Messages may arrive as fast as the scan reads, which would then never end."""
    await scene.fill(3 * MAX_BATCH_SIZE)
    read = scene.store.browse_metadata

    async def read_while_others_send(
        queue_id: int, states: Sequence[MessageState], *page: int
    ) -> Sequence[MessageMetadata]:
        await scene.fill(MAX_BATCH_SIZE)
        if MessageState.DEAD_LETTERED in states:
            await dead_letter_all(scene.broker.store, scene.queue)
        return await read(queue_id, states, *page)

    scene.store.browse_metadata = read_while_others_send
    available, dead = (
        MessageSelection([state], CelFilter("message.subject == 'wanted'"), batch_size=MAX_BATCH_SIZE)
        for state in (MessageState.AVAILABLE, MessageState.DEAD_LETTERED)
    )
    purging = asyncio.create_task(purge(scene.broker.administration, scene.queue, available))
    await scene.clock.advance(1)
    redriving = asyncio.create_task(redrive(scene.broker.administration, scene.queue, scene.queue, dead, None))
    await scene.clock.advance(1)
    assert (purging.done(), redriving.done()) == (True, True)
    assert (purging.result(), redriving.result()) == (0, 0)


def test_the_largest_batch_fits_into_a_response() -> None:
    """No bodies are read, so only properties and the overhead of each message remain."""
    assert LARGEST_BATCH_SIZE * (MAX_PROPERTIES_BYTES + MESSAGE_OVERHEAD_BYTES) <= MAX_RESPONSE_BYTES


@pytest.mark.parametrize("apart", [0, 3 * MAX_BATCH_SIZE], ids=["in one batch", "in separate batches"])
async def test_a_request_stops_reading_when_the_next_match_does_not_fit(scene: Scene, apart: int) -> None:
    large = NewMessage(Envelope("", MessageHeaders(subject="wanted")), b"x" * 100_000, BodyKind.BYTES)
    ahead = 2 * MAX_BATCH_SIZE
    await scene.fill(ahead)
    for _ in range(5):
        await send(scene.broker.sending, scene.queue.name, [large])
        await scene.fill(apart)
    await scene.fill(20 * MAX_BATCH_SIZE)
    broker = replace(scene.broker, response_limits=replace(scene.broker.response_limits, max_bytes=250_000))
    request = asyncio.create_task(
        result_of(receive(broker.receiving, scene.queue, structs.replace(receive_request("wanted"), max_messages=100)))
    )
    await scene.clock.advance(0.4)
    assert [message.sequence_number for message in request.result()] == [ahead + 1, ahead + 2 + apart]
    assert scene.store.reads == 3 + 2 * apart // MAX_BATCH_SIZE
    again = asyncio.create_task(
        result_of(receive(broker.receiving, scene.queue, structs.replace(receive_request("wanted"), max_messages=100)))
    )
    await scene.clock.advance(0.4)
    assert [message.sequence_number for message in again.result()] == [ahead + 3 + 2 * apart, ahead + 4 + 3 * apart]


async def test_a_receiver_gets_at_most_max_messages_from_several_reads(scene: Scene) -> None:
    await scene.fill(2, "wanted")
    await scene.fill(3 * MAX_BATCH_SIZE)
    await scene.fill(3, "wanted")
    request = asyncio.create_task(
        result_of(
            receive(scene.broker.receiving, scene.queue, structs.replace(receive_request("wanted"), max_messages=3))
        )
    )
    await scene.clock.advance(5)
    assert [message.sequence_number for message in request.result()] == [1, 2, 3 + 3 * MAX_BATCH_SIZE]


@pytest.mark.parametrize("apart", [0, 3 * MAX_BATCH_SIZE], ids=["in one batch", "in separate batches"])
async def test_a_response_is_filled_to_its_last_byte(scene: Scene, apart: int) -> None:
    large = NewMessage(Envelope("", MessageHeaders(subject="wanted")), b"x" * 100_000, BodyKind.BYTES)
    for _ in range(3):
        await send(scene.broker.sending, scene.queue.name, [large])
        await scene.fill(apart)
    broker = replace(
        scene.broker,
        response_limits=replace(scene.broker.response_limits, max_bytes=2 * (MESSAGE_OVERHEAD_BYTES + 100_000)),
    )
    request = asyncio.create_task(
        result_of(receive(broker.receiving, scene.queue, structs.replace(receive_request("wanted"), max_messages=100)))
    )
    await scene.clock.advance(5)
    assert [message.sequence_number for message in request.result()] == [1, 2 + apart]


async def test_a_later_match_replaces_one_that_another_receiver_claimed_first(scene: Scene) -> None:
    large = [NewMessage(Envelope("", MessageHeaders(subject="wanted")), b"x" * 100_000, BodyKind.BYTES)]
    await send(scene.broker.sending, scene.queue.name, large * 2)
    await scene.fill(3 * MAX_BATCH_SIZE)
    await send(scene.broker.sending, scene.queue.name, large)
    claim_by_number = scene.store.claim_by_number

    async def claim_after_another(claim: Claim, numbers: Sequence[int]) -> list[Message]:
        await claim_by_number(claim, [2])
        return await claim_by_number(claim, numbers)

    scene.store.claim_by_number = claim_after_another
    broker = replace(
        scene.broker,
        response_limits=replace(scene.broker.response_limits, max_bytes=2 * (MESSAGE_OVERHEAD_BYTES + 100_000)),
    )
    request = asyncio.create_task(
        result_of(receive(broker.receiving, scene.queue, structs.replace(receive_request("wanted"), max_messages=100)))
    )
    await scene.clock.advance(5)
    assert [message.sequence_number for message in request.result()] == [1, 3 + 3 * MAX_BATCH_SIZE]


# ---- results ---------------------------------------------------------------------------------------------------------


async def test_a_request_continues_where_the_last_one_with_its_filter_stopped(scene: Scene) -> None:
    scene.limit_searches(max_messages=50)
    await scene.fill(300)
    await scene.fill(1, "wanted")
    requests = 0
    found: list[Message] = []
    while not found and requests < 20:
        request = scene.wait("wanted", 0)
        await scene.clock.advance(5)
        found = await request
        requests += 1
    assert len(found) == 1
    assert 6 <= requests <= 9


async def test_a_message_freed_behind_the_search_is_found_at_once(scene: Scene) -> None:
    await scene.fill(100)
    await scene.fill(1, "wanted")
    await scene.fill(100)
    request = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    (locked,) = await request
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    assert not waiting.done()
    settlement = abandon(scene.queue, token_of(locked), Abandonment())
    await settle_one(scene.broker.settling, scene.queue, settlement)
    await scene.clock.advance(0.1)
    assert [message.sequence_number for message in waiting.result()] == [locked.sequence_number]


@pytest.mark.parametrize("most", [1, 2])
async def test_each_receiver_gets_its_share_of_urgent_messages_at_once(scene: Scene, most: int) -> None:
    """The receiver that is woken first reads all of them and has room for some."""
    await scene.fill(200)
    receive_requests = [structs.replace(receive_request("wanted", 3000), max_messages=most)] * 5
    scene.waiting += [
        asyncio.create_task(result_of(receive(scene.broker.receiving, scene.queue, receive_request)))
        for receive_request in receive_requests
    ]
    await scene.clock.advance(20)
    await send(scene.broker.sending, scene.queue.name, [WANTED_MESSAGE] * 5 * most)
    await scene.clock.advance(0.5)
    assert [task.done() and len(task.result()) for task in scene.waiting] == [most] * 5


async def test_a_message_freed_behind_the_search_by_another_process_is_found_at_once(scene: Scene) -> None:
    await scene.fill(100)
    await scene.fill(1, "wanted")
    await scene.fill(100)
    request = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    (locked,) = await request
    # A receiver with another filter waits in the other process, and is woken there.
    other = another_process(scene)
    other_receiver = asyncio.create_task(
        result_of(receive(other.receiving, scene.queue, receive_request("unlike", 3000)))
    )
    scene.waiting += [other_receiver]
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    await settle_one(other.settling, scene.queue, abandon(scene.queue, token_of(locked), Abandonment()))
    await scene.clock.advance(0.1)
    assert [message.sequence_number for message in waiting.result()] == [locked.sequence_number]
    assert not other_receiver.done()
    other.wait_queue.close()


async def test_a_message_of_a_higher_priority_from_another_process_is_found_at_once(scene: Scene) -> None:
    await scene.fill(200)
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    scene.store.reads = 0
    await send(another_process(scene).sending, scene.queue.name, [WANTED_MESSAGE])
    await scene.clock.advance(0.1)
    assert len(waiting.result()) == 1
    assert scene.store.reads == 0


async def test_a_message_freed_without_a_notification_is_found_by_a_rescan(scene: Scene) -> None:
    await scene.fill(100)
    await scene.fill(1, "wanted")
    await scene.fill(100)
    request = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    (locked,) = await request
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    # The move happens in the store alone, so this process gets no notification.
    assert await scene.broker.store.move([undelivered_release(locked)]) == [True]
    assert await scene.is_found(waiting, within=201 // (receive_filtered.RESCAN_BATCHES * MAX_BATCH_SIZE) + 2)


async def test_a_message_of_a_higher_priority_is_found_at_once(scene: Scene) -> None:
    await scene.fill(200)
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    await send(scene.broker.sending, scene.queue.name, [WANTED_MESSAGE])
    await scene.clock.advance(0.1)
    assert len(waiting.result()) == 1


async def test_too_many_noted_messages_make_a_search_start_again(scene: Scene) -> None:
    await scene.fill(20)
    waiting = scene.wait("wanted")
    await scene.clock.advance(5)
    urgent = [NewMessage(Envelope("", MessageHeaders(subject="other")), priority=9)] * 600
    await send(scene.broker.sending, scene.queue.name, [*urgent, WANTED_MESSAGE])
    await scene.clock.advance(5)
    assert len(waiting.result()) == 1


async def test_requests_for_one_message_each_receive_matches_in_order(scene: Scene) -> None:
    for _ in range(3):
        await scene.fill(15)
        await scene.fill(2, "wanted")
    numbers: list[int] = []
    for _ in range(6):
        request = scene.wait("wanted", 0)
        await scene.clock.advance(3)
        numbers += [message.sequence_number for message in await request]
    assert len(numbers) == 6
    assert numbers == sorted(numbers)
