"""A move task moves each page once, at its rate, by any process, and its records are bounded."""

import asyncio
from typing import Any

import pytest

from app.broker.ports.maintaining import MoveStep, Redrive, UnlockedRow
from app.broker.ports.sending import QueueGone
from app.broker.ports.store import Store
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.move_task import KEPT_TASKS, MoveRequest, MoveRunning, MoveState, MoveTask
from app.domain.queue import Queue, QueueSettings
from tests.brokers import dead_letter_all
from tests.contract.store_fixture import ServerFixture, StoreFixture, numbers


@pytest.fixture
async def target(store_fixture: StoreFixture) -> Queue:
    """An empty queue to which messages move."""
    return await store_fixture.queue()


async def start(
    store_fixture: StoreFixture, queue: Queue, target: Queue, task_id: str = "a", rate: float | None = None
) -> MoveTask:
    """Start a task."""
    request = MoveRequest(target.name, (target.id,), rate)
    return await store_fixture.store.moves.start(task_id, queue, request, 3)


def step(task: MoveTask, target: Queue, *moving: int, position: int | None = None, **fields: Any) -> MoveStep:
    """A step of a task that moves the messages with these numbers and has come to the last of them."""
    redrives = [Redrive(UnlockedRow(number, task.queue_id, MessageState.AVAILABLE), target.id) for number in moving]
    return MoveStep(task, redrives, moving[-1] if position is None else position, **fields)


async def found(store_fixture: StoreFixture, task: MoveTask) -> MoveTask:
    """Return the task as it is now."""
    current = await store_fixture.store.moves.find(task.queue_id, task.id)
    assert current is not None
    return current


# ---- records ---------------------------------------------------------------------------------------------------------


async def test_a_task_starts_before_the_first_message_and_ends_with_the_newest(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    _, last = await store_fixture.send(queue, b"1", b"2")
    task = await start(store_fixture, queue, target, rate=0.5)
    await store_fixture.send(queue, b"3")
    assert (task.position, task.last_number, task.found, task.moved) == (0, last, 3, 0)
    assert (task.state, task.reason, task.ended_at) == (MoveState.RUNNING, None, None)
    assert (task.queue_id, task.request) == (queue.id, MoveRequest(target.name, (target.id,), 0.5))
    for moment in (task.started_at, task.progressed_at, task.next_at):
        assert store_fixture.is_close(moment, await store_fixture.store.now())
    read = await store_fixture.store.moves.of_queue(queue.id)
    assert [one.id for one in read] == ["a"]
    assert await store_fixture.store.moves.of_queue(target.id) == []


async def test_a_task_of_an_empty_database_has_no_messages_to_pass(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    await store_fixture.execute("DELETE FROM message")
    assert (await start(store_fixture, queue, target)).last_number == 0


async def test_one_task_of_a_queue_runs_at_a_time(store_fixture: StoreFixture, queue: Queue, target: Queue) -> None:
    answers = await asyncio.gather(
        *(start(store_fixture, queue, target, task_id) for task_id in "abc"), return_exceptions=True
    )
    assert sorted(isinstance(answer, MoveRunning) for answer in answers) == [False, True, True]
    await start(store_fixture, target, queue, "d")
    (running,) = await store_fixture.store.moves.of_queue(queue.id)
    assert await store_fixture.store.moves.cancel(queue.id, running.id)
    await start(store_fixture, queue, target, "e")


async def test_the_last_ten_tasks_of_a_queue_are_kept(store_fixture: StoreFixture, queue: Queue, target: Queue) -> None:
    await start(store_fixture, target, queue, "other")
    names = [f"{number:02}" for number in range(KEPT_TASKS + 2)]
    for task_id in names:
        await store_fixture.advance_time(1)
        await start(store_fixture, queue, target, task_id)
        assert await store_fixture.store.moves.cancel(queue.id, task_id)
    kept = await store_fixture.store.moves.of_queue(queue.id)
    assert [task.id for task in kept] == names[:1:-1]
    assert len(await store_fixture.execute("SELECT id FROM move_task")) == KEPT_TASKS + 1


async def test_a_task_starts_and_is_kept_after_the_clock_was_set_back(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    for number in range(KEPT_TASKS):
        await start(store_fixture, queue, target, f"{number:02}")
        assert await store_fixture.store.moves.cancel(queue.id, f"{number:02}")
    await store_fixture.advance_time(-1000)
    task = await start(store_fixture, queue, target, "running")
    assert [one.id for one in await store_fixture.store.moves.running(10)] == [task.id]
    assert len(await store_fixture.store.moves.of_queue(queue.id)) == KEPT_TASKS


async def test_tasks_end_with_their_queue(store_fixture: StoreFixture, queue: Queue, target: Queue) -> None:
    numbers_sent = await store_fixture.send(queue, b"1", b"2")
    task = await start(store_fixture, queue, target)
    kept = await start(store_fixture, target, queue, "kept")
    assert await store_fixture.store.queues.delete(queue)
    assert await store_fixture.store.moves.of_queue(queue.id) == []
    assert [one.id for one in await store_fixture.store.moves.running(10)] == [kept.id]
    assert await store_fixture.store.advance_move(step(task, target, *numbers_sent)) is None
    with pytest.raises(QueueGone):
        await start(store_fixture, queue, target, "late")


async def test_a_queue_of_the_same_name_has_no_tasks_of_an_earlier_one(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    assert await store_fixture.store.queues.delete(queue)
    again, _ = await store_fixture.store.queues.create(queue.name, QueueSettings())
    with pytest.raises(QueueGone):
        await start(store_fixture, queue, target)
    await start(store_fixture, again, target)


@pytest.mark.fence("queue", "state")
async def test_a_running_task_of_the_queue_is_cancelled_once(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    task = await start(store_fixture, queue, target)
    moves = store_fixture.store.moves
    assert await moves.find(target.id, task.id) is None
    assert not await moves.cancel(target.id, task.id)
    assert (await found(store_fixture, task)).state is MoveState.RUNNING
    assert await moves.cancel(queue.id, task.id)
    cancelled = await found(store_fixture, task)
    assert cancelled.state is MoveState.CANCELLED
    assert store_fixture.is_close(cancelled.ended_at, await store_fixture.store.now())
    assert not await moves.cancel(queue.id, task.id)
    assert not await moves.cancel(queue.id, "absent")
    assert await moves.running(10) == []


# ---- pages -----------------------------------------------------------------------------------------------------------


async def test_a_page_is_moved_and_recorded_together(store_fixture: StoreFixture, queue: Queue, target: Queue) -> None:
    first, second, third = await store_fixture.send(queue, b"1", b"2", b"3")
    task = await start(store_fixture, queue, target)
    (held,) = await store_fixture.claim(queue, 1)
    assert await store_fixture.store.advance_move(step(task, target, first, second, third)) == [False, True, True]
    assert held.sequence_number == first
    advanced = await found(store_fixture, task)
    assert (advanced.position, advanced.moved, advanced.state) == (third, 2, MoveState.RUNNING)
    assert store_fixture.is_close(advanced.next_at, await store_fixture.store.now())
    assert numbers(await store_fixture.claim(target)) == [second, third]


async def test_a_page_moves_messages_to_another_queue_and_dead_letters_within_their_own(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    own, sent_here = await store_fixture.send(queue, b"1", b"2")
    assert await dead_letter_all(store_fixture.store, queue) == 2
    (available,) = await store_fixture.send(queue, b"3")
    task = await start(store_fixture, queue, target)
    redrives = [
        Redrive(UnlockedRow(own, queue.id, MessageState.DEAD_LETTERED), queue.id),
        Redrive(UnlockedRow(sent_here, queue.id, MessageState.DEAD_LETTERED), target.id),
        Redrive(UnlockedRow(available, queue.id, MessageState.DEAD_LETTERED), queue.id),
    ]
    page = MoveStep(task, redrives, available)
    assert await store_fixture.store.advance_move(page) == [True, True, False]
    assert (await found(store_fixture, task)).moved == 2
    received = {message.sequence_number: message for message in await store_fixture.claim(queue)}
    assert received.keys() == {own, available}
    assert (received[own].failure_count, received[own].dead_letter_reason) == (0, None)
    assert numbers(await store_fixture.claim(target)) == [sent_here]


@pytest.mark.fence("position", "state")
async def test_a_page_that_another_process_has_passed_moves_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    """A process was paused after it had read the page. Another one has gone on, or the task was cancelled."""
    target = await store_fixture.queue()
    sent = await store_fixture.send(queue, b"1", b"2", b"3")
    task = await start(store_fixture, queue, target)
    assert await store_fixture.store.advance_move(step(task, target, sent[0])) == [True]
    assert await store_fixture.store.advance_move(step(task, target, *sent)) is None
    advanced = await found(store_fixture, task)
    assert (advanced.position, advanced.moved) == (sent[0], 1)
    assert await store_fixture.store.moves.cancel(queue.id, task.id)
    assert await store_fixture.store.advance_move(step(advanced, target, *sent[1:])) is None
    assert numbers(await store_fixture.claim(queue)) == sent[1:]
    assert (await found(store_fixture, task)).state is MoveState.CANCELLED


async def test_processes_that_move_the_same_page_at_once_move_it_once(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue, target: Queue
) -> None:
    sent = await store_fixture.send(queue, *[b"body"] * 20)
    task = await start(store_fixture, queue, target)
    answers = await asyncio.gather(*(store.advance_move(step(task, target, *sent)) for store in stores * 4))
    assert [answer for answer in answers if answer is not None] == [[True] * 20]
    assert (await found(store_fixture, task)).moved == 20
    assert len(await store_fixture.claim(target)) == 20


@pytest.mark.fence("time")
async def test_the_next_page_waits_as_long_as_the_rate_demands(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    first, second, third = await store_fixture.send(queue, b"1", b"2", b"3")
    task = await start(store_fixture, queue, target, rate=0.01)
    assert await store_fixture.store.advance_move(step(task, target, first)) == [True]
    task = await found(store_fixture, task)
    assert await store_fixture.store.advance_move(step(task, target, second)) is None
    await store_fixture.advance_time(101)
    assert await store_fixture.store.advance_move(step(task, target, second)) == [True]
    task = await found(store_fixture, task)
    await store_fixture.advance_time(-100_000)
    assert await store_fixture.store.advance_move(step(task, target, third)) == [True], "the clock was set back"


async def test_a_task_that_waits_for_its_target_looks_again_after_a_second(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    (number,) = await store_fixture.send(queue, b"1")
    task = await start(store_fixture, queue, target)
    await store_fixture.advance_time(0.5)
    assert await store_fixture.store.advance_move(step(task, target, position=0)) == []
    waiting = await found(store_fixture, task)
    assert waiting.next_at - waiting.progressed_at > 1.4 * SECOND
    assert await store_fixture.store.advance_move(step(waiting, target, number)) is None
    await store_fixture.advance_time(1)
    assert await store_fixture.store.advance_move(step(waiting, target, number)) == [True]


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
async def test_a_step_ends_before_a_message_that_another_transaction_holds(
    store_fixture: ServerFixture, queue: Queue, target: Queue
) -> None:
    """So no message stays because it was edited or about to be received at that moment."""
    first, second, third = await store_fixture.send(queue, b"1", b"2", b"3")
    task = await start(store_fixture, queue, target)
    last = step(task, target, first, second, third, state=MoveState.COMPLETED)
    async with store_fixture.open_transaction(f"UPDATE message SET priority = 5 WHERE sequence_number = {second}"):
        assert await store_fixture.store.advance_move(last) == [True, False, False]
        task = await found(store_fixture, task)
        assert (task.state, task.position, task.moved) == (MoveState.RUNNING, second - 1, 1)
        assert await store_fixture.store.advance_move(step(task, target, second, third)) == [False, False]
    await store_fixture.advance_time(1)
    assert await store_fixture.store.advance_move(step(task, target, second, third)) == [True, True]
    assert numbers(await store_fixture.claim(target)) == [first, second, third]


async def test_a_step_that_ends_the_task_says_why(store_fixture: StoreFixture, queue: Queue, target: Queue) -> None:
    task = await start(store_fixture, queue, target)
    failing = step(task, target, position=5, state=MoveState.FAILED, reason="Queue b was deleted.")
    assert await store_fixture.store.advance_move(failing) == []
    failed = await found(store_fixture, task)
    assert (failed.state, failed.reason, failed.position) == (MoveState.FAILED, "Queue b was deleted.", 5)
    assert store_fixture.is_close(failed.ended_at, await store_fixture.store.now())
    assert await store_fixture.store.moves.running(10) == []


async def test_nothing_is_recorded_of_a_page_whose_target_is_deleted(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    (number,) = await store_fixture.send(queue, b"1")
    task = await start(store_fixture, queue, target)
    assert await store_fixture.store.queues.delete(target)
    with pytest.raises(QueueGone):
        await store_fixture.store.advance_move(step(task, target, number))
    assert (await found(store_fixture, task)).position == 0
    assert numbers(await store_fixture.claim(queue)) == [number]


async def test_running_tasks_are_listed_in_the_order_in_which_they_are_due(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    (number,) = await store_fixture.send(queue, b"1")
    first = await start(store_fixture, queue, target, "first", rate=0.01)
    await start(store_fixture, target, queue, "second")
    assert await store_fixture.store.advance_move(step(first, target, number)) == [True]
    assert [task.id for task in await store_fixture.store.moves.running(10)] == ["second", "first"]
    assert [task.id for task in await store_fixture.store.moves.running(1)] == ["second"]


@pytest.mark.fence("level")
async def test_a_task_of_a_newer_queue_is_left_to_newer_servers(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    newer = await store_fixture.queue(QueueSettings(history=True))
    (number,) = await store_fixture.send(newer, b"1")
    task = await start(store_fixture, newer, target)
    assert [one.id for one in await store_fixture.store.moves.running(10)] == [task.id]
    await store_fixture.need_newer_server(newer)
    assert await store_fixture.store.moves.running(10) == []
    assert await store_fixture.store.advance_move(step(task, target, number)) is None


async def test_the_queues_that_forward_dead_letters_to_a_queue_are_found(
    store_fixture: StoreFixture, queue: Queue, target: Queue
) -> None:
    store = store_fixture.store
    forwarding = [
        await store_fixture.queue(QueueSettings(forward_dead_letters_to=name))
        for name in (target.name, queue.name, target.name)
    ]
    sources = await store.queues.dead_letter_sources(target.name)
    assert sources == sorted([forwarding[0], forwarding[2]], key=lambda one: one.name)
    assert await store.queues.dead_letter_sources(forwarding[0].name) == []
