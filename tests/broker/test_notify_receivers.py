"""Other processes are notified of receivable messages, by position, and of scheduled messages."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.broker.notify_receivers import StateChange
from app.broker.sending.send import send
from app.domain.delivery import wait_key_of
from app.domain.instant import HOUR
from app.domain.message import DEFAULT_PRIORITY, Envelope, MessageState
from app.domain.queue import Queue
from app.domain.sending import NewMessage
from tests.broker.recorders import RecordingNotifier
from tests.brokers import OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock


@pytest.fixture
def notifier() -> RecordingNotifier:
    return RecordingNotifier()


@pytest.fixture
async def broker(notifier: RecordingNotifier) -> AsyncIterator[OpenBroker]:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        yield replace(broker, notifier=notifier)


async def test_a_send_wakes_a_receiver_for_each_message(
    broker: OpenBroker, queue: Queue, notifier: RecordingNotifier
) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 3)
    assert notifier.notified == [(queue.id, 3)]
    assert notifier.changes_of_schedule == 0


async def test_each_queue_of_a_change_is_notified_of_its_messages(
    broker: OpenBroker, notifier: RecordingNotifier
) -> None:
    available, dead_lettered = MessageState.AVAILABLE, MessageState.DEAD_LETTERED
    queues = ((1, available), (2, available), (1, dead_lettered), (2, available), (1, MessageState.DEFERRED))
    broker.sending.receivers.notify(
        StateChange(queue_id, number, state) for number, (queue_id, state) in enumerate(queues)
    )
    assert notifier.notified == [(1, 1), (2, 2), (wait_key_of(1, dead_lettered), 1)]
    assert notifier.passed_numbers == [0, 1, 3, 2]


async def test_a_notification_names_only_messages_that_overtake_others(
    broker: OpenBroker, queue: Queue, notifier: RecordingNotifier
) -> None:
    """Searches find the others when they continue."""
    priorities = (DEFAULT_PRIORITY - 1, DEFAULT_PRIORITY, DEFAULT_PRIORITY + 1)
    await send(broker.sending, queue.name, [NewMessage(Envelope(""), priority=priority) for priority in priorities])
    assert notifier.passed_numbers == [3]


async def test_a_delayed_message_changes_the_schedule(
    broker: OpenBroker, queue: Queue, notifier: RecordingNotifier
) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""), delay=HOUR), NewMessage(Envelope(""), delay=HOUR)])
    assert (notifier.notified, notifier.changes_of_schedule) == ([], 1)
    await send(broker.sending, queue.name, [NewMessage(Envelope(""), delay=HOUR), NewMessage(Envelope(""))])
    assert (notifier.notified, notifier.changes_of_schedule) == ([(queue.id, 1)], 2)
