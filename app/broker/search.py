"""Search: receive the next messages that a filter lets through, looking along the order of delivery.

Looking is metered. All looks of a process go one at a time and take at most a share of its time. A call looks at a
bounded number of messages and bytes and ends with its patience; the next call with the same filter goes on where
this one stopped.

Crash window: what was claimed in the looks before is locked and, if nobody hears of it, comes back
when its locks run out.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.broker import looks
from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.give_back import give_back
from app.broker.searches import LARGEST_LOOK, Search
from app.broker.waiting import woken
from app.domain.delivery import AHEAD_OF_ALL, Claim, Place, line_of, place_in_order
from app.domain.message import Chosen, Message
from app.domain.queue import Queue
from app.domain.refusals import RoomUnavailable
from app.domain.weight import weight_of

LOOK_BYTES = 2 << 20
"""What a look should read. Messages that are larger than those before them may make it read more, once."""

MOST_MESSAGES = 200_000
MOST_BYTES = 256 << 20
"""What one call looks at before it answers."""

LEAST_COUNTED = 10
"""Least that a look takes from the budget, because even an empty look costs a statement."""

LEAST_SECONDS = 2.0
"""How long a call that does not wait may look."""

ROUND_LOOKS = 4
"""How far a search that has come to the end looks again, each time, at what it has passed."""


@dataclass(slots=True)
class Budget:
    """What a call may still look at, and until when."""

    deadline: float
    messages: int
    bytes: int

    @property
    def is_spent(self) -> bool:
        """Whether the call has looked at all that it may."""
        return self.messages <= 0 or self.bytes <= 0

    def spend(self, look: looks.Look) -> None:
        """This was looked at."""
        self.messages -= max(LEAST_COUNTED, look.count)
        self.bytes -= look.weight


async def receive_matching(
    broker: Broker, queue: Queue, claim: Claim, matching: Filter, patience_seconds: float
) -> list[Message]:
    """Messages under lock that match; empty when none was found in time, or within what one call may look at.

    What was claimed is answered although a later look fails, and given back where the caller goes meanwhile.
    Refuses with `RateLimited` where too many receivers with filters are there already.
    """
    began = broker.clock.monotonic()
    line = line_of(claim.queue_id, claim.source)
    with broker.searches.enter(line, matching) as search:
        budget = Budget(began + max(patience_seconds, LEAST_SECONDS), MOST_MESSAGES, MOST_BYTES)
        receiving = FilteredReceive(broker, claim, matching, search, budget)
        try:
            if patience_seconds <= 0:
                return await receiving.begin()
            with broker.waiting.waiter(line) as waiter:
                messages = await receiving.begin()
                while (
                    not messages
                    and not budget.is_spent
                    and await woken(broker, queue, waiter, began + patience_seconds)
                ):
                    # The new message may match another receiver's filter, so wake the next one too.
                    waiter.hand_on()
                    messages = await receiving.go_on()
                return messages
        except CancelledError:
            await give_back(broker, queue, receiving.taken)
            raise


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found: the matches, the place that it reached, and whether the order ends there."""

    matches: Sequence[Chosen]
    reached: Place
    is_end: bool


class FilteredReceive:
    """One receive through a filter: where it looks, what it claims, and when it stops."""

    def __init__(self, broker: Broker, claim: Claim, matching: Filter, search: Search, budget: Budget) -> None:
        self._broker = broker
        self._claim = claim
        self._matching = matching
        self._search = search
        self._budget = budget
        self.taken: list[Message] = []
        self._numbers: set[int] = set()
        self._is_heavy = False

    async def begin(self) -> list[Message]:
        """Look at the front, where most of what matches is found, and go on."""
        return await self._answer(self._from_the_front)

    async def go_on(self) -> list[Message]:
        """Look at what has come since, and at more of what is there."""
        return await self._answer(self._from_where_it_stopped)

    async def _answer(self, look: Callable[[], Awaitable[None]]) -> list[Message]:
        try:
            await look()
        except RoomUnavailable:
            if not self.taken:
                raise
        return self.taken

    async def _from_the_front(self) -> None:
        began = self._search.walked_to
        if began > AHEAD_OF_ALL:
            look = await self._look(AHEAD_OF_ALL)
            full_at = await self._take(look.matches)
            if look.is_end and full_at is None:
                self._search.advance(began, max(began, look.reached))
                return
        await self._from_where_it_stopped()

    async def _from_where_it_stopped(self) -> None:
        await self._look_at_news()
        if await self._walk_to_the_end():
            await self._go_round()

    async def _look_at_news(self) -> None:
        """Look at the messages that became receivable where the walk has been."""
        if self._is_done or not (numbers := self._search.take_news(LARGEST_LOOK)):
            return
        seen = await self._see(partial(self._broker.store.outlines_of, self._claim.queue_id, numbers))
        matches = [one for one in seen.matches if one.state is self._claim.source]
        await self._take(matches)
        self._note_untaken(matches)
        if self.taken and any(one.sequence_number not in self._numbers for one in matches):
            # This call has no room for these messages, and receivers that looked meanwhile did not see them.
            self._broker.waiting.ring(line_of(self._claim.queue_id, self._claim.source))

    async def _walk_to_the_end(self) -> bool:
        """Go on along the order of delivery; whether its end was reached."""
        self._search.looking += 1
        try:
            while not self._is_done:
                began = self._search.walked_to
                look = await self._look(began)
                full_at = await self._take(look.matches)
                self._search.advance(began, full_at or look.reached)
                if look.is_end:
                    return full_at is None
            return False
        finally:
            self._search.looking -= 1

    async def _go_round(self) -> None:
        """Look again at some of what the walk has passed, now and then: another process may have freed it."""
        if not self._search.begins_round(self._broker.clock.monotonic()):
            return
        for _ in range(ROUND_LOOKS):
            if self._is_done:
                return
            look = await self._look(self._search.round_to)
            await self._take(look.matches)
            self._search.round_to = AHEAD_OF_ALL if look.is_end else look.reached
            if look.is_end:
                return

    @property
    def _is_done(self) -> bool:
        is_full = len(self.taken) >= self._claim.most or self._is_heavy
        return is_full or self._budget.is_spent or self._broker.clock.monotonic() >= self._budget.deadline

    async def _look(self, after: Place) -> Look:
        most = self._search.size_of_look(LARGEST_LOOK, LOOK_BYTES)
        queue_id, source = self._claim.queue_id, self._claim.source
        seen = await self._see(partial(self._broker.store.candidates, queue_id, source, after, most))
        self._search.learn(seen.count, seen.weight)
        return Look(seen.matches, after if seen.last is None else place_in_order(seen.last), seen.count < most)

    async def _see(self, read: looks.Read) -> looks.Look:
        seen = await looks.look_through(self._broker, self._matching, read)
        self._budget.spend(seen)
        return seen

    async def _take(self, matches: Sequence[Chosen]) -> Place | None:
        """Claim what matches; the place of the last that was taken where the call has room for no more.

        Asks for all matches, so that another match replaces one that another receiver took first. What was not taken
        although there was room is looked at again.
        """
        if not matches:
            return None
        missing = self._claim.most - len(self.taken)
        budget = self._claim.budget - sum(map(weight_of, self.taken))
        if self.taken and matches[0].weight > budget:
            # A claim takes at least one message, also where the answer has no room for it.
            self._is_heavy = True
            self._note_untaken(matches)
            return None
        claim = replace(self._claim, most=missing, budget=budget)
        async with self._broker.answers.room(budget):
            taken = await self._broker.store.claim_these(claim, [one.sequence_number for one in matches])
        self.taken += taken
        self._numbers.update(message.sequence_number for message in taken)
        if len(taken) == missing:
            return next(place_in_order(one) for one in reversed(matches) if one.sequence_number in self._numbers)
        left = budget - sum(map(weight_of, taken))
        untaken = [one for one in matches if one.sequence_number not in self._numbers]
        self._is_heavy = any(one.weight > left for one in untaken)
        self._note_untaken(matches)
        return None

    def _note_untaken(self, matches: Sequence[Chosen]) -> None:
        for one in matches:
            if one.sequence_number not in self._numbers:
                self._search.note(one.sequence_number, None)
