"""Looking through filters costs a bounded amount, and finds all the same what matches and stays available."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from app.broker import browse as browsing
from app.broker import purge as purging
from app.broker import receive_filtered
from app.broker.abandon import Abandonment, abandon
from app.broker.broker import Broker
from app.broker.browse import browse
from app.broker.filters import CelFilter, MatchAll
from app.broker.notify_receivers import on_remote_messages
from app.broker.purge import MessageSelection
from app.broker.receive import ReceiveRequest, receive
from app.broker.search_state import MAX_BATCH_SIZE as LARGEST_LOOK_OF_ALL
from app.broker.search_state import SearchRegistry
from app.broker.send import send
from app.broker.settle import settle_one
from app.domain.delivery import Claim, DeliveryPosition
from app.domain.message import MAX_PROPERTIES_BYTES, BodyKind, Envelope, Message, MessageMetadata, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import RateLimited
from app.domain.sending import NewMessage
from app.domain.settlement import token_of, undelivered_release
from app.domain.weight import MAX_RESPONSE_BYTES, MESSAGE_OVERHEAD_BYTES
from app.locks.notifier import LocalNotifier
from app.maintenance.wake_receivers import wake_receivers
from app.runtime.wait_queue import WaitQueue
from tests.brokers import dead_letter_all, sqlite_broker
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import VirtualClock, run_ready_tasks

READ_SECONDS = 0.01
MAX_BATCH_SIZE = 10


class SlowStore:
    """A store in which each look takes a moment; it counts looks, and the messages that they read."""

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
        seen = await read()
        self._concurrent -= 1
        self.messages_read += len(seen)
        return seen


@dataclass
class Scene:
    """A queue with messages that no filter of the test matches."""

    broker: Broker
    store: SlowStore
    queue: Queue
    clock: VirtualClock
    waiting: list["asyncio.Task[list[Message]]"] = field(default_factory=list)

    async def fill(self, count: int, subject: str = "other", **envelope: Any) -> None:
        letters = [NewMessage(Envelope("", subject=subject, **envelope))] * count
        await send(self.broker, self.queue, letters)

    def wait(self, subject: str, seconds: float = 3000) -> "asyncio.Task[list[Message]]":
        task = asyncio.create_task(receive(self.broker, self.queue, receive_request(subject, seconds)))
        self.waiting.append(task)
        return task

    async def is_found(self, task: "asyncio.Task[list[Message]]", *, within: int) -> bool:
        """Whether the receiver has its message, with the look of each second, within the given number of seconds."""
        for _ in range(within):
            await wake_receivers(self.broker)
            await self.clock.advance(1)
            if task.done():
                return True
        return False


def receive_request(subject: str, seconds: float = 0.0) -> ReceiveRequest:
    return ReceiveRequest(wait_seconds=seconds, message_filter=CelFilter(f"message.subject == '{subject}'"))


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(receive_filtered, "MAX_BATCH_SIZE", MAX_BATCH_SIZE)
    monkeypatch.setattr(purging, "BATCH_SIZE", MAX_BATCH_SIZE)
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        store = SlowStore(broker.store, clock)
        scene = Scene(replace(broker, store=store), store, queue, clock)
        yield scene
        broker.wait_queue.close()
        for task in scene.waiting:
            task.cancel()
        if scene.waiting:
            await asyncio.wait(scene.waiting)


class RemoteNotifier(LocalNotifier):
    """The wake-ups of another process, of which this one hears what it tells of messages."""

    def __init__(self, bell: WaitQueue[int], scene: Scene) -> None:
        super().__init__(bell)
        self._scene = scene

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        super().notify(queue_id, count)
        on_remote_messages(self._scene.broker, queue_id, passed_numbers)


def another_process(scene: Scene) -> Broker:
    """A broker on the same store, with receivers and searches of its own."""
    bell = WaitQueue[int](scene.clock)
    return replace(
        scene.broker, wait_queue=bell, notifier=RemoteNotifier(bell, scene), searches=SearchRegistry(scene.clock, 200)
    )


# ---- what it costs ---------------------------------------------------------------------------------------------------


async def test_all_receivers_together_look_one_at_a_time_and_half_of_the_time(scene: Scene) -> None:
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
    # The clock stands still, so none of this waits for a look to end.
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await send(scene.broker, other, [NewMessage(Envelope("at-once"))])
        (message,) = await receive(scene.broker, other, ReceiveRequest())
    assert message.envelope.message_id == "at-once"


async def test_a_wake_up_costs_a_look_at_what_is_new_and_not_at_the_whole_queue(scene: Scene) -> None:
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
    # In the same second no search looks again at what it has passed.
    scene.store.reads = scene.store.messages_read = 0
    await scene.fill(1)
    await scene.clock.advance(0.2)
    assert (scene.store.reads, scene.store.messages_read) == (5, 5)
    assert scene.store.read_by_number == 0, "the walks have yet to reach what is new"


async def test_where_one_look_reaches_the_end_a_call_looks_once(scene: Scene) -> None:
    for _ in range(2):
        await scene.fill(3)
        scene.store.reads = 0
        call = scene.wait("wanted", 0)
        await scene.clock.advance(5)
        assert await call == []
        assert scene.store.reads == 1


async def test_the_end_that_was_seen_from_the_front_is_where_the_walk_goes_on(scene: Scene) -> None:
    for seconds in (0, 3000):
        await scene.fill(3)
        scene.wait("wanted", seconds)
        await scene.clock.advance(0.1)
    scene.store.messages_read = 0
    await scene.fill(1)
    await scene.clock.advance(0.1)
    assert scene.store.messages_read == 1


async def test_a_message_that_another_transaction_holds_is_looked_at_once_by_each_receiver(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.fill(200)
    for _ in range(2):
        scene.wait("wanted")
    await scene.clock.advance(20)

    async def nothing(_claim: Claim, _numbers: Sequence[int]) -> list[Message]:
        return []

    monkeypatch.setattr(scene.store, "claim_by_number", nothing)
    await send(scene.broker, scene.queue, [NewMessage(Envelope("", subject="wanted"), priority=9)])
    await scene.clock.advance(5)
    assert scene.store.read_by_number == 2


async def test_a_call_whose_time_is_over_looks_no_further(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_filtered, "MIN_SECONDS", READ_SECONDS)
    await scene.fill(3 * MAX_BATCH_SIZE)
    call = scene.wait("wanted", 0)
    await scene.clock.advance(1)
    assert (call.result(), scene.store.reads) == ([], 1)


async def test_a_call_that_is_full_leaves_the_look_at_what_was_passed_to_the_next(scene: Scene) -> None:
    await scene.fill(3 * MAX_BATCH_SIZE)
    scene.wait("wanted", 0)
    await scene.clock.advance(5)
    await send(scene.broker, scene.queue, [NewMessage(Envelope("", subject="wanted"), priority=9)])
    full = scene.wait("wanted", 0)
    await scene.clock.advance(0.5)
    assert len(full.result()) == 1
    scene.store.reads = 0
    scene.wait("wanted", 0)
    await scene.clock.advance(0.5)
    assert scene.store.reads == 2 + receive_filtered.RESCAN_BATCHES, "the front and the end, and what lies between"


async def test_a_receiver_that_takes_all_news_wakes_no_other(scene: Scene) -> None:
    await scene.fill(200)
    for _ in range(2):
        scene.wait("wanted")
    await scene.clock.advance(20)
    scene.store.reads = 0
    await send(scene.broker, scene.queue, [NewMessage(Envelope("", subject="wanted"), priority=9)])
    await scene.clock.advance(0.5)
    assert [task.done() for task in scene.waiting] == [True, False]
    # The wake-up goes round once: the other one looks for news ahead of its walk, and at what it has passed.
    assert scene.store.reads == 1 + receive_filtered.RESCAN_BATCHES


async def test_receivers_with_one_filter_share_its_walk(scene: Scene) -> None:
    await scene.fill(300)
    first = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    assert await first == []
    scene.store.messages_read = 0
    scene.wait("wanted")
    await scene.clock.advance(0.5)
    assert scene.store.messages_read <= (2 + receive_filtered.RESCAN_BATCHES) * MAX_BATCH_SIZE


async def test_a_look_reads_fewer_messages_where_they_are_large(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_filtered, "BATCH_BYTES", 100_000)
    await scene.fill(60, properties=b'{"a": "%s"}' % (b"x" * 30_000))
    scene.wait("wanted")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        # What is large is evaluated beside the event loop, which takes real time.
        while scene.store.messages_read < 60:
            await scene.clock.advance(0.1)
    assert scene.store.largest <= 3


async def test_a_look_reads_more_messages_where_they_are_small(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_filtered, "BATCH_BYTES", MAX_BATCH_SIZE * MESSAGE_OVERHEAD_BYTES)
    await scene.fill(60)
    scene.wait("wanted")
    await scene.clock.advance(0.01)
    assert scene.store.largest == 1, "the first message may be as large as any"
    await scene.clock.advance(0.5)
    assert scene.store.largest == MAX_BATCH_SIZE


async def test_one_more_receiver_with_a_filter_than_may_wait_is_refused(scene: Scene) -> None:
    broker = replace(scene.broker, searches=SearchRegistry(scene.clock, 2))
    first, second = (
        asyncio.create_task(receive(broker, scene.queue, receive_request(name, 50))) for name in ("one", "two")
    )
    await run_ready_tasks()
    with pytest.raises(RateLimited, match=r"receivers with a filter \(PEEKLOCK_MAX_FILTERED_RECEIVERS\): 2"):
        await receive(broker, scene.queue, receive_request("three"))
    first.cancel()
    await asyncio.wait([first])
    third = asyncio.create_task(receive(broker, scene.queue, receive_request("three", 50)))
    await scene.clock.advance(1)
    assert not third.done()
    for task in (second, third):
        task.cancel()
        await asyncio.wait([task])


async def test_a_page_behind_a_filter_ends_with_its_time_and_says_where_to_go_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "BATCH_SIZE", 10)
    monkeypatch.setattr(browsing, "MAX_BYTES", 1)
    await scene.fill(20)
    await scene.fill(1, "wanted")
    matching = CelFilter("message.subject == 'wanted'")
    pages = 0
    found: list[Message] = []
    after: int | None = 0
    while after is not None:
        call = asyncio.create_task(browse(scene.broker, scene.queue, [MessageState.AVAILABLE], matching, after, 5))
        await scene.clock.advance(1)
        page, after = call.result()
        found += page
        pages += 1
    assert (len(found), pages) == (1, 3)


async def test_a_purge_and_a_redrive_through_filters_take_turns_with_receivers(scene: Scene) -> None:
    await scene.fill(1000)
    nothing = MessageSelection([MessageState.AVAILABLE], CelFilter("message.subject == 'wanted'"))
    calls = [
        asyncio.create_task(purging.purge(scene.broker, scene.queue, nothing)),
        asyncio.create_task(purging.redrive(scene.broker, scene.queue, scene.queue, nothing, None)),
    ]
    scene.wait("wanted")
    await scene.clock.advance(1)
    assert scene.store.max_concurrent == 1
    assert scene.store.reads == pytest.approx(1 / READ_SECONDS / 2, abs=1)
    await scene.clock.advance(10)
    assert [call.result() for call in calls] == [0, 0]


async def test_what_is_done_without_a_filter_waits_for_no_turn(scene: Scene) -> None:
    await scene.fill(1000)
    for number in range(100):
        scene.wait(f"wanted-{number}")
    await scene.clock.advance(1)
    everything = MessageSelection([MessageState.AVAILABLE], MatchAll(), limit=5)
    purged = asyncio.create_task(purging.purge(scene.broker, scene.queue, everything))
    await scene.clock.advance(READ_SECONDS)
    assert purged.result() == 5
    page = asyncio.create_task(browse(scene.broker, scene.queue, [MessageState.AVAILABLE], MatchAll(), 0, 5))
    await scene.clock.advance(READ_SECONDS)
    assert len(page.result()[0]) == 5


async def test_a_purge_through_a_filter_ends_with_its_patience_once_it_has_found_some(scene: Scene) -> None:
    for apart in (2 * MAX_BATCH_SIZE, 500, 0):
        await scene.fill(1, "wanted")
        await scene.fill(apart)
    choice = MessageSelection([MessageState.AVAILABLE], CelFilter("message.subject == 'wanted'"))
    patience = 10 * READ_SECONDS
    first = asyncio.create_task(purging.purge(scene.broker, scene.queue, choice, patience))
    await scene.clock.advance(2 * patience)
    assert first.result() == 2
    # An answer of 0 says that none is left, so a walk that has found none goes on.
    for expected in (1, 0):
        again = asyncio.create_task(purging.purge(scene.broker, scene.queue, choice, patience))
        await scene.clock.advance(2)
        assert again.result() == expected


async def test_a_redrive_through_a_filter_ends_with_its_patience_once_it_has_found_some(scene: Scene) -> None:
    await scene.fill(1, "wanted")
    await scene.fill(500)
    assert await dead_letter_all(scene.broker.store, scene.queue) == 501
    choice = MessageSelection([MessageState.DEAD_LETTERED], CelFilter("message.subject == 'wanted'"))
    patience = 10 * READ_SECONDS
    first = asyncio.create_task(purging.redrive(scene.broker, scene.queue, scene.queue, choice, None, patience))
    await scene.clock.advance(2 * patience)
    assert first.result() == 1
    assert scene.store.reads <= 12


async def test_a_walk_that_finds_nothing_ends_while_others_send(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders and dead letters may come as fast as the walk, which would follow them for ever."""
    await scene.fill(3 * MAX_BATCH_SIZE)
    read = scene.store.browse_metadata

    async def look_behind_senders(
        queue_id: int, states: Sequence[MessageState], *page: int
    ) -> Sequence[MessageMetadata]:
        await scene.fill(MAX_BATCH_SIZE)
        if MessageState.DEAD_LETTERED in states:
            await dead_letter_all(scene.broker.store, scene.queue)
        return await read(queue_id, states, *page)

    monkeypatch.setattr(scene.store, "browse_metadata", look_behind_senders)
    available, dead = (
        MessageSelection([state], CelFilter("message.subject == 'wanted'"))
        for state in (MessageState.AVAILABLE, MessageState.DEAD_LETTERED)
    )
    purge = asyncio.create_task(purging.purge(scene.broker, scene.queue, available))
    await scene.clock.advance(1)
    redrive = asyncio.create_task(purging.redrive(scene.broker, scene.queue, scene.queue, dead, None))
    await scene.clock.advance(1)
    assert (purge.done(), redrive.done()) == (True, True)
    assert (purge.result(), redrive.result()) == (0, 0)


def test_a_look_is_bounded_in_bytes_by_its_number() -> None:
    """Of bodies nothing is read, so what is left are properties and what stands beside them."""
    assert LARGEST_LOOK_OF_ALL * (MAX_PROPERTIES_BYTES + MESSAGE_OVERHEAD_BYTES) <= MAX_RESPONSE_BYTES


@pytest.mark.parametrize("apart", [0, 3 * MAX_BATCH_SIZE], ids=["in one look", "in looks of their own"])
async def test_a_call_looks_no_further_once_the_next_match_has_no_room_in_its_answer(scene: Scene, apart: int) -> None:
    large = NewMessage(Envelope("", subject="wanted"), b"x" * 100_000, BodyKind.BYTES)
    ahead = 2 * MAX_BATCH_SIZE
    await scene.fill(ahead)
    for _ in range(5):
        await send(scene.broker, scene.queue, [large])
        await scene.fill(apart)
    await scene.fill(20 * MAX_BATCH_SIZE)
    broker = replace(scene.broker, max_response_bytes=250_000)
    call = asyncio.create_task(receive(broker, scene.queue, replace(receive_request("wanted"), max_messages=100)))
    await scene.clock.advance(0.4)
    assert [message.sequence_number for message in call.result()] == [ahead + 1, ahead + 2 + apart]
    assert scene.store.reads == 3 + 2 * apart // MAX_BATCH_SIZE
    again = asyncio.create_task(receive(broker, scene.queue, replace(receive_request("wanted"), max_messages=100)))
    await scene.clock.advance(0.4)
    assert [message.sequence_number for message in again.result()] == [ahead + 3 + 2 * apart, ahead + 4 + 3 * apart]


async def test_a_receiver_gets_no_more_than_it_asked_for_also_in_several_looks(scene: Scene) -> None:
    await scene.fill(2, "wanted")
    await scene.fill(3 * MAX_BATCH_SIZE)
    await scene.fill(3, "wanted")
    call = asyncio.create_task(receive(scene.broker, scene.queue, replace(receive_request("wanted"), max_messages=3)))
    await scene.clock.advance(5)
    assert [message.sequence_number for message in call.result()] == [1, 2, 3 + 3 * MAX_BATCH_SIZE]


@pytest.mark.parametrize("apart", [0, 3 * MAX_BATCH_SIZE], ids=["in one look", "in looks of their own"])
async def test_an_answer_is_filled_to_its_last_byte(scene: Scene, apart: int) -> None:
    large = NewMessage(Envelope("", subject="wanted"), b"x" * 100_000, BodyKind.BYTES)
    for _ in range(3):
        await send(scene.broker, scene.queue, [large])
        await scene.fill(apart)
    broker = replace(scene.broker, max_response_bytes=2 * (MESSAGE_OVERHEAD_BYTES + 100_000))
    call = asyncio.create_task(receive(broker, scene.queue, replace(receive_request("wanted"), max_messages=100)))
    await scene.clock.advance(5)
    assert [message.sequence_number for message in call.result()] == [1, 2 + apart]


async def test_the_room_for_a_match_that_another_receiver_took_first_goes_to_a_later_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [NewMessage(Envelope("", subject="wanted"), b"x" * 100_000, BodyKind.BYTES)]
    await send(scene.broker, scene.queue, large * 2)
    await scene.fill(3 * MAX_BATCH_SIZE)
    await send(scene.broker, scene.queue, large)
    claim_by_number = scene.store.claim_by_number

    async def claim_after_another(claim: Claim, numbers: Sequence[int]) -> list[Message]:
        await claim_by_number(claim, [2])
        return await claim_by_number(claim, numbers)

    monkeypatch.setattr(scene.store, "claim_by_number", claim_after_another)
    broker = replace(scene.broker, max_response_bytes=2 * (MESSAGE_OVERHEAD_BYTES + 100_000))
    call = asyncio.create_task(receive(broker, scene.queue, replace(receive_request("wanted"), max_messages=100)))
    await scene.clock.advance(5)
    assert [message.sequence_number for message in call.result()] == [1, 3 + 3 * MAX_BATCH_SIZE]


# ---- what it finds ---------------------------------------------------------------------------------------------------


async def test_a_call_goes_on_where_the_last_one_with_its_filter_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive_filtered, "MAX_MESSAGES", 50)
    await scene.fill(300)
    await scene.fill(1, "wanted")
    calls = 0
    found: list[Message] = []
    while not found and calls < 20:
        call = scene.wait("wanted", 0)
        await scene.clock.advance(5)
        found = await call
        calls += 1
    assert len(found) == 1
    assert 6 <= calls <= 9


async def test_a_message_that_is_freed_far_behind_the_walk_is_found_at_once(scene: Scene) -> None:
    await scene.fill(100)
    await scene.fill(1, "wanted")
    await scene.fill(100)
    call = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    (held,) = await call
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    assert not waiting.done()
    ending = abandon(scene.broker, scene.queue, token_of(held), Abandonment())
    await settle_one(scene.broker, scene.queue, ending)
    await scene.clock.advance(0.1)
    assert [message.sequence_number for message in waiting.result()] == [held.sequence_number]


@pytest.mark.parametrize("most", [1, 2])
async def test_of_several_urgent_messages_each_receiver_finds_its_share_at_once(scene: Scene, most: int) -> None:
    """The receiver that is woken first looks at all of them, and has room for some."""
    await scene.fill(200)
    wishes = [replace(receive_request("wanted", 3000), max_messages=most)] * 5
    scene.waiting += [asyncio.create_task(receive(scene.broker, scene.queue, one)) for one in wishes]
    await scene.clock.advance(20)
    await send(scene.broker, scene.queue, [NewMessage(Envelope("", subject="wanted"), priority=9)] * 5 * most)
    await scene.clock.advance(0.5)
    assert [task.done() and len(task.result()) for task in scene.waiting] == [most] * 5


async def test_a_message_that_another_process_frees_behind_the_walk_is_found_at_once(scene: Scene) -> None:
    await scene.fill(100)
    await scene.fill(1, "wanted")
    await scene.fill(100)
    call = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    (held,) = await call
    # One of another filter waits in the other process, and is woken there.
    other = another_process(scene)
    unlike = asyncio.create_task(receive(other, scene.queue, receive_request("unlike", 3000)))
    scene.waiting += [unlike]
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    await settle_one(other, scene.queue, abandon(other, scene.queue, token_of(held), Abandonment()))
    await scene.clock.advance(0.1)
    assert [message.sequence_number for message in waiting.result()] == [held.sequence_number]
    assert not unlike.done()
    other.wait_queue.close()


async def test_a_message_of_a_higher_priority_from_another_process_is_found_at_once(scene: Scene) -> None:
    await scene.fill(200)
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    scene.store.reads = 0
    await send(another_process(scene), scene.queue, [NewMessage(Envelope("", subject="wanted"), priority=9)])
    await scene.clock.advance(0.1)
    assert len(waiting.result()) == 1
    assert scene.store.reads == 0


async def test_a_message_that_was_freed_without_a_word_behind_the_walk_is_found_in_a_round(scene: Scene) -> None:
    await scene.fill(100)
    await scene.fill(1, "wanted")
    await scene.fill(100)
    call = scene.wait("wanted", 0)
    await scene.clock.advance(5)
    (held,) = await call
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    # The move is made in the store alone, so that this process hears nothing of it.
    assert await scene.broker.store.move([undelivered_release(held)]) == [True]
    assert await scene.is_found(waiting, within=201 // (receive_filtered.RESCAN_BATCHES * MAX_BATCH_SIZE) + 2)


async def test_a_message_of_a_higher_priority_is_found_at_once(scene: Scene) -> None:
    await scene.fill(200)
    waiting = scene.wait("wanted")
    await scene.clock.advance(20)
    await send(scene.broker, scene.queue, [NewMessage(Envelope("", subject="wanted"), priority=9)])
    await scene.clock.advance(0.1)
    assert len(waiting.result()) == 1


async def test_more_news_than_a_search_remembers_make_it_begin_again(scene: Scene) -> None:
    await scene.fill(20)
    waiting = scene.wait("wanted")
    await scene.clock.advance(5)
    urgent = [NewMessage(Envelope("", subject="other"), priority=9)] * 600
    await send(scene.broker, scene.queue, [*urgent, NewMessage(Envelope("", subject="wanted"), priority=9)])
    await scene.clock.advance(5)
    assert len(waiting.result()) == 1


async def test_matches_are_received_in_order_by_calls_that_take_one_each(scene: Scene) -> None:
    for _ in range(3):
        await scene.fill(15)
        await scene.fill(2, "wanted")
    numbers: list[int] = []
    for _ in range(6):
        call = scene.wait("wanted", 0)
        await scene.clock.advance(3)
        numbers += [message.sequence_number for message in await call]
    assert len(numbers) == 6
    assert numbers == sorted(numbers)
