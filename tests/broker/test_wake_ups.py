"""Every change that makes a message receivable wakes a waiting receiver at once.

The clock does not move during these tests, and no background loop runs except the one under test.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.broker.administration.edit import edit
from app.broker.administration.queues import change_queue, reload_queue
from app.broker.administration.redrive import redrive
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Edit
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send, send_each, send_volatile
from app.broker.settling.outcomes import Abandonment, abandon, dead_letter
from app.broker.settling.settle import release_undelivered, settle_one
from app.domain.delivery import Claim
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import QueueNotFound
from app.domain.sending import NewMessage
from app.domain.settlement import token_of
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import expire_overdue
from app.maintenance.schedule import promote_scheduled
from tests.brokers import OpenBroker, result_of, sqlite_broker
from tests.virtual_clock import VirtualClock, run_ready_tasks

SETTINGS = QueueSettings(max_delivery_count=2, lock_duration=30 * SECOND, duplicate_detection_window=MINUTE)


@dataclass
class Scene:
    """A queue and its broker."""

    broker: OpenBroker
    queue: Queue
    clock: VirtualClock

    async def send(self, **new_message: Any) -> None:
        await send(self.broker.sending, self.queue.name, [NewMessage(Envelope(""), **new_message)])

    async def locked(self, source: MessageState = MessageState.AVAILABLE) -> Message:
        (message,) = (await receive(self.broker.receiving, self.queue, ReceiveRequest(source=source))).result
        return message

    async def sent_and_locked(self) -> Message:
        await self.send()
        return await self.locked()

    async def dead_lettered(self) -> None:
        message = await self.sent_and_locked()
        await settle_one(self.broker.settling, self.queue, dead_letter(self.queue, token_of(message), "why", None))

    async def change(self, **settings: Any) -> None:
        await change_queue(
            self.broker.administration,
            await reload_queue(self.broker.administration, self.queue.name),
            lambda before: replace(before, **settings),
        )


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await broker.store.queues.create("orders", SETTINGS)
        yield Scene(broker, queue, clock)
        broker.wait_queue.close()


async def is_woken(scene: Scene, source: MessageState, change: Callable[[], Awaitable[object]]) -> bool:
    """Return whether a waiting receiver gets a message from the change, without any time passing."""
    waiting = asyncio.create_task(
        result_of(receive(scene.broker.receiving, scene.queue, ReceiveRequest(wait_seconds=50, source=source)))
    )
    await run_ready_tasks()
    assert not waiting.done()
    await change()
    await run_until_idle()
    woken = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    return woken and len(waiting.result()) == 1


async def run_until_idle() -> None:
    """Run every task until it waits for something that only the test can trigger."""
    for _ in range(5):
        await run_ready_tasks()


# ---- the queue -------------------------------------------------------------------------------------------------------


async def do_nothing() -> None:
    """Do nothing."""


async def test_a_receiver_waits_without_a_change(scene: Scene) -> None:
    assert not await is_woken(scene, MessageState.AVAILABLE, do_nothing)


async def test_a_send_wakes_a_receiver(scene: Scene) -> None:
    assert await is_woken(scene, MessageState.AVAILABLE, scene.send)


async def test_a_batch_send_wakes_a_receiver(scene: Scene) -> None:
    new_messages = [NewMessage(Envelope(""))]
    assert await is_woken(
        scene, MessageState.AVAILABLE, lambda: send_each(scene.broker.sending, scene.queue.name, new_messages)
    )


async def test_a_send_with_an_idempotency_key_wakes_once(scene: Scene) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, HOUR)
    new_messages = [NewMessage(Envelope(""))]

    async def send_it() -> None:
        await send(scene.broker.sending, "orders", new_messages, attempt)

    assert await is_woken(scene, MessageState.AVAILABLE, send_it)
    with scene.broker.wait_queue.waiter(scene.queue.id) as waiter:
        await send_it()
        assert not await waiter.woken(0)


async def test_a_stored_volatile_message_wakes_a_receiver(scene: Scene) -> None:
    new_message = NewMessage(Envelope(""))
    assert await is_woken(
        scene, MessageState.AVAILABLE, lambda: send_volatile(scene.broker.sending, scene.queue.name, new_message)
    )


async def test_a_duplicate_wakes_no_receiver(scene: Scene) -> None:
    new_messages = [NewMessage(Envelope("same"))]
    await send(scene.broker.sending, scene.queue.name, new_messages)
    with scene.broker.wait_queue.waiter(scene.queue.id) as waiter:
        await send(scene.broker.sending, scene.queue.name, new_messages)
        await send_each(scene.broker.sending, scene.queue.name, new_messages)
        await send_volatile(scene.broker.sending, scene.queue.name, new_messages[0])
        await run_ready_tasks()
        assert not await waiter.woken(0)


async def test_an_abandoned_message_wakes_a_receiver(scene: Scene) -> None:
    message = await scene.sent_and_locked()
    settlement = abandon(scene.queue, token_of(message), Abandonment())
    assert await is_woken(
        scene, MessageState.AVAILABLE, lambda: settle_one(scene.broker.settling, scene.queue, settlement)
    )


async def test_an_expired_lock_wakes_a_receiver(scene: Scene) -> None:
    await scene.sent_and_locked()
    await scene.clock.advance(31)
    assert await is_woken(scene, MessageState.AVAILABLE, lambda: expire_locks(scene.broker.settling))


async def test_a_due_message_wakes_a_receiver(scene: Scene) -> None:
    await scene.send(delay=SECOND)
    await scene.clock.advance(2)
    assert await is_woken(scene, MessageState.AVAILABLE, lambda: promote_scheduled(scene.broker.administration))


async def test_a_redriven_message_wakes_a_receiver(scene: Scene) -> None:
    await scene.dead_lettered()
    selection = MessageSelection([MessageState.DEAD_LETTERED], MatchAll())
    assert await is_woken(
        scene,
        MessageState.AVAILABLE,
        lambda: redrive(scene.broker.administration, scene.queue, scene.queue, selection, None),
    )


async def test_a_message_edited_to_be_due_wakes_a_receiver(scene: Scene) -> None:
    await scene.send(delay=HOUR)
    assert await is_woken(
        scene,
        MessageState.AVAILABLE,
        lambda: edit(scene.broker.administration, scene.queue, 1, lambda message: Edit(message, delay=0)),
    )


async def test_a_revoked_lock_wakes_a_receiver(scene: Scene) -> None:
    await scene.sent_and_locked()
    assert await is_woken(scene, MessageState.AVAILABLE, lambda: scene.change(lock_duration=60 * SECOND))


async def test_an_undelivered_message_wakes_a_receiver(scene: Scene) -> None:
    message = await scene.sent_and_locked()
    assert await is_woken(
        scene, MessageState.AVAILABLE, lambda: release_undelivered(scene.broker.settling, scene.queue, [message])
    )


@pytest.mark.parametrize("source", [MessageState.AVAILABLE, MessageState.DEAD_LETTERED])
async def test_a_message_released_by_the_store_wakes_a_receiver(scene: Scene, source: MessageState) -> None:
    """A claim is cancelled at the moment of its commit. Only the store, which releases what it has locked, wakes a receiver."""
    await (scene.send() if source is MessageState.AVAILABLE else scene.dead_lettered())
    (locked,) = (await receive(scene.broker.receiving, scene.queue, ReceiveRequest(source=source))).result

    async def claim_and_go() -> None:
        await release_undelivered(replace(scene.broker, notifier=NullNotifier()).settling, scene.queue, [locked])
        claim = Claim(scene.queue.id, 1, 30 * SECOND, source=source)
        claiming = asyncio.create_task(scene.broker.store.claim(claim))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        claiming.cancel()

    assert await is_woken(scene, source, claim_and_go)
    message = await scene.broker.store.read(scene.queue.id, locked.sequence_number)
    assert message is not None
    assert message.delivery_count == locked.delivery_count, "neither a release nor a claim without a caller counts"


class NullNotifier:
    """A notifier that wakes no receiver."""

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        """Do nothing."""

    def schedule_changed(self) -> None:
        """Do nothing."""

    def queues_changed(self) -> None:
        """Do nothing."""


# ---- the dead-letter queue -------------------------------------------------------------------------------------------


async def test_a_dead_lettered_message_wakes_a_receiver_of_dead_letters(scene: Scene) -> None:
    message = await scene.sent_and_locked()
    settlement = dead_letter(scene.queue, token_of(message), "why", None)
    assert await is_woken(
        scene, MessageState.DEAD_LETTERED, lambda: settle_one(scene.broker.settling, scene.queue, settlement)
    )


async def test_an_abandon_at_the_limit_wakes_a_receiver_of_dead_letters(scene: Scene) -> None:
    message = await scene.sent_and_locked()
    await settle_one(scene.broker.settling, scene.queue, abandon(scene.queue, token_of(message), Abandonment()))
    last = abandon(scene.queue, token_of(await scene.locked()), Abandonment())
    assert await is_woken(
        scene, MessageState.DEAD_LETTERED, lambda: settle_one(scene.broker.settling, scene.queue, last)
    )


async def test_an_abandoned_dead_letter_wakes_a_receiver_of_dead_letters(scene: Scene) -> None:
    await scene.dead_lettered()
    message = await scene.locked(MessageState.DEAD_LETTERED)
    settlement = abandon(scene.queue, token_of(message), Abandonment())
    assert await is_woken(
        scene, MessageState.DEAD_LETTERED, lambda: settle_one(scene.broker.settling, scene.queue, settlement)
    )


async def test_a_lock_that_expires_at_the_limit_wakes_a_receiver_of_dead_letters(scene: Scene) -> None:
    await scene.sent_and_locked()
    await scene.clock.advance(31)
    await expire_locks(scene.broker.settling)
    await scene.locked()
    await scene.clock.advance(31)
    assert await is_woken(scene, MessageState.DEAD_LETTERED, lambda: expire_locks(scene.broker.settling))


async def test_an_expired_message_wakes_a_receiver_of_dead_letters(scene: Scene) -> None:
    await scene.change(dead_letter_on_expiry=True)
    await scene.send(ttl=SECOND)
    await scene.clock.advance(2)
    assert await is_woken(scene, MessageState.DEAD_LETTERED, lambda: expire_overdue(scene.broker.administration))


async def test_revoked_dead_letter_locks_wake_a_dead_letter_receiver(
    scene: Scene,
) -> None:
    await scene.dead_lettered()
    await scene.locked(MessageState.DEAD_LETTERED)
    assert await is_woken(scene, MessageState.DEAD_LETTERED, lambda: scene.change(lock_duration=60 * SECOND))


async def test_a_dead_letter_wakes_no_receiver_of_the_queue(scene: Scene) -> None:
    message = await scene.sent_and_locked()
    settlement = dead_letter(scene.queue, token_of(message), "why", None)
    with scene.broker.wait_queue.waiter(scene.queue.id) as waiter:
        await settle_one(scene.broker.settling, scene.queue, settlement)
        assert not await waiter.woken(0)


# ---- disabled, enabled and deleted queues ----------------------------------------------------------------------------


@pytest.mark.parametrize("source", [MessageState.AVAILABLE, MessageState.DEAD_LETTERED])
async def test_enabling_receives_wakes_a_receiver_that_waits_on_a_disabled_queue(
    scene: Scene, source: MessageState
) -> None:
    await scene.change(dead_letter_on_expiry=source is MessageState.DEAD_LETTERED)
    waiting = asyncio.create_task(
        result_of(receive(scene.broker.receiving, scene.queue, ReceiveRequest(wait_seconds=50, source=source)))
    )
    await run_ready_tasks()
    await scene.change(status=QueueStatus.RECEIVE_DISABLED)
    await scene.send(ttl=SECOND if source is MessageState.DEAD_LETTERED else None)
    await scene.clock.advance(2)
    await expire_overdue(scene.broker.administration)
    await run_until_idle()
    assert not waiting.done()
    await scene.change(status=QueueStatus.ACTIVE)
    await run_until_idle()
    assert waiting.done()
    assert len(waiting.result()) == 1


async def test_a_receiver_on_a_deleted_queue_gets_not_found_at_its_next_poll(scene: Scene) -> None:
    waiting = asyncio.create_task(
        result_of(receive(scene.broker.receiving, scene.queue, ReceiveRequest(wait_seconds=50)))
    )
    await run_ready_tasks()
    assert await scene.broker.store.queues.delete(scene.queue)
    scene.broker.queue_cache.forget(scene.queue)
    scene.broker.wait_queue.wake(scene.queue.id)
    await run_until_idle()
    assert waiting.done()
    with pytest.raises(QueueNotFound):
        await waiting
