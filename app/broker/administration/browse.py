"""Browse: read messages without locking, counting or changing them (S1.71)."""

from collections.abc import Sequence
from functools import partial

import msgspec

from app.broker.administration.ports import AdministrationPorts
from app.broker.filtering.filtered_read import read_filtered
from app.broker.filtering.filters import Filter, MatchAll
from app.domain.explanation import RecordedPromise, promised_end
from app.domain.message import Message, MessageMetadata, MessageState, SelectedMessage
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound
from app.domain.settlement import LockToken
from app.domain.weight import count_that_fit


async def browse(
    ports: AdministrationPorts,
    queue: Queue,
    states: Sequence[MessageState],
    message_filter: Filter,
    after: int,
    limit: int,
) -> tuple[list[Message], int | None]:
    """Return matching messages above sequence number `after`, ascending, and the `after` of the next page.

    The locks of locked messages have the ends that their receivers were promised. The next `after` is None on the last page. A page before the last may be short or empty. A page weighs no more than
    a response may, unless it is a single message. Refuses with `Overloaded` if too many requests with a filter read.
    """
    with ports.searches.admit(message_filter):
        chosen, next_after = await _select_page(ports, queue, states, message_filter, after, limit)
    count = count_that_fit((selected.weight for selected in chosen), ports.limits.max_bytes)
    if count < len(chosen):
        chosen, next_after = chosen[:count], chosen[count - 1].sequence_number
    async with ports.limits.budget.reserve(sum(selected.weight for selected in chosen)):
        messages = await ports.store.read_many(queue.id, [selected.sequence_number for selected in chosen])
    # A concurrent request may have moved a message to a state that was not requested.
    return await _with_promised_ends(ports, [message for message in messages if message.state in states]), next_after


async def _select_page(
    ports: AdministrationPorts,
    queue: Queue,
    states: Sequence[MessageState],
    message_filter: Filter,
    after: int,
    limit: int,
) -> tuple[list[SelectedMessage], int | None]:
    """Select the messages of the page without reading their bodies."""
    chosen: list[SelectedMessage] = []
    limits = ports.page_limits
    deadline = ports.clock.monotonic() + limits.max_seconds
    bytes_left = limits.max_bytes
    for _ in range(limits.max_batches):
        # One message more than the page holds shows whether another page exists.
        size = min(limit + 1, limits.batch_size) if isinstance(message_filter, MatchAll) else limits.batch_size
        batch = await read_filtered(
            ports.searches, message_filter, partial(ports.store.browse_metadata, queue.id, states, after, size)
        )
        chosen += batch.matches
        bytes_left -= batch.weight
        if len(chosen) > limit:
            return chosen[:limit], chosen[limit - 1].sequence_number
        if batch.last is None or batch.count < size:
            return chosen, None
        after = batch.last.sequence_number
        if bytes_left <= 0 or ports.clock.monotonic() >= deadline:
            break
    return chosen, after


async def try_filter(ports: AdministrationPorts, queue: Queue, message_filter: Filter, limit: int) -> dict[int, bool]:
    """Return whether each of the newest messages matches, by sequence number, the newest first.

    The read waits for its turn, because the properties of the messages may have megabytes. Refuses with `Overloaded` if
    too many requests with a filter read.
    """
    with ports.searches.admit(message_filter):
        async with ports.searches.turn(message_filter):
            messages = await ports.store.newest_metadata(queue.id, limit)
            matching = {message.sequence_number for message in await message_filter.select(messages)}
            return {message.sequence_number: message.sequence_number in matching for message in messages}


async def read_named(ports: AdministrationPorts, queue: Queue, numbers: Sequence[int]) -> list[MessageMetadata]:
    """Return those of these messages that are in the queue, in any state and ascending, without their bodies.

    `numbers` are at most as many as one read has (`MAX_BATCH_SIZE`).
    """
    async with ports.searches.turn(MatchAll()):
        return await ports.store.read_metadata(queue.id, numbers)


async def read_message(ports: AdministrationPorts, queue: Queue, sequence_number: int) -> Message:
    """Return one message in any state. Refuses with `MessageNotFound`."""
    async with ports.limits.budget.reserve(queue.settings.max_message_bytes):
        message = await ports.store.read(queue.id, sequence_number)
    if message is None:
        raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}.")
    return message


async def show_message(ports: AdministrationPorts, queue: Queue, sequence_number: int) -> Message:
    """Return one message as `read_message` does, with the end of its lock that its receiver was promised."""
    (message,) = await _with_promised_ends(ports, [await read_message(ports, queue, sequence_number)])
    return message


async def _with_promised_ends(ports: AdministrationPorts, messages: list[Message]) -> list[Message]:
    """Ask the lock store for the ends of renewed locks. The others are as SQL has them.

    If it does not answer, they stay at their bounds in SQL, which is when they end at the latest.
    """
    renewed = [message for message in messages if message.lock_generation and message.lock_token is not None]
    if not renewed:
        return messages
    promises = await ports.lock_store.promises([_token_of(message) for message in renewed])
    found = dict(zip((message.sequence_number for message in renewed), promises, strict=True))
    return [_with_promised_end(message, found.get(message.sequence_number)) for message in messages]


def _with_promised_end(message: Message, promise: RecordedPromise | None) -> Message:
    if message.locked_until is None:
        return message
    ends_at = promised_end(message.locked_until, message.lock_generation, message.read_at, promise)
    return msgspec.structs.replace(message, locked_until=ends_at)


def _token_of(message: Message) -> LockToken:
    assert message.lock_token is not None
    return LockToken(message.sequence_number, message.lock_token)
