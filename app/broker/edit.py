"""Edit and cancel: changes to one message that nobody has locked, fenced by the state it was seen in."""

from app.broker.broker import Broker
from app.broker.browse import look
from app.broker.ports import Edit, Unlocked, Withdrawal
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Conflict, MessageLocked
from app.domain.settlement import Outcome

HAVE_DUE_TIME = (MessageState.AVAILABLE, MessageState.SCHEDULED)

TRIES = 3
"""A message that changes under an edit is looked at anew so often before it counts as busy."""


async def edit(broker: Broker, queue: Queue, change: Edit) -> Message:
    """Apply a change to the message as it was seen; the message as it is then.

    Refuses with `MessageLocked` while a receiver holds it or when it changed at the same time, and with
    `Conflict` a due time for a message that is set aside: redrive and receive bring those back.
    """
    if change.seen.state is MessageState.LOCKED:
        raise MessageLocked
    if (change.available_at, change.delay) != (None, None) and change.seen.state not in HAVE_DUE_TIME:
        raise Conflict("Only a message that is available or scheduled has a due time.")
    edited = await broker.store.edit(change)
    if edited is None:
        await look(broker, queue, change.seen.sequence_number)
        raise MessageLocked("The message was taken or changed at the same time.")
    if edited.state is MessageState.AVAILABLE:
        broker.bells.ring(queue.id)
    else:
        broker.bells.schedule_changed()
    return edited


async def cancel(broker: Broker, queue: Queue, sequence_number: int) -> None:
    """Take an unlocked message out of the queue, into the archive as cancelled.

    Refuses with `MessageLocked` or `MessageNotFound`.
    """
    for _ in range(TRIES):
        message = await look(broker, queue, sequence_number)
        if message.state is MessageState.LOCKED:
            break
        row = Unlocked(sequence_number, queue.id, message.state)
        withdrawal = Withdrawal(row, queue.name, Outcome.CANCELLED, queue.settings.archive_retention)
        if (await broker.store.withdraw([withdrawal]))[0]:
            return
    raise MessageLocked
