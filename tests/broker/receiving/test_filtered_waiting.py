"""Receivers that wait with a filter do not block others, and each wake-up costs one poll per receiver."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from app.broker.filtering.filters import CelFilter
from app.broker.ports.attempts import Attempt
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message, MessageHeaders
from app.domain.queue import DEFAULT_MAX_MESSAGE_BYTES, Queue, QueueSettings
from app.domain.sending import NewMessage, create_draft
from app.domain.weight import MAX_RESPONSE_BYTES, MESSAGE_OVERHEAD_BYTES
from app.maintenance.schedule import wake_receivers
from tests.brokers import OpenBroker, result_of, sqlite_broker
from tests.virtual_clock import VirtualClock, run_ready_tasks


class CountingStore:
    """A store that counts its reads."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return partial(self._count, method) if name in ("candidates", "claim", "claim_or_replay") else method

    def _count(self, method: Callable[..., Any], *arguments: Any) -> Any:
        self.reads += 1
        return method(*arguments)


@dataclass
class Scene:
    """An empty queue, and the receivers that wait on it."""

    broker: OpenBroker
    store: CountingStore
    queue: Queue
    waiting: list["asyncio.Task[list[Message]]"] = field(default_factory=list)

    async def wait_for(self, *subjects: str | None, most: int = 1) -> None:
        """Start receivers, each waiting for a subject, or for any message if that is None."""
        for subject in subjects:
            message_filter = None if subject is None else CelFilter(f"message.subject == '{subject}'")
            request = ReceiveRequest(max_messages=most, wait_seconds=50, message_filter=message_filter)
            self.waiting.append(asyncio.create_task(result_of(receive(self.broker.receiving, self.queue, request))))
        await self.settle()
        self.store.reads = 0

    async def send(self, *subjects: str) -> None:
        await send(self.broker.sending, self.queue.name, new_messages(*subjects))
        await self.settle()

    async def send_without_wake_up(self, *subjects: str) -> None:
        """Store messages without a wake-up, as if it were lost."""
        await self.broker.store.send(
            [create_draft(new_message, self.queue, "") for new_message in new_messages(*subjects)]
        )

    async def settle(self) -> None:
        """Return when every receiver waits again or has its messages; the clock does not move."""
        for _ in range(20):
            await run_ready_tasks()

    def received(self) -> list[str | None]:
        """Return the received subjects in the order of the receivers; None for a receiver that still waits."""
        return [
            (task.result()[0].envelope.headers.subject if task.result() else "") if task.done() else None
            for task in self.waiting
        ]


def new_messages(*subjects: str) -> list[NewMessage]:
    return [NewMessage(Envelope("", MessageHeaders(subject=subject))) for subject in subjects]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        store = CountingStore(broker.store)
        scene = Scene(replace(broker, store=store), store, queue)
        yield scene
        broker.wait_queue.close()
        await asyncio.gather(*scene.waiting)


WITH_AND_WITHOUT_FILTER = pytest.mark.parametrize("message_filter", [None, CelFilter("true")], ids=["any", "filtered"])


@WITH_AND_WITHOUT_FILTER
async def test_a_receive_that_does_not_wait_does_not_join_the_wait_queue(
    scene: Scene, message_filter: CelFilter | None
) -> None:
    wait_keys: list[int] = []
    scene.broker.wait_queue.on_first_waiter = wait_keys.append
    assert (
        await receive(scene.broker.receiving, scene.queue, ReceiveRequest(message_filter=message_filter))
    ).result == []
    assert wait_keys == []


@WITH_AND_WITHOUT_FILTER
async def test_a_receiver_waits_for_its_wait_seconds(scene: Scene, message_filter: CelFilter | None) -> None:
    clock: Any = scene.broker.clock
    await clock.advance(10)
    request = ReceiveRequest(wait_seconds=0.5, message_filter=message_filter)
    waiting = asyncio.create_task(result_of(receive(scene.broker.receiving, scene.queue, request)))
    await scene.settle()
    await clock.advance(0.4)
    await scene.settle()
    assert not waiting.done()
    await clock.advance(0.1)
    assert await waiting == []


async def test_a_receiver_behind_filters_that_do_not_match_is_served_at_once(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", "d", None)
    await scene.send("z")
    assert scene.received() == [None, None, None, None, "z"]
    assert scene.store.reads == 5


async def test_the_receiver_with_the_matching_filter_gets_the_message(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", "d")
    await scene.send("c")
    assert scene.received() == [None, None, "c", None]
    await scene.send("a", "d", "b")
    assert scene.received() == ["a", "b", "c", "d"]


async def test_a_message_without_a_matching_filter_costs_one_poll_per_receiver(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", "d")
    await scene.send("z")
    assert scene.store.reads == 4


async def test_the_periodic_wake_up_reaches_every_receiver(scene: Scene) -> None:
    await scene.wait_for("a", "b", "c", None)
    await scene.send_without_wake_up("c", "z")
    await wake_receivers(scene.broker.wait_queue)
    await scene.settle()
    assert scene.received() == [None, None, "c", "z"]


@pytest.mark.parametrize("response_bytes", [MAX_RESPONSE_BYTES, 1], ids=["usual", "less than one message"])
async def test_unfiltered_receivers_cost_one_poll_per_wake_up(scene: Scene, response_bytes: int) -> None:
    scene.broker = replace(
        scene.broker, response_limits=replace(scene.broker.response_limits, max_bytes=response_bytes)
    )
    await scene.wait_for(None, None, None, None)
    await wake_receivers(scene.broker.wait_queue)
    await scene.settle()
    assert scene.store.reads == 1


async def test_a_full_receive_wakes_the_next_receiver(scene: Scene) -> None:
    await scene.wait_for(None, None, None, most=2)
    await scene.send_without_wake_up("x", "x", "y", "y")
    await wake_receivers(scene.broker.wait_queue)
    await scene.settle()
    assert scene.received() == ["x", "y", None]


@pytest.mark.parametrize(("spare", "reads"), [(0, 1), (-1, 2)], ids=["room for any other", "perhaps no room"])
async def test_the_next_receiver_polls_if_a_response_may_have_been_full(scene: Scene, spare: int, reads: int) -> None:
    empty, largest = MESSAGE_OVERHEAD_BYTES, DEFAULT_MAX_MESSAGE_BYTES + MESSAGE_OVERHEAD_BYTES
    scene.broker = replace(
        scene.broker, response_limits=replace(scene.broker.response_limits, max_bytes=empty + largest + spare)
    )
    await scene.wait_for(None, None, most=2)
    await scene.send_without_wake_up("x")
    await wake_receivers(scene.broker.wait_queue)
    await scene.settle()
    assert scene.received() == ["x", None]
    assert scene.store.reads == reads


async def test_a_full_receive_with_a_key_wakes_the_next_receiver(scene: Scene) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, HOUR)
    request = ReceiveRequest(wait_seconds=50)
    once = asyncio.create_task(receive(scene.broker.receiving, scene.queue, request, attempt))
    await scene.wait_for(None, None)
    await scene.send_without_wake_up("x", "y")
    await wake_receivers(scene.broker.wait_queue)
    await scene.settle()
    assert [message.envelope.headers.subject for message in (await once).result] == ["x"]
    assert scene.received() == ["y", None]
    assert scene.store.reads == 3


async def test_a_receive_with_a_key_that_is_not_full_wakes_no_other_receiver(scene: Scene) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, HOUR)
    request = ReceiveRequest(max_messages=2, wait_seconds=50)
    once = asyncio.create_task(receive(scene.broker.receiving, scene.queue, request, attempt))
    await scene.wait_for(None)
    await scene.send_without_wake_up("x")
    await wake_receivers(scene.broker.wait_queue)
    await scene.settle()
    assert [message.envelope.headers.subject for message in (await once).result] == ["x"]
    assert scene.received() == [None]
    assert scene.store.reads == 1
