"""Operations that select among many messages read only the bodies that they return."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.broker.administration.browse import browse
from app.broker.administration.purge import purge
from app.broker.administration.redrive import redrive
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import CelFilter, MatchAll
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.message import BodyKind, Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import NewMessage
from tests.brokers import OpenBroker, dead_letter_all, sqlite_broker
from tests.virtual_clock import VirtualClock

AVAILABLE = [MessageState.AVAILABLE]


class BodyRecordingStore:
    """A store that records the bodies it returns."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.bodies: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def browse(self, queue_id: int, states: Sequence[MessageState], after: int, most: int) -> list[Message]:
        return self._record_bodies(await self._store.browse(queue_id, states, after, most))

    async def read_many(self, queue_id: int, numbers: Sequence[int]) -> list[Message]:
        return self._record_bodies(await self._store.read_many(queue_id, numbers))

    def _record_bodies(self, messages: list[Message]) -> list[Message]:
        self.bodies += [message.body for message in messages]
        return messages


@dataclass
class Scene:
    """A queue of eight messages, each with its index as a property and in its body."""

    broker: OpenBroker
    store: BodyRecordingStore
    queue: Queue


def new_message(index: int) -> NewMessage:
    return NewMessage(Envelope("", properties=b'{"place":%d}' % index), b"%d" % index * 1000, BodyKind.BYTES)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        await send(broker.sending, queue.name, [new_message(index) for index in range(8)])
        store = BodyRecordingStore(broker.store)
        yield Scene(replace(broker, store=store), store, queue)


async def test_a_filtered_page_reads_only_the_bodies_that_it_returns(scene: Scene) -> None:
    odd = CelFilter("message.properties.place == 3 || message.properties.place == 5 || message.properties.place == 7")
    found, after = await browse(scene.broker.administration, scene.queue, AVAILABLE, odd, 0, 2)
    assert [message.body[:1] for message in found] == [b"3", b"5"]
    assert [message.body for message in found] == scene.store.bodies
    found, after = await browse(scene.broker.administration, scene.queue, AVAILABLE, odd, after or 0, 2)
    assert ([message.body[:1] for message in found], after) == ([b"7"], None)
    assert len(scene.store.bodies) == 3


async def test_a_filter_can_compare_the_length_of_the_body(scene: Scene) -> None:
    short = NewMessage(Envelope("short"), b"x", BodyKind.BYTES)
    await send(scene.broker.sending, scene.queue.name, [short])
    found, _ = await browse(
        scene.broker.administration, scene.queue, AVAILABLE, CelFilter("message.body_bytes < 10"), 0, 5
    )
    assert [message.envelope.message_id for message in found] == ["short"]
    assert scene.store.bodies == [b"x"]


async def test_a_page_leaves_out_a_message_that_changed_its_state_meanwhile(scene: Scene) -> None:
    class Late(BodyRecordingStore):
        async def read_many(self, queue_id: int, numbers: Sequence[int]) -> list[Message]:
            await receive(scene.broker.receiving, scene.queue, ReceiveRequest(max_messages=2))
            return await super().read_many(queue_id, numbers)

    late = replace(scene.broker, store=Late(scene.store))
    found, _ = await browse(
        late.administration, scene.queue, AVAILABLE, CelFilter("message.properties.place < 4"), 0, 5
    )
    assert [message.body[:1] for message in found] == [b"2", b"3"]


async def test_purge_and_redrive_read_no_bodies(scene: Scene) -> None:
    first = CelFilter("message.properties.place < 3")
    assert await purge(scene.broker.administration, scene.queue, MessageSelection(AVAILABLE, first)) == 3
    assert await dead_letter_all(scene.broker.store, scene.queue) == 5
    dead = MessageSelection([MessageState.DEAD_LETTERED], MatchAll())
    assert await redrive(scene.broker.administration, scene.queue, scene.queue, dead, None) == 5
    assert scene.store.bodies == []


async def test_a_filtered_receive_reads_only_the_bodies_that_it_returns(scene: Scene) -> None:
    request = ReceiveRequest(max_messages=1, message_filter=CelFilter("message.properties.place == 6"))
    (message,) = (await receive(scene.broker.receiving, scene.queue, request)).result
    assert message.body[:1] == b"6"
    assert scene.store.bodies == []
