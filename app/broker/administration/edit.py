"""Edit and cancel: change one unlocked message, fenced by the ETag that was read."""

from collections.abc import Callable, Container
from typing import TypeAlias

from app.broker.administration.browse import read_message
from app.broker.administration.ports import AdministrationPorts
from app.broker.ports.maintaining import Edit
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Conflict, MessageLocked, PreconditionFailed, SynchronousMessage
from app.domain.settlement import Outcome

STATES_WITH_DUE_TIME = (MessageState.AVAILABLE, MessageState.SCHEDULED, MessageState.BLOCKED)

_MAX_TRIES = 10
"""How often an edit reads a message that keeps changing before it reports the message as busy."""

BUSY_DETAIL = "The message kept changing during this request; try again."

MessageChange: TypeAlias = Callable[[Message], Edit]


async def edit(
    ports: AdministrationPorts,
    queue: Queue,
    sequence_number: int,
    change: MessageChange,
    if_match: Container[str] | None = None,
) -> Message:
    """Apply the edit that `change` builds from the current message; return the edited message.

    The edit is built again after a concurrent change. Refuses with `PreconditionFailed` if the ETag is not in
    `if_match` (None: any ETag), with `MessageLocked` while a receiver holds the message, and with `MessageNotFound`.
    Refuses with `Conflict` a due time for a deferred or dead-lettered message: receive and redrive bring those back.
    """
    for _ in range(_MAX_TRIES):
        requested = change(await _read_unlocked(ports, queue, sequence_number, if_match))
        _check_due_time(requested)
        edited = await ports.store.edit(requested)
        if edited is not None:
            ports.receivers.notify_message(edited)
            return edited
    raise MessageLocked(BUSY_DETAIL)


async def cancel(
    ports: AdministrationPorts, queue: Queue, sequence_number: int, if_match: Container[str] | None = None
) -> None:
    """Move an unlocked message from the queue to the archive, as cancelled.

    Refuses with `PreconditionFailed`, `MessageLocked` or `MessageNotFound`, as `edit` does.
    """
    for _ in range(_MAX_TRIES):
        if await ports.store.cancel(await _read_unlocked(ports, queue, sequence_number, if_match), queue):
            ports.counters.count_messages(queue.id, Outcome.CANCELLED)
            return
    raise MessageLocked(BUSY_DETAIL)


async def _read_unlocked(
    ports: AdministrationPorts, queue: Queue, sequence_number: int, if_match: Container[str] | None
) -> Message:
    """Read the message. Refuses if a receiver holds it, if its sender waits for one, or if its ETag does not match."""
    message = await read_message(ports, queue, sequence_number)
    if message.is_offered:
        raise SynchronousMessage
    if message.state is MessageState.LOCKED:
        raise MessageLocked  # an ETag counts only where the request would succeed without it (RFC 9110, 13.2.1)
    if if_match is not None and message.etag not in if_match:
        raise PreconditionFailed(f'The message was changed: its ETag is now "{message.etag}", in quotes.')
    return message


def _check_due_time(change: Edit) -> None:
    """Refuse with `Conflict` a due time for a message in a state without one."""
    if (change.available_at, change.delay) != (None, None) and change.expected.state not in STATES_WITH_DUE_TIME:
        raise Conflict("Only a message that is available, scheduled or blocked has a due time.")
