"""Receivers that wait through a filter stand in nobody's way, and cost one look each."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from app.broker.broker import Broker
from app.broker.filters import CelFilter
from app.broker.ports import Attempt
from app.broker.receive import ReceiveRequest, receive, receive_once
from app.broker.send import send
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message
from app.domain.queue import DEFAULT_MAX_MESSAGE_BYTES, Queue, QueueSettings
from app.domain.sending import NewMessage, create_draft
from app.domain.weight import MAX_RESPONSE_BYTES, MESSAGE_OVERHEAD_BYTES
from app.maintenance.wake_receivers import wake_receivers
from tests.brokers import sqlite_broker
from tests.virtual_clock import VirtualClock, run_ready_tasks


class CountingStore:
    """A store that counts how often it is looked into."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return partial(self._count, method) if name in ("candidates", "claim", "claim_once") else method

    def _count(self, method: Callable[..., Any], *asked: Any) -> Any:
        self.reads += 1
        return method(*asked)


@dataclass
class Scene:
    """A queue with nothing in it, and those who wait."""

    broker: Broker
    store: CountingStore
    queue: Queue
    waiting: list["asyncio.Task[list[Message]]"] = field(default_factory=list)

    async def wait_for(self, *subjects: str | None, most: int = 1) -> None:
        """Let receivers wait, each for a subject or, where that is None, for anything."""
        for subject in subjects:
            matching = None if subject is None else CelFilter(f"message.subject == '{subject}'")
            wish = ReceiveRequest(max_messages=most, wait_seconds=50, message_filter=matching)
            self.waiting.append(asyncio.create_task(receive(self.broker, self.queue, wish)))
        await self.settle()
        self.store.reads = 0

    async def send(self, *subjects: str) -> None:
        await send(self.broker, self.queue, new_messages(*subjects))
        await self.settle()

    async def send_without_wake_up(self, *subjects: str) -> None:
        """Store messages as if their wake-up were lost."""
        await self.broker.store.send([create_draft(letter, self.queue, "") for letter in new_messages(*subjects)])

    async def settle(self) -> None:
        """Return when everybody waits again, or has what it waited for; the clock stands still meanwhile."""
        for _ in range(20):
            await run_ready_tasks()

    def received(self) -> list[str | None]:
        """The subjects of what came, in the order of those who waited; None for those who wait still."""
        return [
            (task.result()[0].envelope.subject if task.result() else "") if task.done() else None
            for task in self.waiting
        ]


def new_messages(*subjects: str) -> list[NewMessage]:
    return [NewMessage(Envelope("", subject=subject)) for subject in subjects]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        store = CountingStore(broker.store)
        scene = Scene(replace(broker, store=store), store, queue)
        yield scene
        broker.wait_queue.close()
        await asyncio.gather(*scene.waiting)


WITH_AND_WITHOUT_FILTER = pytest.mark.parametrize("matching", [None, CelFilter("true")], ids=["any", "filtered"])


@WITH_AND_WITHOUT_FILTER
async def test_a_receive_that_does_not_wait_takes_no_place_in_the_line(
    scene: Scene, matching: CelFilter | None
) -> None:
    lines: list[int] = []
    scene.broker.wait_queue.on_first_waiter = lines.append
    assert await receive(scene.broker, scene.queue, ReceiveRequest(message_filter=matching)) == []
    assert lines == []


@WITH_AND_WITHOUT_FILTER
async def test_a_receiver_waits_as_long_as_it_asked_to(scene: Scene, matching: CelFilter | None) -> None:
    clock: Any = scene.broker.clock
    await clock.advance(10)
    wish = ReceiveRequest(wait_seconds=0.5, message_filter=matching)
    waiting = asyncio.create_task(receive(scene.broker, scene.queue, wish))
    await scene.settle()
    await clock.advance(0.4)
    await scene.settle()
    assert not waiting.done()
    await clock.advance(0.1)
    assert await waiting == []


async def test_a_receiver_behind_filters_that_never_match_is_served_at_once(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", "d", None)
    await scene.send("z")
    assert scene.received() == [None, None, None, None, "z"]
    assert scene.store.reads == 5


async def test_the_one_it_is_for_is_found_among_many(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", "d")
    await scene.send("c")
    assert scene.received() == [None, None, "c", None]
    await scene.send("a", "d", "b")
    assert scene.received() == ["a", "b", "c", "d"]


async def test_what_is_for_nobody_is_looked_for_once_by_everybody(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", "d")
    await scene.send("z")
    assert scene.store.reads == 4


async def test_the_look_of_each_second_reaches_everybody(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", None)
    await scene.send_without_wake_up("c", "z")
    await wake_receivers(scene.broker)
    await scene.settle()
    assert scene.received() == [None, None, "c", "z"]


@pytest.mark.parametrize("largest_answer", [MAX_RESPONSE_BYTES, 1], ids=["usual answers", "less than one message"])
async def test_receivers_without_a_filter_cost_one_look_a_second(scene: Scene, largest_answer: int) -> None:
    scene.broker = replace(scene.broker, max_response_bytes=largest_answer)
    await scene.wait_for(None, None, None, None)
    await wake_receivers(scene.broker)
    await scene.settle()
    assert scene.store.reads == 1


async def test_who_takes_all_it_may_lets_the_next_look_for_the_rest(scene: Scene) -> None:
    await scene.wait_for(None, None, None, most=2)
    await scene.send_without_wake_up("x", "x", "y", "y")
    await wake_receivers(scene.broker)
    await scene.settle()
    assert scene.received() == ["x", "y", None]


@pytest.mark.parametrize(("spare", "looks"), [(0, 1), (-1, 2)], ids=["room for any other", "perhaps no room"])
async def test_the_next_looks_where_an_answer_may_have_had_no_room_for_a_message(
    scene: Scene, spare: int, looks: int
) -> None:
    empty, largest = MESSAGE_OVERHEAD_BYTES, DEFAULT_MAX_MESSAGE_BYTES + MESSAGE_OVERHEAD_BYTES
    scene.broker = replace(scene.broker, max_response_bytes=empty + largest + spare)
    await scene.wait_for(None, None, most=2)
    await scene.send_without_wake_up("x")
    await wake_receivers(scene.broker)
    await scene.settle()
    assert scene.received() == ["x", None]
    assert scene.store.reads == looks


async def test_who_receives_once_lets_the_next_look_for_the_rest(scene: Scene) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, HOUR)
    wish = ReceiveRequest(wait_seconds=50)
    once = asyncio.create_task(receive_once(scene.broker, scene.queue, wish, attempt))
    await scene.wait_for(None, None)
    await scene.send_without_wake_up("x", "y")
    await wake_receivers(scene.broker)
    await scene.settle()
    assert [message.envelope.subject for message in (await once).result] == ["x"]
    assert scene.received() == ["y", None]
    assert scene.store.reads == 3


async def test_who_receives_once_and_less_than_it_may_leaves_nothing_to_look_for(scene: Scene) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, HOUR)
    wish = ReceiveRequest(max_messages=2, wait_seconds=50)
    once = asyncio.create_task(receive_once(scene.broker, scene.queue, wish, attempt))
    await scene.wait_for(None)
    await scene.send_without_wake_up("x")
    await wake_receivers(scene.broker)
    await scene.settle()
    assert [message.envelope.subject for message in (await once).result] == ["x"]
    assert scene.received() == [None]
    assert scene.store.reads == 1
