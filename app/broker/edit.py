"""Edit and cancel: changes to one message that nobody has locked, fenced by the edition it was seen in."""

from collections.abc import Callable, Container
from typing import TypeAlias

from app.broker.broker import Broker
from app.broker.browse import read_message
from app.broker.notify_receivers import notify_message
from app.broker.ports import Edit
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Conflict, MessageLocked, PreconditionFailed

STATES_WITH_DUE_TIME = (MessageState.AVAILABLE, MessageState.SCHEDULED)

MAX_TRIES = 10
"""A message that changes under an edit is looked at anew so often before it counts as busy."""

BUSY_DETAIL = "The message kept changing during this request; try again."

MessageChange: TypeAlias = Callable[[Message], Edit]


async def edit(
    broker: Broker, queue: Queue, sequence_number: int, change: MessageChange, if_match: Container[str] | None = None
) -> Message:
    """Apply to the message what `change` makes of it as it stands; the message as it is then.

    What others do to it at the same time is taken in. Refuses with `PreconditionFailed` where its edition is none of
    those `wanted` (None: any), with `MessageLocked` while a receiver holds it, with `MessageNotFound`, and with
    `Conflict` a due time for a message that is set aside: redrive and receive bring those back.
    """
    for _ in range(MAX_TRIES):
        change_of_seen = change(await _read_unlocked(broker, queue, sequence_number, if_match))
        _check_due_time(change_of_seen)
        edited = await broker.store.edit(change_of_seen)
        if edited is not None:
            notify_message(broker, edited)
            return edited
    raise MessageLocked(BUSY_DETAIL)


async def cancel(broker: Broker, queue: Queue, sequence_number: int, if_match: Container[str] | None = None) -> None:
    """Take an unlocked message out of the queue, into the archive as cancelled.

    Refuses with `PreconditionFailed`, `MessageLocked` or `MessageNotFound`, as `edit` does.
    """
    for _ in range(MAX_TRIES):
        if await broker.store.cancel(await _read_unlocked(broker, queue, sequence_number, if_match), queue):
            return
    raise MessageLocked(BUSY_DETAIL)


async def _read_unlocked(
    broker: Broker, queue: Queue, sequence_number: int, if_match: Container[str] | None
) -> Message:
    """The message as it stands, if it is one that is wanted and nobody holds it."""
    seen = await read_message(broker, queue, sequence_number)
    if if_match is not None and seen.etag not in if_match:
        raise PreconditionFailed(f'The message was changed: its ETag is now "{seen.etag}", in quotes.')
    if seen.state is MessageState.LOCKED:
        raise MessageLocked
    return seen


def _check_due_time(change: Edit) -> None:
    """Refuse with `Conflict` a due time where there can be none."""
    if (change.available_at, change.delay) != (None, None) and change.expected.state not in STATES_WITH_DUE_TIME:
        raise Conflict("Only a message that is available or scheduled has a due time.")
