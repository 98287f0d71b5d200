"""A move task moves what its queue had at the start, in order and at its rate, and says how it has ended."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.broker.administration.move import cancel_move, find_targets, list_moves, read_move, start_move
from app.broker.administration.move_page import move_page
from app.broker.administration.plan import plan_move
from app.broker.administration.queues import change_queue, delete_queue
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.instant import HOUR, to_seconds
from app.domain.message import BodyKind, Envelope, Message
from app.domain.move_task import (
    KEPT_TASKS,
    MAX_TARGETS,
    MAX_WAIT,
    PAGE_SIZE,
    MoveEnded,
    MoveNotFound,
    MoveRequest,
    MoveRunning,
    MoveState,
    MoveTask,
)
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import InvalidRequest, QueueNotFound, SendDisabled
from app.domain.sending import NewMessage
from app.maintenance.dead_letters import DeadLetterForwarder
from app.maintenance.moves import advance_moves
from tests.bounds import bounded
from tests.brokers import OpenBroker, dead_letter_all, need_newer_server, result_of, set_forwarding
from tests.virtual_clock import VirtualClock, run_ready_tasks


@dataclass
class Scene:
    """A queue with messages, and another queue."""

    broker: OpenBroker
    clock: VirtualClock
    queue: Queue
    other: Queue

    async def create(self, name: str, **settings: Any) -> Queue:
        return (await self.broker.store.queues.create(name, QueueSettings(**settings)))[0]

    async def configure(self, queue: Queue, **settings: Any) -> Queue:
        """Change settings of a queue, as an administrator does."""
        return await change_queue(self.broker.administration, queue, lambda before: replace(before, **settings))

    async def send(self, *bodies: bytes, to: Queue | None = None, properties: bytes = b"") -> None:
        messages = [NewMessage(Envelope("", properties=properties), body, BodyKind.BYTES) for body in bodies]
        await send(self.broker.sending, (to or self.queue).name, messages)

    async def start(self, to: Queue | None = None, rate: float | None = None, queue: Queue | None = None) -> MoveTask:
        """Start a move to this queue."""
        target = to or self.other
        request = MoveRequest(target.name, (target.id,), rate)
        return await start_move(self.broker.administration, queue or self.queue, request)

    async def start_home(self) -> MoveTask:
        """Start a move of the messages of the other queue back to the queues that have dead-lettered them."""
        targets = await find_targets(self.broker.administration, self.other, None)
        return await start_move(
            self.broker.administration, self.other, MoveRequest(None, tuple(target.id for target in targets))
        )

    async def run(self) -> float | None:
        """Run passes of the background loop until none has more to do at this time. Return the delay after the last."""
        for _ in bounded("the passes end"):
            if delay := await advance_moves(self.broker.administration):
                return delay
        raise AssertionError

    async def read(self, task: MoveTask) -> MoveTask:
        """Return the task as it is now."""
        found = await self.broker.store.moves.find(task.queue_id, task.id)
        assert found is not None
        return found

    async def end_of(self, task: MoveTask) -> tuple[MoveState, int, str | None]:
        """Run passes, and return the state of the task, how many messages it has moved, and why it has failed."""
        await self.run()
        found = await self.read(task)
        return found.state, found.moved, found.reason

    async def bodies(self, queue: Queue) -> list[bytes]:
        """Receive what is available in a queue."""
        received: list[Message] = []
        for _ in bounded("the queue is empty"):
            batch = (await receive(self.broker.receiving, queue, ReceiveRequest(max_messages=1000))).result
            if not batch:
                return [message.body for message in received]
            received += batch
        raise AssertionError

    async def total(self, queue: Queue) -> int:
        return await self.broker.store.queues.total(queue.id)


@pytest.fixture
async def scene(broker: OpenBroker, queue: Queue, clock: VirtualClock) -> Scene:
    other, _ = await broker.store.queues.create("other", QueueSettings())
    return Scene(broker, clock, queue, other)


# ---- what moves ------------------------------------------------------------------------------------------------------


async def test_a_task_moves_what_the_queue_had_at_the_start_in_order(scene: Scene) -> None:
    sent = [str(number).encode() for number in range(2 * PAGE_SIZE + 1)]
    await scene.send(*sent)
    task = await scene.start()
    await scene.send(b"later")
    assert await scene.end_of(task) == (MoveState.COMPLETED, len(sent), None)
    assert await scene.bodies(scene.other) == sent
    assert await scene.bodies(scene.queue) == [b"later"]
    assert scene.broker.counters["messages_moved"] == len(sent)
    assert (await scene.read(task)).found == len(sent)


async def test_a_task_without_messages_is_completed(scene: Scene) -> None:
    assert await scene.end_of(await scene.start()) == (MoveState.COMPLETED, 0, None)


async def test_a_full_last_page_is_followed_by_an_empty_one(scene: Scene) -> None:
    await scene.send(*[b""] * PAGE_SIZE)
    task = await scene.start()
    assert await move_page(scene.broker.administration, task)
    running = await scene.read(task)
    assert (running.state, running.moved) == (MoveState.RUNNING, PAGE_SIZE)
    assert not await move_page(scene.broker.administration, running)
    assert (await scene.read(task)).state is MoveState.COMPLETED


async def test_dead_lettered_messages_move_and_those_in_flight_or_not_due_stay(scene: Scene) -> None:
    await scene.send(b"dead")
    assert await dead_letter_all(scene.broker.store, scene.queue) == 1
    await scene.send(b"locked")
    await receive(scene.broker.receiving, scene.queue, ReceiveRequest())
    await send(scene.broker.sending, scene.queue.name, [NewMessage(Envelope(""), b"scheduled", delay=HOUR)])
    await scene.send(b"available")
    assert await scene.end_of(await scene.start()) == (MoveState.COMPLETED, 2, None)
    assert await scene.bodies(scene.other) == [b"dead", b"available"]
    assert await scene.total(scene.queue) == 2


async def test_a_message_that_is_too_large_for_the_target_stays(scene: Scene) -> None:
    await scene.configure(scene.other, max_message_bytes=3)
    await scene.send(*[b"large"] * (PAGE_SIZE + 1), b"fit")
    assert await scene.end_of(await scene.start()) == (MoveState.COMPLETED, 1, None)
    assert await scene.bodies(scene.other) == [b"fit"]
    assert await scene.total(scene.queue) == PAGE_SIZE + 1


async def test_a_waiting_receiver_of_the_target_is_woken(scene: Scene) -> None:
    waiting = asyncio.create_task(
        result_of(receive(scene.broker.receiving, scene.other, ReceiveRequest(wait_seconds=5)))
    )
    await run_ready_tasks()
    await scene.send(b"1")
    await scene.start()
    await scene.run()
    await run_ready_tasks()
    assert waiting.done()
    assert [message.body for message in await waiting] == [b"1"]


# ---- the rate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "first", "delay"), [(None, 9, 1.0), (4, 4, 1.0), (2.5, 2, 0.8), (0.5, 1, 1.0), (1e6, 9, 1.0)]
)
async def test_a_page_has_the_messages_of_a_second(scene: Scene, rate: float | None, first: int, delay: float) -> None:
    await scene.send(*[b""] * 9)
    task = await scene.start(rate=rate)
    assert await scene.run() == pytest.approx(delay)
    assert (await scene.read(task)).moved == first


async def test_a_task_keeps_its_rate(scene: Scene) -> None:
    await scene.send(*[b""] * 9)
    task = await scene.start(rate=2)
    moved: list[int] = []
    for _ in range(6):
        await scene.run()
        moved.append((await scene.read(task)).moved)
        await scene.clock.advance(0.5)
    assert moved == [2, 2, 4, 4, 6, 6]


async def test_a_slow_task_holds_up_no_other(scene: Scene) -> None:
    await scene.send(b"1", b"2")
    slow = await scene.start(rate=0.001)
    await scene.run()
    await scene.send(b"3", to=scene.other)
    quick = await scene.start(scene.queue, queue=scene.other)
    assert await scene.end_of(quick) == (MoveState.COMPLETED, 2, None)
    assert (await scene.read(slow)).moved == 1


async def test_a_clock_that_was_set_back_does_not_stop_a_task(scene: Scene) -> None:
    await scene.send(b"1", b"2")
    task = await scene.start(rate=1)
    await scene.run()
    await scene.clock.advance(-to_seconds(HOUR))
    assert await scene.end_of(task) == (MoveState.RUNNING, 2, None)
    await scene.clock.advance(1)
    assert await scene.end_of(task) == (MoveState.COMPLETED, 2, None)


# ---- targets that do not accept messages -----------------------------------------------------------------------------


async def test_a_task_waits_while_its_target_has_no_room(scene: Scene) -> None:
    await scene.configure(scene.other, max_messages=2)
    await scene.send(b"1", b"2", b"3")
    task = await scene.start()
    assert await scene.end_of(task) == (MoveState.RUNNING, 2, None)
    await scene.clock.advance(10)
    assert await scene.end_of(task) == (MoveState.RUNNING, 2, None)
    await scene.configure(scene.other, max_messages=3)
    assert await scene.end_of(task) == (MoveState.RUNNING, 2, None), "it looks again after a second"
    await scene.clock.advance(1)
    assert await scene.end_of(task) == (MoveState.COMPLETED, 3, None)
    assert await scene.bodies(scene.other) == [b"1", b"2", b"3"]


async def test_a_task_whose_target_has_no_room_for_a_day_fails(scene: Scene) -> None:
    await scene.configure(scene.other, max_messages=1)
    await scene.send(b"1", b"2")
    task = await scene.start()
    await scene.run()
    await scene.clock.advance(to_seconds(MAX_WAIT))
    assert await scene.end_of(task) == (MoveState.RUNNING, 1, None)
    await scene.clock.advance(2)
    assert await scene.end_of(task) == (MoveState.FAILED, 1, "Queue other has had no room for a day.")
    assert await scene.total(scene.queue) == 1


@pytest.mark.parametrize("rate", [None, 1])
async def test_a_task_fails_when_its_target_is_deleted(scene: Scene, rate: float | None) -> None:
    await scene.send(b"1", b"2")
    task = await scene.start(rate=rate)
    await delete_queue(scene.broker.administration, scene.other)
    await scene.create("other")
    assert await scene.end_of(task) == (MoveState.FAILED, 0, "Queue other was deleted.")
    assert await scene.bodies(scene.queue) == [b"1", b"2"]


async def test_a_target_that_another_process_deletes_is_noticed(scene: Scene) -> None:
    await scene.send(b"1")
    task = await scene.start()
    await scene.broker.queue_cache.by_id(scene.other.id)
    assert await scene.broker.store.queues.delete(scene.other)
    assert not await move_page(scene.broker.administration, task)
    assert await scene.end_of(task) == (MoveState.FAILED, 0, "Queue other was deleted.")


async def test_a_task_fails_when_its_target_refuses_sends(scene: Scene) -> None:
    await scene.send(b"1")
    task = await scene.start()
    await scene.configure(scene.other, status=QueueStatus.SEND_DISABLED)
    reason = "Queue other does not accept sends at present."
    assert await scene.end_of(task) == (MoveState.FAILED, 0, reason)


@pytest.mark.parametrize(
    "before", [{"status": QueueStatus.SEND_DISABLED}, {"max_message_bytes": 1}], ids=["refuses sends", "takes less"]
)
async def test_a_change_of_the_target_before_the_start_holds_for_the_task(scene: Scene, before: Any) -> None:
    """Another process has changed the target, and this one still has its old settings in its cache."""
    other = await scene.configure(scene.other, **before)
    assert await scene.broker.queue_cache.by_id(other.id) == other
    assert await scene.broker.store.queues.change(other, QueueSettings())
    await scene.send(b"12")
    assert await scene.end_of(await scene.start()) == (MoveState.COMPLETED, 1, None)


async def test_a_target_that_forwards_is_followed(scene: Scene) -> None:
    last = await scene.create("last")
    await scene.configure(scene.other, forward_to="last")
    await scene.send(b"1")
    assert await scene.end_of(await scene.start()) == (MoveState.COMPLETED, 1, None)
    assert await scene.bodies(last) == [b"1"]


async def test_a_task_fails_when_its_target_begins_to_forward_to_its_queue(scene: Scene) -> None:
    await scene.send(b"1")
    task = await scene.start()
    await scene.configure(scene.other, forward_to=scene.queue.name)
    reason = "Queue other forwards messages to queue orders."
    assert await scene.end_of(task) == (MoveState.FAILED, 0, reason)


@pytest.mark.parametrize("newer", ["orders", "other"])
async def test_the_messages_of_newer_queues_are_left_to_newer_servers(scene: Scene, newer: str) -> None:
    await scene.send(b"1")
    task = await scene.start()
    await need_newer_server(scene.broker, newer)
    assert await scene.end_of(task) == (MoveState.RUNNING, 0, None)


# ---- dead letters that go back ---------------------------------------------------------------------------------------


async def dead_letter(scene: Scene, source: Queue, *bodies: bytes) -> None:
    """Send messages to a queue that forwards dead letters, and dead-letter them."""
    await scene.send(*bodies, to=source)
    assert await dead_letter_all(scene.broker.store, source) == len(bodies)
    await DeadLetterForwarder(scene.broker.administration).step()
    assert await scene.total(source) == 0


async def test_dead_letters_go_back_to_the_queues_that_forwarded_them(scene: Scene) -> None:
    first, second = [await scene.create(name, forward_dead_letters_to="other") for name in ("first", "second")]
    await dead_letter(scene, first, b"1", b"2")
    await dead_letter(scene, second, b"3")
    await scene.send(b"sent here", to=scene.other)
    await scene.send(b"of no queue", to=scene.other, properties=b'{"dead_letter_queue":7}')
    await scene.send(b"of its own", to=scene.other, properties=b'{"dead_letter_queue":"other"}')
    await scene.send(b"of another", to=scene.other, properties=b'{"dead_letter_queue":"orders"}')
    assert await scene.end_of(await scene.start_home()) == (MoveState.COMPLETED, 3, None)
    assert await scene.bodies(first) == [b"1", b"2"]
    assert await scene.bodies(second) == [b"3"]
    assert await scene.total(scene.other) == 4


@pytest.mark.parametrize("how", ["deleted", "disabled", "made again"])
async def test_a_dead_letter_whose_queue_is_gone_stays(scene: Scene, how: str) -> None:
    first, second = [await scene.create(name, forward_dead_letters_to="other") for name in ("first", "second")]
    await dead_letter(scene, first, b"1")
    await dead_letter(scene, second, b"2")
    task = await scene.start_home()
    if how == "disabled":
        await scene.configure(first, status=QueueStatus.DISABLED)
    else:
        await delete_queue(scene.broker.administration, first)
    if how == "made again":
        await scene.create("first")
    assert await scene.end_of(task) == (MoveState.COMPLETED, 1, None)
    assert await scene.bodies(second) == [b"2"]
    assert await scene.bodies(scene.other) == [b"1"]


# ---- dead letters of the queue itself --------------------------------------------------------------------------------


async def test_dead_letters_of_the_queue_itself_become_available_in_it(scene: Scene) -> None:
    """They need no room, and no size is too large for the queue that has them."""
    await scene.send(b"large", b"2", to=scene.other)
    assert await dead_letter_all(scene.broker.store, scene.other) == 2
    await scene.send(b"available", to=scene.other)
    await scene.configure(scene.other, max_messages=3, max_message_bytes=3)
    task = await scene.start_home()
    assert task.found == 2
    assert await scene.end_of(task) == (MoveState.COMPLETED, 2, None)
    assert await scene.bodies(scene.other) == [b"large", b"2", b"available"]


async def test_dead_letters_go_back_to_where_each_comes_from(scene: Scene) -> None:
    first = await scene.create("first", forward_dead_letters_to="other")
    second = await scene.create("second", forward_dead_letters_to="other")
    await dead_letter(scene, first, b"1")
    await dead_letter(scene, second, b"of a queue that was deleted")
    await scene.send(b"own", to=scene.other)
    assert await dead_letter_all(scene.broker.store, scene.other) == 3
    await delete_queue(scene.broker.administration, second)
    await scene.send(b"available", to=scene.other)
    task = await scene.start_home()
    assert await scene.end_of(task) == (MoveState.COMPLETED, 3, None)
    assert await scene.bodies(first) == [b"1"]
    assert await scene.bodies(scene.other) == [b"of a queue that was deleted", b"own", b"available"]


async def test_dead_letters_stay_in_a_queue_that_refuses_sends(scene: Scene) -> None:
    await scene.send(b"1", to=scene.other)
    assert await dead_letter_all(scene.broker.store, scene.other) == 1
    task = await scene.start_home()
    await scene.configure(scene.other, status=QueueStatus.SEND_DISABLED)
    assert await scene.end_of(task) == (MoveState.COMPLETED, 0, None)
    assert await scene.bodies(scene.other) == []


async def test_dead_letters_of_a_queue_that_forwards_its_messages_become_available_in_it(scene: Scene) -> None:
    await scene.send(b"1", to=scene.other)
    assert await dead_letter_all(scene.broker.store, scene.other) == 1
    other = await scene.configure(scene.other, forward_to=scene.queue.name)
    assert await scene.end_of(await scene.start_home()) == (MoveState.COMPLETED, 1, None)
    assert await scene.bodies(other) == [b"1"]


async def test_a_plan_counts_the_dead_letters_of_the_queue_itself(scene: Scene) -> None:
    await scene.send(b"1", b"2", to=scene.other)
    assert await dead_letter_all(scene.broker.store, scene.other) == 2
    await scene.send(b"available", to=scene.other)
    targets = await find_targets(scene.broker.administration, scene.other, None)
    request = MoveRequest(None, tuple(target.id for target in targets))
    assert (await plan_move(scene.broker.administration, scene.other, request)).count == 2


# ---- targets that a task needs ---------------------------------------------------------------------------------------


async def test_a_move_without_a_target_needs_a_queue_that_forwards_its_dead_letters(scene: Scene) -> None:
    with pytest.raises(InvalidRequest, match="No queue forwards its dead letters to queue other") as refused:
        await find_targets(scene.broker.administration, scene.other, None)
    assert [error.pointer for error in refused.value.field_errors] == ["/to_queue"]


async def test_a_move_goes_back_to_a_bounded_number_of_queues(scene: Scene) -> None:
    for number in range(MAX_TARGETS + 1):
        assert len(await find_targets(scene.broker.administration, scene.other, scene.queue)) == 1
        await scene.create(f"source-{number}", forward_dead_letters_to="other")
    with pytest.raises(InvalidRequest, match="More than 100 queues"):
        await find_targets(scene.broker.administration, scene.other, None)


# ---- plans -----------------------------------------------------------------------------------------------------------


async def test_a_plan_counts_what_a_task_would_move(scene: Scene) -> None:
    await scene.configure(scene.other, max_message_bytes=3, max_messages=1)
    await scene.send(b"1", b"large", b"3")
    await receive(scene.broker.receiving, scene.queue, ReceiveRequest())
    plan = await plan_move(scene.broker.administration, scene.queue, MoveRequest("other", (scene.other.id,)))
    assert (plan.count, plan.bytes, plan.is_complete) == (1, 1, True)
    assert len(plan.sample) == 1
    assert await scene.total(scene.queue) == 3


async def test_a_plan_counts_what_goes_back(scene: Scene) -> None:
    first = await scene.create("first", forward_dead_letters_to="other")
    await dead_letter(scene, first, b"1", b"2")
    await scene.send(b"sent here", to=scene.other)
    targets = await find_targets(scene.broker.administration, scene.other, None)
    request = MoveRequest(None, tuple(target.id for target in targets))
    assert (await plan_move(scene.broker.administration, scene.other, request)).count == 2


# ---- requests --------------------------------------------------------------------------------------------------------


async def test_a_move_to_its_own_queue_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidRequest, match="already in this queue"):
        await find_targets(scene.broker.administration, scene.queue, scene.queue)
    other = await scene.configure(scene.other, forward_to=scene.queue.name)
    with pytest.raises(InvalidRequest, match="Queue other forwards messages to queue orders"):
        await find_targets(scene.broker.administration, scene.queue, other)


async def test_a_move_to_a_queue_that_refuses_sends_is_refused(scene: Scene) -> None:
    other = await scene.configure(scene.other, status=QueueStatus.SEND_DISABLED)
    with pytest.raises(SendDisabled):
        await find_targets(scene.broker.administration, scene.queue, other)
    await set_forwarding(scene.broker, scene.queue.name, "absent")
    with pytest.raises(QueueNotFound):
        await find_targets(scene.broker.administration, other, await scene.broker.queue_cache.by_name("orders"))


async def test_a_second_task_of_a_queue_is_refused_while_one_runs(scene: Scene) -> None:
    await scene.start()
    with pytest.raises(MoveRunning):
        await scene.start()
    await scene.run()
    await scene.start()


async def test_a_task_of_a_deleted_queue_is_refused(scene: Scene) -> None:
    assert await scene.broker.store.queues.delete(scene.queue)
    with pytest.raises(QueueNotFound):
        await scene.start()


async def test_the_last_tasks_are_listed(scene: Scene) -> None:
    for _ in range(KEPT_TASKS + 1):
        await scene.clock.advance(1)
        last = await scene.start()
        await scene.run()
    listed = await list_moves(scene.broker.administration, scene.queue)
    assert len(listed) == KEPT_TASKS
    assert listed[0].id == last.id
    assert await read_move(scene.broker.administration, scene.queue, last.id) == listed[0]
    with pytest.raises(MoveNotFound):
        await read_move(scene.broker.administration, scene.other, last.id)


async def test_a_cancelled_task_keeps_what_it_has_moved(scene: Scene) -> None:
    await scene.send(b"1", b"2", b"3")
    task = await scene.start(rate=2)
    await scene.run()
    cancelled = await cancel_move(scene.broker.administration, scene.queue, task.id)
    assert (cancelled.state, cancelled.moved) == (MoveState.CANCELLED, 2)
    repeated = await cancel_move(scene.broker.administration, scene.queue, task.id)
    assert replace(repeated, read_at=0) == replace(cancelled, read_at=0)
    await scene.clock.advance(10)
    assert await scene.end_of(task) == (MoveState.CANCELLED, 2, None)
    assert await scene.total(scene.queue) == 1


async def test_a_task_that_has_ended_is_not_cancelled(scene: Scene) -> None:
    task = await scene.start()
    await scene.run()
    with pytest.raises(MoveEnded):
        await cancel_move(scene.broker.administration, scene.queue, task.id)
    with pytest.raises(MoveNotFound):
        await cancel_move(scene.broker.administration, scene.queue, "absent")


async def test_two_tasks_that_move_messages_in_a_cycle_end(scene: Scene) -> None:
    """Each moves what it has not passed yet, even what the other one has moved there."""
    await scene.send(*[b"a"] * 700)
    await scene.send(*[b"b"] * 700, to=scene.other)
    there, back = await scene.start(), await scene.start(scene.queue, queue=scene.other)
    assert (await scene.end_of(there))[0] is MoveState.COMPLETED
    assert (await scene.end_of(back))[0] is MoveState.COMPLETED
    assert await scene.total(scene.queue) + await scene.total(scene.other) == 1400
