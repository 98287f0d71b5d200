"""Edit and cancel: changes to one message that nobody has locked, fenced by the edition it was seen in."""

from collections.abc import Callable, Container
from typing import TypeAlias

from app.broker.announce import announce_message
from app.broker.broker import Broker
from app.broker.browse import look
from app.broker.ports import Edit
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Conflict, MessageLocked, PreconditionFailed

HAVE_DUE_TIME = (MessageState.AVAILABLE, MessageState.SCHEDULED)

TRIES = 10
"""A message that changes under an edit is looked at anew so often before it counts as busy."""

BUSY = "The message kept changing during this request; try again."

Change: TypeAlias = Callable[[Message], Edit]


async def edit(
    broker: Broker, queue: Queue, sequence_number: int, change: Change, wanted: Container[str] | None = None
) -> Message:
    """Apply to the message what `change` makes of it as it stands; the message as it is then.

    What others do to it at the same time is taken in. Refuses with `PreconditionFailed` where its edition is none of
    those `wanted` (None: any), with `MessageLocked` while a receiver holds it, with `MessageNotFound`, and with
    `Conflict` a due time for a message that is set aside: redrive and receive bring those back.
    """
    for _ in range(TRIES):
        change_of_seen = change(await _unlocked(broker, queue, sequence_number, wanted))
        _allow(change_of_seen)
        edited = await broker.store.edit(change_of_seen)
        if edited is not None:
            announce_message(broker, edited)
            return edited
    raise MessageLocked(BUSY)


async def cancel(broker: Broker, queue: Queue, sequence_number: int, wanted: Container[str] | None = None) -> None:
    """Take an unlocked message out of the queue, into the archive as cancelled.

    Refuses with `PreconditionFailed`, `MessageLocked` or `MessageNotFound`, as `edit` does.
    """
    for _ in range(TRIES):
        if await broker.store.cancel(await _unlocked(broker, queue, sequence_number, wanted), queue):
            return
    raise MessageLocked(BUSY)


async def _unlocked(broker: Broker, queue: Queue, sequence_number: int, wanted: Container[str] | None) -> Message:
    """The message as it stands, if it is one that is wanted and nobody holds it."""
    seen = await look(broker, queue, sequence_number)
    if wanted is not None and seen.edition not in wanted:
        raise PreconditionFailed(f'The message was changed: its ETag is now "{seen.edition}", in quotes.')
    if seen.state is MessageState.LOCKED:
        raise MessageLocked
    return seen


def _allow(change: Edit) -> None:
    """Refuse with `Conflict` a due time where there can be none."""
    if (change.available_at, change.delay) != (None, None) and change.seen.state not in HAVE_DUE_TIME:
        raise Conflict("Only a message that is available or scheduled has a due time.")
