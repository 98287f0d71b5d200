"""Other processes hear of what became receivable, by place in the order, and of what now waits for its time."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.broker.broker import Broker
from app.broker.send import send
from app.domain.instant import HOUR
from app.domain.message import DEFAULT_PRIORITY, Envelope
from app.domain.queue import Queue
from app.domain.sending import Letter
from tests.broker.others import Processes
from tests.clock import VirtualClock
from tests.rooms import sqlite_broker


@pytest.fixture
def processes() -> Processes:
    return Processes()


@pytest.fixture
async def broker(processes: Processes) -> AsyncIterator[Broker]:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        yield replace(broker, bells=processes)


async def test_a_send_wakes_a_receiver_for_each_message(broker: Broker, queue: Queue, processes: Processes) -> None:
    await send(broker, queue, [Letter(Envelope(""))] * 3)
    assert processes.rung == [(queue.id, 3)]
    assert processes.changes_of_schedule == 0


async def test_only_messages_that_go_before_others_are_named(
    broker: Broker, queue: Queue, processes: Processes
) -> None:
    """Searches find the others where they go on."""
    priorities = (DEFAULT_PRIORITY - 1, DEFAULT_PRIORITY, DEFAULT_PRIORITY + 1)
    await send(broker, queue, [Letter(Envelope(""), priority=priority) for priority in priorities])
    assert processes.passed == [3]


async def test_the_schedule_changes_with_a_message_that_waits_for_its_time(
    broker: Broker, queue: Queue, processes: Processes
) -> None:
    await send(broker, queue, [Letter(Envelope(""), delay=HOUR), Letter(Envelope(""), delay=HOUR)])
    assert (processes.rung, processes.changes_of_schedule) == ([], 1)
    await send(broker, queue, [Letter(Envelope(""), delay=HOUR), Letter(Envelope(""))])
    assert (processes.rung, processes.changes_of_schedule) == ([(queue.id, 1)], 2)
