"""Try a filter on the newest messages of a queue. They are not locked, counted or changed."""

from app.broker.administration.browse import BrowsePorts
from app.broker.filtering.filters import Filter
from app.domain.queue import Queue


async def try_filter(ports: BrowsePorts, queue: Queue, message_filter: Filter, limit: int) -> dict[int, bool]:
    """Return whether each of the newest messages matches, by sequence number, the newest first.

    The read waits for its turn, because the properties of the messages may have megabytes. Refuses with `Overloaded` if
    too many requests with a filter read.
    """
    with ports.searches.admit(message_filter):
        async with ports.searches.turn(message_filter):
            messages = await ports.messages.newest_metadata(queue.id, limit)
            matching = {message.sequence_number for message in await message_filter.select(messages)}
            return {message.sequence_number: message.sequence_number in matching for message in messages}
