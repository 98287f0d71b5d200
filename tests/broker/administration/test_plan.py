"""A plan counts what a purge or redrive would take, shows the first messages, and changes nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.plan import plan_redrive, plan_selection
from app.broker.administration.purge import purge
from app.broker.administration.redrive import redrive
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import CelFilter, MatchAll
from app.broker.filtering.search_state import MAX_BATCH_SIZE
from app.broker.sending.send import send
from app.domain.message import BodyKind, Envelope, MessageHeaders, MessageState
from app.domain.plan import MAX_SAMPLE_SIZE
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import InvalidRequest, QueueFull, SendDisabled
from app.domain.sending import NewMessage
from tests.brokers import OpenBroker, dead_letter_all

AVAILABLE = MessageSelection([MessageState.AVAILABLE], MatchAll())
DEAD = MessageSelection([MessageState.DEAD_LETTERED], MatchAll())
ODD = CelFilter("message.properties.odd == true")


async def fill(broker: OpenBroker, queue: Queue, count: int) -> None:
    """Send messages of ascending size, of which every second one is odd."""
    messages = [
        NewMessage(
            Envelope(f"id-{n}", MessageHeaders(subject="s"), properties=b'{"odd":true}' if n % 2 else b""),
            b"x" * n,
            BodyKind.BYTES,
        )
        for n in range(count)
    ]
    await send(broker.sending, queue.name, messages)


@pytest.mark.parametrize(
    "selection",
    [AVAILABLE, replace(AVAILABLE, message_filter=ODD), replace(AVAILABLE, limit=7), replace(AVAILABLE, batch_size=3)],
    ids=["all", "filter", "limit", "small batches"],
)
async def test_a_plan_counts_what_the_purge_then_removes(
    broker: OpenBroker, queue: Queue, selection: MessageSelection
) -> None:
    await fill(broker, queue, 20)
    before = await broker.store.queues.counts([queue.id])
    plan = await plan_selection(broker.administration, queue, selection)
    assert await broker.store.queues.counts([queue.id]) == before
    assert (plan.count, plan.is_complete) == (await purge(broker.administration, queue, selection), True)


async def test_a_plan_counts_the_bytes_of_bodies_and_properties(broker: OpenBroker, queue: Queue) -> None:
    await fill(broker, queue, 4)
    assert (await plan_selection(broker.administration, queue, AVAILABLE)).bytes == 0 + 1 + 2 + 3 + 2 * len(
        '{"odd":true}'
    )
    too_large = replace(AVAILABLE, max_message_bytes=2)
    assert (await plan_selection(broker.administration, queue, too_large)).count == 2


async def test_a_plan_shows_the_first_messages(broker: OpenBroker, queue: Queue) -> None:
    await fill(broker, queue, 30)
    small_batches = replace(AVAILABLE, message_filter=ODD, batch_size=4)
    sample = (await plan_selection(broker.administration, queue, small_batches)).sample
    assert [message.message_id for message in sample] == [f"id-{n}" for n in range(1, 2 * MAX_SAMPLE_SIZE, 2)]
    assert {(message.state, message.subject) for message in sample} == {(MessageState.AVAILABLE, "s")}


async def test_a_plan_that_the_timeout_ends_is_incomplete(broker: OpenBroker, queue: Queue) -> None:
    await fill(broker, queue, MAX_BATCH_SIZE + 1)
    plan = await plan_selection(broker.administration, queue, AVAILABLE, timeout_seconds=0)
    assert (plan.count, plan.is_complete) == (MAX_BATCH_SIZE, False)
    nothing = replace(AVAILABLE, message_filter=CelFilter("message.subject == 'other'"))
    plan = await plan_selection(broker.administration, queue, nothing, timeout_seconds=0)
    assert (plan.count, plan.is_complete) == (0, False)


async def test_a_plan_of_an_empty_queue_is_empty(broker: OpenBroker, queue: Queue) -> None:
    plan = await plan_selection(broker.administration, queue, AVAILABLE, timeout_seconds=0)
    assert (plan.count, plan.bytes, plan.sample, plan.is_complete) == (0, 0, [], True)


class TestRedrive:
    """The plan of a redrive counts what the target accepts, and refuses what the redrive refuses."""

    @pytest.fixture
    async def other(self, broker: OpenBroker) -> Queue:
        other, _ = await broker.store.queues.create("repairs", QueueSettings())
        return other

    async def dead(self, broker: OpenBroker, queue: Queue, count: int) -> None:
        await fill(broker, queue, count)
        await dead_letter_all(broker.store, queue)

    @pytest.mark.parametrize(
        ("settings", "limit"),
        [({}, None), ({}, 3), ({"max_messages": 2}, None), ({"max_messages": 9}, 4), ({"max_message_bytes": 2}, None)],
        ids=str,
    )
    async def test_a_plan_counts_what_another_queue_then_receives(
        self, broker: OpenBroker, queue: Queue, other: Queue, settings: dict[str, Any], limit: int | None
    ) -> None:
        await self.dead(broker, queue, 6)
        changed = await broker.store.queues.change(other, replace(other.settings, **settings))
        assert changed is not None
        selection = replace(DEAD, limit=limit)
        plan = await plan_redrive(broker.administration, queue, changed, selection, None)
        assert plan.is_complete
        assert plan.count == await redrive(broker.administration, queue, changed, selection, None)

    async def test_a_full_queue_plans_its_own_dead_letters(self, broker: OpenBroker, queue: Queue) -> None:
        await self.dead(broker, queue, 3)
        full = await broker.store.queues.change(queue, replace(queue.settings, max_messages=1))
        assert full is not None
        assert (await plan_redrive(broker.administration, full, full, DEAD, None)).count == 3

    async def test_a_full_target_refuses_unless_no_message_would_move(
        self, broker: OpenBroker, queue: Queue, other: Queue
    ) -> None:
        full = await broker.store.queues.change(other, replace(other.settings, max_messages=1))
        assert full is not None
        await fill(broker, full, 1)
        assert (await plan_redrive(broker.administration, queue, full, DEAD, None)).count == 0
        await self.dead(broker, queue, 2)
        with pytest.raises(QueueFull):
            await plan_redrive(broker.administration, queue, full, DEAD, None)

    @pytest.mark.parametrize("verb", [redrive, plan_redrive])
    async def test_a_plan_refuses_as_the_redrive_does(
        self, broker: OpenBroker, queue: Queue, other: Queue, verb: Callable[..., Awaitable[Any]]
    ) -> None:
        with pytest.raises(InvalidRequest):
            await verb(broker.administration, queue, other, DEAD, 0.01, 50)
        disabled = await broker.store.queues.change(other, replace(other.settings, status=QueueStatus.SEND_DISABLED))
        with pytest.raises(SendDisabled):
            await verb(broker.administration, queue, disabled, DEAD, None)
