"""Forward dead letters: move messages from a dead-letter queue to the queue that its settings name.

A dead-lettered message is in the dead-letter queue first. One transaction moves it from there, as in a redrive, so it is
always in exactly one queue. Messages that the target does not accept stay. The transaction moves nothing if the settings
of the dead-letter queue were changed since they were read.

Crash windows: before the commit the message has not moved. After it the wake-up of receivers may be lost; they also poll.
"""

from collections.abc import Sequence
from itertools import compress

from app.broker.administration.ports import AdministrationPorts
from app.broker.notify_receivers import StateChange
from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.broker.ports.sending import QueueGone
from app.broker.queue_cache import QueueCache
from app.broker.sending.target_queue import free_capacity, last_queue
from app.domain.message import MessageMetadata, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Refusal
from app.domain.weight import content_bytes, select_message

PAGE_SIZE = 500
"""Dead letters that one transaction moves."""


async def forward_dead_letters(ports: AdministrationPorts, queue: Queue, after: int) -> int | None:
    """Move a page of dead letters with numbers above `after`, as many as the target accepts.

    Return the number after which the next page begins, None after the last one. Nothing moves to a target that does not
    exist, refuses sends or is full. A message that is too large for the target stays.
    """
    page = await ports.store.browse_metadata(queue.id, [MessageState.DEAD_LETTERED], after, PAGE_SIZE)
    if not page:
        return None
    try:
        moved = await _move(ports, queue, await _target(ports.queue_cache, queue), page)
    except Refusal:
        return None
    except QueueGone:
        # A queue was changed or deleted. The next pass reads the queues on the way again.
        ports.queue_cache.clear()
        return None
    ports.counters.count("dead_letters_forwarded", moved)
    return page[-1].sequence_number if len(page) == PAGE_SIZE else None


async def _target(queue_cache: QueueCache, queue: Queue) -> Queue:
    """Return the queue that stores what is sent to the target. Refuses as a send does."""
    return await last_queue(queue_cache, await queue_cache.by_name(queue.settings.forward_dead_letters_to or ""))


async def _move(ports: AdministrationPorts, queue: Queue, target: Queue, page: Sequence[MessageMetadata]) -> int:
    limit = target.settings.max_message_bytes
    fitting = [metadata.sequence_number for metadata in page if content_bytes(select_message(metadata)) <= limit]
    chosen = fitting[: await free_capacity(ports.store.queues, target, len(fitting))]
    if not chosen:
        return 0
    redrives = [
        Redrive(UnlockedRow(number, queue.id, MessageState.DEAD_LETTERED), target.id, forwarded_from=queue)
        for number in chosen
    ]
    moved = await ports.store.redrive(redrives)
    ports.receivers.notify(StateChange(target.id, number, MessageState.AVAILABLE) for number in compress(chosen, moved))
    return sum(moved)
