"""The search of a trail: first in the queues, by name, then in the archive, from the newest message to the oldest.

It reads only queues that the visitor may browse, and keeps only messages that were in one of these last.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.broker.administration.archive import AFTER_ALL, browse_archive
from app.broker.administration.browse import browse
from app.broker.administration.page_limits import PageLimits
from app.console.context import ConsoleContext
from app.console.trail_filter import Relation, TrailFilter
from app.domain.access import Principal, Right
from app.domain.archive import ArchivedMessage
from app.domain.instant import Instant
from app.domain.message import Message, MessageState
from app.domain.queue import Queue

PAGE_SIZE = 50
MAX_SECONDS = 2.0
"""How long one page searches. The next page goes on where it has stopped."""

PART = PageLimits(max_batches=5, max_seconds=0.5)
"""How much of one queue is read before the time is checked again."""

ARCHIVE_PART = PageLimits(batch_size=500, max_batches=5, max_seconds=0.5)
"""How much of the archive. Its rows are small, because they are read without properties."""


@dataclass(frozen=True, slots=True)
class Step:
    """A message of a trail, what it has to do with the id, and the key instants of its life.

    `state` is its state or, if it has ended, its outcome. `has_page` if its queue is still there: the queue shows what it
    knows of the message. `keeps_history` if that queue records histories.
    """

    queue: str
    number: int
    message_id: str
    relation: Relation
    state: str
    sent_at: Instant
    first_delivered_at: Instant | None
    ended_at: Instant | None
    has_page: bool
    keeps_history: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search goes on: a queue, and the sequence number after which to read it; or `before`, the number below
    which to read the archive.
    """

    queue: str = ""
    after: int = 0
    before: int | None = None


ARCHIVE = Place(before=AFTER_ALL)
"""The beginning of the archive."""


class TrailSearch:
    """A search for one page of a trail."""

    def __init__(self, context: ConsoleContext, principal: Principal, chosen: TrailFilter) -> None:
        self._context = context
        self._principal = principal
        self._chosen = chosen
        self._queues = {
            listed.queue.name: listed.queue
            for listed in context.activity.queues
            if principal.grant.allows(Right.BROWSE, listed.queue.name)
        }
        self._names = sorted(self._queues)
        self._steps: dict[int, Step] = {}
        self._end = context.broker.clock.monotonic() + MAX_SECONDS

    async def run(self, start: Place) -> tuple[Sequence[Step], Place | None]:
        """Return a part of the trail in the order of sending, and where the search goes on, None at its end."""
        if Right.BROWSE not in self._principal.grant.rights:
            return (), None
        place: Place | None = start
        while place is not None:
            place = await (self._search_queue(place) if place.before is None else self._search_archive(place.before))
            if len(self._steps) >= PAGE_SIZE or self._context.broker.clock.monotonic() >= self._end:
                break
        return sorted(self._steps.values(), key=lambda step: (step.sent_at, step.number)), place

    async def _search_queue(self, place: Place) -> Place:
        """Search a part of the first queue from this place on, and return the next place."""
        index = bisect_left(self._names, place.queue)
        if index == len(self._names):
            return ARCHIVE
        queue = self._queues[self._names[index]]
        after = place.after if queue.name == place.queue else 0
        ports = replace(self._context.broker.administration, page_limits=PART)
        found, more = await browse(ports, queue, list(MessageState), self._chosen, after, self._room)
        for message in found:
            self._steps[message.sequence_number] = self._held(queue, message)
        if more:
            return Place(queue.name, more)
        return Place(self._names[index + 1]) if index + 1 < len(self._names) else ARCHIVE

    async def _search_archive(self, before: int) -> Place | None:
        """Search a part of the archive, and return the next place. A message that has ended meanwhile is shown once."""
        ports = replace(self._context.broker.administration, page_limits=ARCHIVE_PART)
        found, more = await browse_archive(ports, self._is_wanted, before, self._room)
        for message in found:
            self._steps[message.sequence_number] = self._ended(message)
        return None if more is None else Place(before=more)

    @property
    def _room(self) -> int:
        return PAGE_SIZE - len(self._steps)

    def _is_wanted(self, message: ArchivedMessage) -> bool:
        is_related = self._chosen.relation(message.envelope) is not None
        # By the name: the queue may be deleted.
        return is_related and self._principal.grant.allows(Right.BROWSE, message.queue)

    def _held(self, queue: Queue, message: Message) -> Step:
        return Step(
            queue.name,
            message.sequence_number,
            message.envelope.message_id,
            self._relation(message),
            message.state.label,
            message.enqueued_at,
            message.first_delivered_at,
            None,
            has_page=True,
            keeps_history=queue.settings.history,
        )

    def _ended(self, message: ArchivedMessage) -> Step:
        queue = self._queues.get(message.queue)
        # A new queue with the name of a deleted one knows nothing of its messages.
        has_page = queue is not None and queue.id == message.queue_id
        return Step(
            message.queue,
            message.sequence_number,
            message.envelope.message_id,
            self._relation(message),
            message.outcome.value,
            message.enqueued_at,
            message.first_delivered_at,
            message.settled_at,
            has_page=has_page,
            keeps_history=queue is not None and has_page and queue.settings.history,
        )

    def _relation(self, message: Message | ArchivedMessage) -> Relation:
        return self._chosen.relation(message.envelope) or Relation.IS_IT
