"""Dead letters by their reason, and by the minute in which they came. Nothing is locked, counted or changed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.broker.administration.ports import AdministrationPorts
from app.broker.filtering.filters import Filter, MatchAll
from app.domain.instant import MINUTE, Instant
from app.domain.message import Message, MessageMetadata, MessageState
from app.domain.queue import Queue
from app.domain.weight import MESSAGE_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of one reason, when the first and the last of them came, and the number of one of them."""

    reason: str | None
    count: int
    first: Instant
    last: Instant
    example: int


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """The groups, the largest first, and how many dead letters came in each minute, by its beginning.

    All are counts of the same read. If `is_complete` is False, it covers only the first dead letters by number.
    """

    groups: Sequence[DeadLetterGroup]
    minutes: Mapping[Instant, int]
    count: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class EarlierDeadLetters:
    """A filter for the messages that another one matches and that were dead-lettered by an instant.

    A message that fails again while an action on many of them takes several requests is then left out.
    """

    inner: Filter
    until: Instant

    async def select(self, messages: Sequence[MessageMetadata]) -> list[MessageMetadata]:
        """Return the messages that match, in the order given."""
        return await self.inner.select([message for message in messages if dead_since(message) <= self.until])


async def group_dead_letters(ports: AdministrationPorts, queue: Queue) -> DeadLetterGroups:
    """Count the dead letters of a queue by reason and by minute, as many as a page of browsed messages may read."""
    groups, minutes = dict[str | None, DeadLetterGroup](), Counter[Instant]()
    limits, after, count = ports.page_limits, 0, 0
    deadline, bytes_left = ports.clock.monotonic() + limits.max_seconds, limits.max_bytes
    is_complete = False
    for _ in range(limits.max_batches):
        async with ports.searches.turn(MatchAll()):
            batch = await ports.store.browse_metadata(queue.id, [MessageState.DEAD_LETTERED], after, limits.batch_size)
            for message in batch:
                _count(groups, message)
                minutes[dead_since(message) // MINUTE * MINUTE] += 1
                bytes_left -= MESSAGE_OVERHEAD_BYTES + len(message.envelope.properties)
        count += len(batch)
        if len(batch) < limits.batch_size:
            is_complete = True
            break
        after = batch[-1].sequence_number
        if bytes_left <= 0 or ports.clock.monotonic() >= deadline:
            break
    return DeadLetterGroups(sorted(groups.values(), key=lambda group: -group.count), minutes, count, is_complete)


def _count(groups: dict[str | None, DeadLetterGroup], message: MessageMetadata) -> None:
    reason, at = message.dead_letter_reason, dead_since(message)
    group = groups.get(reason) or DeadLetterGroup(reason, 0, at, at, message.sequence_number)
    groups[reason] = replace(group, count=group.count + 1, first=min(group.first, at), last=max(group.last, at))


def dead_since(message: Message | MessageMetadata) -> Instant:
    """Return when a message was dead-lettered."""
    return message.enqueued_at if message.dead_lettered_at is None else message.dead_lettered_at
