"""Handlers that keep a state, by the shooting range of the source document: a sequence of shots, and a duplicate of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

import msgspec
import pytest
from peeklock_client import Client, ConstantRetry, HandlerContext, NewMessage, NoRetry, Queue, Worker
from peeklock_client.worker.replay import Captured, ReplayDiffers

from tests.client.conftest import new_queue
from tests.client.test_worker import ended, running

MAX_ATTEMPTS = 2


@dataclass
class Range:
    """The state: where the target is, and how many shots of this round were fired."""

    target: int = 42
    attempts: int = 0


@dataclass
class Shot:
    game: str
    position: int


Handle = Callable[[Range, Shot, HandlerContext], list[NewMessage]]


def fire_at(results: Queue) -> Handle:
    """Return the handler of the source document. Its results say whether the shot hit."""

    def handle(range_: Range, shot: Shot, context: HandlerContext) -> list[NewMessage]:
        result = "Hit" if range_.target == shot.position else "Missed"
        answer = NewMessage({"id": context.new_id(), "game": shot.game}, queue=results.name, subject=result)
        if range_.attempts + 1 >= MAX_ATTEMPTS:
            range_.attempts, range_.target = 0, context.randint(0, 10**9)
        else:
            range_.attempts += 1
        return [answer]

    return handle


async def shoot(queue: Queue, game: str, *shots: tuple[str, int]) -> None:
    await queue.send_batch([NewMessage(Shot(game, position), message_id=message_id) for message_id, position in shots])


async def results_of(queue: Queue) -> list[tuple[str, str | None, Any]]:
    """Return the results in the queue, each with its id, its subject and its body."""
    received = await queue.receive(100)
    return [(one.message.message_id, one.message.subject, one.message.body) for one in received]


def worker_of(client: Client, queue: Queue, handle: Callable[..., Any], **options: Any) -> Worker:
    worker = Worker(client)
    keyed: dict[str, Any] = {"key": lambda shot: shot.game, "state": Range, "logic": "1"}
    worker.on_state(queue.name, **keyed, **options)(handle)
    return worker


@pytest.fixture
def game() -> str:
    return f"game-{uuid4().hex[:8]}"


@pytest.mark.behaviour("S4.3", "S4.4", "S4.5", "S4.6", "S4.13", "S4.14", "S4.15", "S4.23")
async def test_a_duplicate_gives_the_same_results_and_changes_nothing(
    any_client: Client, any_queue: Queue, game: str
) -> None:
    """The sequence [A, D, B] and then D again. D draws the new target at random."""
    results = await new_queue(any_client)
    worker = worker_of(any_client, any_queue, fire_at(results))
    await shoot(any_queue, game, ("A", 42))
    async with running(worker):
        await ended(any_queue, 1, worker)
        await shoot(any_queue, game, ("D", 7))
        await ended(any_queue, 2, worker)
        await shoot(any_queue, game, ("B", 7))
        await ended(any_queue, 3, worker)
        before = await any_client.api.get_state(game)
        first_results = await results_of(results)
        await shoot(any_queue, game, ("D", 7))
        report = await ended(any_queue, 4, worker)
    after = await any_client.api.get_state(game)
    assert [(message_id, subject) for message_id, subject, _ in first_results] == [
        (f"{any_queue.name}/A/0", "Hit"), (f"{any_queue.name}/D/0", "Missed"), (f"{any_queue.name}/B/0", "Missed"),
    ]  # fmt: skip
    assert report.completed == 4
    assert (
        (after.version, after.value) == (before.version, before.value) == (3, asdict(Range(before.value["target"], 1)))
    )
    assert await results_of(results) == []
    history = (await any_client.api.list_versions(game)).items
    assert [version.message_id for version in history] == ["A", "D", "B"]


@dataclass
class Stock:
    """The state of a later version of the code, which does not read the earlier one."""

    pieces: int


async def test_a_state_of_another_type_is_not_the_fault_of_the_body(client: Client, queue: Queue, game: str) -> None:
    """Its message is retried by the policy, and the worker does not pause. A body of another type is dead-lettered."""

    def handle(state: object, shot: Shot, context: HandlerContext) -> None: ...

    await shoot(queue, game, ("A", 1))
    async with running(first := worker_of(client, queue, handle)):
        await ended(queue, 1, first)
    await shoot(queue, game, ("B", 1), ("C", 1))
    second = Worker(client)
    second.on_state(queue.name, key=lambda shot: shot.game, state=Stock, retry=ConstantRetry(60))(handle)
    async with running(second):
        report = await ended(queue, 2, second)
    assert (report.abandoned, report.dead_lettered) == (2, 0)
    assert {message.last_failure async for message in queue.browse()} == {"InvalidState"}


@pytest.mark.behaviour("S4.2")
async def test_a_duplicate_of_a_handler_that_is_not_deterministic_is_refused(
    client: Client, queue: Queue, game: str
) -> None:
    def handle(range_: Range, shot: Shot, context: HandlerContext) -> None:
        range_.target = uuid4().int % 10**9

    worker = worker_of(client, queue, handle, retry=NoRetry())
    await shoot(queue, game, ("A", 1))
    async with running(worker):
        await ended(queue, 1, worker)
        await shoot(queue, game, ("A", 1))
        report = await ended(queue, 2, worker)
    [dead] = await queue.receive(source="dead_letter")
    assert (report.completed, dead.message.dead_letter_reason) == (1, "ResultDiffers")


@pytest.mark.behaviour("S4.2")
async def test_duplicates_that_are_processed_at_once_take_effect_once(
    any_client: Client, any_queue: Queue, game: str
) -> None:
    """Each is loaded before the other is committed. The second commit is refused, and finds a duplicate when it loads again."""
    both, calls = asyncio.Barrier(2), 0

    async def handle(range_: Range, shot: Shot, context: HandlerContext) -> None:
        nonlocal calls
        calls += 1
        if calls <= both.parties:
            await both.wait()
        range_.target = context.randint(0, 10**9)

    worker = worker_of(any_client, any_queue, handle, max_workers=2, retry=NoRetry())
    await shoot(any_queue, game, ("A", 1))
    await shoot(any_queue, game, ("A", 1))
    async with running(worker):
        report = await ended(any_queue, 2, worker)
    state = await any_client.api.get_state(game)
    assert (report.completed, report.dead_lettered, state.version, calls) == (2, 0, 1, 3)


@pytest.mark.behaviour("S4.8", "S4.24")
async def test_messages_that_change_one_state_at_once_all_count(
    any_client: Client, any_queue: Queue, game: str
) -> None:
    async def handle(range_: Range, shot: Shot, context: HandlerContext) -> None:
        await asyncio.sleep(0)
        range_.attempts += 1

    worker = worker_of(any_client, any_queue, handle, max_workers=4)
    await shoot(any_queue, game, *((f"shot-{number}", number) for number in range(20)))
    async with running(worker):
        report = await ended(any_queue, 20, worker)
    state = await any_client.api.get_state(game)
    assert (report.completed, state.version, state.value["attempts"]) == (20, 20, 20)


async def test_an_error_of_the_handler_follows_the_policy(client: Client, queue: Queue, game: str) -> None:
    def handle(range_: Range, shot: Shot, context: HandlerContext) -> None:
        raise ValueError

    worker = worker_of(client, queue, handle, retry=NoRetry())
    await shoot(queue, game, ("A", 1))
    async with running(worker):
        report = await ended(queue, 1, worker)
    assert report.dead_lettered == 1


async def test_results_that_are_refused_leave_the_message_to_the_policy(
    client: Client, queue: Queue, game: str
) -> None:
    def handle(range_: Range, shot: Shot, context: HandlerContext) -> NewMessage:
        return NewMessage(1, queue="x", priority=10)

    worker = worker_of(client, queue, handle, retry=NoRetry())
    await shoot(queue, game, ("A", 1))
    async with running(worker):
        await ended(queue, 1, worker)
    [dead] = await queue.receive(source="dead_letter")
    assert dead.message.dead_letter_reason == "InvalidRequest"


# ---- what is captured and replayed -----------------------------------------------------------------------------------


def read_all(context: HandlerContext) -> list[Any]:
    return [
        context.now(), context.random(), context.randint(1, 10**9), context.environ("HOME"), context.environ("NO_SUCH", "x"),
        context.new_id(), context.new_id(),
    ]  # fmt: skip


@pytest.mark.behaviour("S4.15", "S4.16", "S4.21")
def test_a_duplicate_reads_what_the_first_processing_read() -> None:
    first = HandlerContext("orders", "A", "1", None)
    read = read_all(first)
    captured = msgspec.json.decode(msgspec.json.encode(first.captured), type=Captured)
    duplicate = HandlerContext("orders", "A", "2", captured)
    assert read_all(duplicate) == read
    assert (first.is_duplicate, duplicate.is_duplicate, duplicate.logic) == (False, True, "1")


@pytest.mark.behaviour("S4.14")
def test_identifiers_follow_from_the_message() -> None:
    ids = [HandlerContext("orders", message_id, "", None).new_id() for message_id in ("A", "A", "B")]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.behaviour("S4.14")
def test_identifiers_of_the_copies_of_a_message_differ() -> None:
    assert len({HandlerContext(queue, "A", "", None).new_id() for queue in ("orders.mail", "orders.bill")}) == 2


@pytest.mark.behaviour("S4.14")
def test_a_duplicate_makes_the_identifiers_of_the_first_processing() -> None:
    first = HandlerContext("orders.mail", "A", "", None)
    assert HandlerContext("orders.bill", "A", "", first.captured).new_id() == first.new_id()
    # An older client has captured no queue: uuid5 of the id of the message and the number of the call.
    of_older_client = msgspec.json.decode(b'{"logic":"1","read":[]}', type=Captured)
    again = HandlerContext("orders.mail", "A", "1", of_older_client)
    assert again.new_id() == str(uuid5(NAMESPACE_OID, "A/1"))


@pytest.mark.behaviour("S4.14")
def test_each_identifier_of_a_message_is_another_one() -> None:
    context = HandlerContext("orders", "A", "", None)
    assert len({context.new_id() for _ in range(3)}) == 3


@pytest.mark.behaviour("S4.21")
@pytest.mark.parametrize("read", [lambda context: context.random(), lambda context: [context.now(), context.now()]])
def test_a_duplicate_that_reads_other_values_raises(read: Callable[[HandlerContext], Any]) -> None:
    first = HandlerContext("orders", "A", "1", None)
    first.now()
    with pytest.raises(ReplayDiffers):
        read(HandlerContext("orders", "A", "1", first.captured))


async def test_a_function_with_other_parameters_is_refused_before_it_receives(client: Client, queue: Queue) -> None:
    def without_context(range_: Range, shot: Shot) -> None: ...

    def of_the_state_alone(range_: Range) -> None: ...

    def of_four(range_: Range, shot: Shot, context: HandlerContext, name: str) -> None: ...

    for handle in (without_context, of_the_state_alone, of_four):
        with pytest.raises(TypeError, match=f"{handle.__name__} must take a state, a body and a HandlerContext"):
            await worker_of(client, queue, handle).start()
