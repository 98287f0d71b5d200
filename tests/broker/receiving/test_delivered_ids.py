"""Commits find the ids of recent deliveries in memory, and other ids in the store."""

from dataclasses import replace

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.receiving.delivered_ids import _MAX_DELIVERIES, _MAX_QUEUES, DeliveredIds
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.transactions.commit import CommitRequest, commit
from app.broker.transactions.execute import UnitSend
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from tests.brokers import ChangedStore, OpenBroker
from tests.domain.messages import message

SECRET = b"s" * 16


class Scene:
    """A broker that records for which tokens a commit reads the id, and a queue."""

    def __init__(self, broker: OpenBroker, queue: Queue) -> None:
        self.broker, self.queue = broker, queue
        self.reads: list[LockToken] = []

    async def receive(self) -> Message:
        """Send a message and receive it."""
        await send(self.broker.sending, self.queue.name, [NewMessage(Envelope("order-17"))])
        (received,) = (await receive(self.broker.receiving, self.queue, ReceiveRequest())).result
        return received

    async def commit(self, received: Message) -> str:
        """Complete the message with one send. Return the id of what was sent."""

        async def locked_message_id(queue_id: int, token: LockToken) -> str | None:
            self.reads.append(token)
            return await self.broker.store.locked_message_id(queue_id, token)

        token = token_of(received)
        store = ChangedStore(self.broker.store, locked_message_id=locked_message_id)
        settling = replace(self.broker.settling, store=store)
        ports = replace(self.broker.transactions, settling=settling)
        request = CommitRequest([UnitSend("results", NewMessage(Envelope("")))])
        once = await commit(ports, self.queue, token, request, Attempt(token.secret * 2, b"f" * 32, HOUR))
        (receipt,) = once.result.receipts
        return receipt.message_id


@pytest.fixture
async def scene(broker: OpenBroker, queue: Queue) -> Scene:
    await broker.store.queues.create("results", QueueSettings())
    return Scene(broker, queue)


async def test_only_the_first_commit_of_a_queue_reads_the_id_from_the_store(scene: Scene) -> None:
    first = await scene.receive()
    assert await scene.commit(first) == "orders/order-17/0"
    assert await scene.commit(await scene.receive()) == "orders/order-17/0"
    assert scene.reads == [token_of(first)]


async def test_a_repeated_commit_gets_the_first_result(scene: Scene) -> None:
    await scene.commit(await scene.receive())
    received = await scene.receive()
    assert await scene.commit(received) == "orders/order-17/0"
    assert await scene.commit(received) == "orders/order-17/0"
    assert token_of(received) in scene.reads


async def test_a_delivery_of_another_process_is_read_from_the_store(scene: Scene) -> None:
    await scene.commit(await scene.receive())
    received = await scene.receive()
    scene.broker.delivered_ids.take(scene.queue.id, token_of(received))
    assert await scene.commit(received) == "orders/order-17/0"
    assert token_of(received) in scene.reads


# ---- what is remembered ----------------------------------------------------------------------------------------------


def delivery(number: int, queue_id: int = 1) -> Message:
    """Return a locked message with this number, and its number as its id."""
    envelope = Envelope(str(number))
    return message(sequence_number=number, queue_id=queue_id, lock_token=SECRET, envelope=envelope)


def take(ids: DeliveredIds, number: int, *, queue_id: int = 1, secret: bytes = SECRET) -> str | None:
    """Take the id of a delivery."""
    return ids.take(queue_id, LockToken(number, secret))


@pytest.fixture
def ids() -> DeliveredIds:
    """Remembered deliveries of queue 1, whose messages are committed."""
    remembered = DeliveredIds()
    take(remembered, 0)
    return remembered


def test_an_id_is_remembered_once(ids: DeliveredIds) -> None:
    ids.note(1, [delivery(1)])
    assert [take(ids, 1), take(ids, 1)] == ["1", None]


def test_a_token_names_its_queue_its_message_and_its_secret(ids: DeliveredIds) -> None:
    ids.note(1, [delivery(1)])
    assert take(ids, 1, queue_id=2) is None
    assert take(ids, 2) is None
    assert take(ids, 1, secret=b"t" * 16) is None
    assert take(ids, 1) == "1"


def test_a_message_without_a_lock_is_not_remembered(ids: DeliveredIds) -> None:
    ids.note(1, [message(sequence_number=1, queue_id=1)])
    ids.note(1, [delivery(2)])
    assert [take(ids, 1), take(ids, 2)] == [None, "2"]


def test_nothing_is_remembered_of_a_queue_without_commits(ids: DeliveredIds) -> None:
    ids.note(2, [delivery(1, queue_id=2)])
    assert take(ids, 1, queue_id=2) is None


def test_the_oldest_deliveries_are_forgotten(ids: DeliveredIds) -> None:
    ids.note(1, map(delivery, range(1, _MAX_DELIVERIES + 2)))
    assert [take(ids, 1), take(ids, 2)] == [None, "2"]


def test_the_oldest_queues_are_forgotten(ids: DeliveredIds) -> None:
    for queue_id in range(2, _MAX_QUEUES + 2):
        take(ids, 0, queue_id=queue_id)
    for queue_id in (1, 2):
        ids.note(queue_id, [delivery(1, queue_id)])
    assert [take(ids, 1), take(ids, 1, queue_id=2)] == [None, "1"]
