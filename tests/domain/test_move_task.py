"""The rules of move tasks: how much a page moves, how long the next one waits, and where a message goes."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from app.domain.instant import HOUR, SECOND
from app.domain.message import Envelope, MessageState
from app.domain.move_task import (
    MAX_TARGETS,
    MAX_WAIT,
    PAGE_SIZE,
    MoveRequest,
    MoveState,
    MoveTask,
    check_targets,
    movable_states,
    other_queues,
    target_names_of,
)
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import InvalidRequest
from tests.domain.messages import metadata

TASK = MoveTask(
    id="a",
    queue_id=1,
    request=MoveRequest("other", (2,)),
    state=MoveState.RUNNING,
    position=7,
    last_number=9,
    found=3,
    moved=1,
    started_at=0,
    progressed_at=0,
    next_at=0,
    ended_at=None,
    reason=None,
    read_at=0,
)


def at(rate: float | None) -> MoveTask:
    """A task with this rate."""
    return replace(TASK, request=replace(TASK.request, rate=rate))


def queue(queue_id: int, name: str) -> Queue:
    """A queue of this id and name."""
    return Queue(queue_id, name, QueueSettings(), 1, 0, 0)


@pytest.mark.parametrize(
    ("rate", "page", "pause"),
    [
        (None, PAGE_SIZE, 0),
        (0.5, 1, 2 * SECOND),
        (1, 1, SECOND),
        (2.9, 2, 689_656),
        (250, 250, SECOND),
        (1000, PAGE_SIZE, SECOND // 2),
        (3_000_000, PAGE_SIZE, 167),
    ],
)
def test_a_page_has_the_messages_of_a_second_and_the_next_one_waits_for_them(
    rate: float | None, page: int, pause: int
) -> None:
    task = at(rate)
    assert task.request.page_size == page
    assert task.pause_after(8, page) == pause
    assert task.pause_after(8, 0) == 0


def test_a_task_that_has_not_come_further_waits_a_second() -> None:
    assert at(None).pause_after(7, 0) == SECOND


@pytest.mark.parametrize(
    ("rate", "until_next", "due_in"),
    [
        (None, 0, 0),
        (None, -HOUR, 0),
        (None, SECOND, SECOND),
        (None, SECOND + 1, 0),
        (0.1, 10 * SECOND, 10 * SECOND),
        (0.1, 10 * SECOND + 1, 0),
    ],
)
def test_a_page_further_away_than_any_pause_is_due(rate: float | None, until_next: int, due_in: int) -> None:
    """The clock of the store was set back."""
    assert replace(at(rate), next_at=HOUR + until_next, read_at=HOUR).due_in == due_in


def test_a_task_waits_for_a_day() -> None:
    assert not replace(TASK, progressed_at=5, read_at=5 + MAX_WAIT).has_waited_too_long
    assert replace(TASK, progressed_at=5, read_at=6 + MAX_WAIT).has_waited_too_long


@pytest.mark.parametrize(
    ("properties", "targets"),
    [
        (b"", []),
        (b'{"region":"eu"}', []),
        (b'{"dead_letter_queue":7}', []),
        (b'{"dead_letter_queue":"failures"}', []),
        (b'{"dead_letter_queue":"orders"}', ["orders"]),
    ],
)
def test_a_message_goes_to_the_named_queue_or_back_to_the_one_that_dead_lettered_it(
    properties: bytes, targets: list[str]
) -> None:
    source = queue(1, "failures")
    message = metadata(body_bytes=0, envelope=Envelope("id", properties=properties))
    dead = replace_fields(message, state=MessageState.DEAD_LETTERED)
    assert target_names_of(message, source, MoveRequest(None, ())) == targets
    assert target_names_of(dead, source, MoveRequest(None, ())) == [*targets, "failures"]
    for one in (message, dead):
        assert target_names_of(one, source, MoveRequest("other", (2,))) == ["other"]


def test_only_dead_letters_move_within_their_queue() -> None:
    source = queue(1, "failures")
    dead = (MessageState.DEAD_LETTERED,)
    everything = (MessageState.AVAILABLE, MessageState.BLOCKED, *dead)
    assert movable_states(source, MoveRequest(None, (1,))) == dead
    for targets in ((2,), (2, 1)):
        assert movable_states(source, MoveRequest(None, targets)) == everything
    assert movable_states(source, MoveRequest("other", (2,))) == everything
    assert other_queues(source, [queue(2, "a"), source]) == [queue(2, "a")]


def test_a_move_has_a_target_that_is_another_queue() -> None:
    source = queue(1, "failures")
    check_targets(source, "other", [queue(2, "other")])
    check_targets(source, None, [source])
    check_targets(source, None, [*(queue(number, f"q-{number}") for number in range(2, MAX_TARGETS + 2)), source])
    with pytest.raises(InvalidRequest, match="already in this queue"):
        check_targets(source, "failures", [source])
    with pytest.raises(InvalidRequest, match="No queue forwards its dead letters to queue failures"):
        check_targets(source, None, [])
    with pytest.raises(InvalidRequest, match="More than 100 queues"):
        check_targets(source, None, [queue(number, f"q-{number}") for number in range(2, MAX_TARGETS + 3)])
