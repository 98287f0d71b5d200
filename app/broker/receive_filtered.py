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

from app.broker import filtered_read
from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.release_undelivered import release_undelivered
from app.broker.search_state import MAX_BATCH_SIZE, SearchState
from app.broker.wait import wait_for_wake_up
from app.domain.delivery import START_POSITION, Claim, DeliveryPosition, delivery_position, wait_key_of
from app.domain.message import Message, SelectedMessage
from app.domain.queue import Queue
from app.domain.refusals import BackendUnavailable
from app.domain.weight import weight_of

BATCH_BYTES = 2 << 20
"""What a look should read. Messages that are larger than those before them may make it read more, once."""

MAX_MESSAGES = 200_000
MAX_BYTES = 256 << 20
"""What one call looks at before it answers."""

MIN_COUNTED_MESSAGES = 10
"""Least that a look takes from the budget, because even an empty look costs a statement."""

MIN_SECONDS = 2.0
"""How long a call that does not wait may look."""

RESCAN_BATCHES = 4
"""How far a search that has come to the end looks again, each time, at what it has passed."""


@dataclass(slots=True)
class SearchBudget:
    """What a call may still look at, and until when."""

    deadline: float
    messages: int
    bytes: int

    @property
    def is_spent(self) -> bool:
        """Whether the call has looked at all that it may."""
        return self.messages <= 0 or self.bytes <= 0

    def spend(self, step: filtered_read.FilteredBatch) -> None:
        """This was looked at."""
        self.messages -= max(MIN_COUNTED_MESSAGES, step.count)
        self.bytes -= step.weight


async def receive_filtered(
    broker: Broker, queue: Queue, claim: Claim, message_filter: Filter, wait_seconds: float
) -> list[Message]:
    """Messages under lock that match; empty when none was found in time, or within what one call may look at.

    What was claimed is answered although a later look fails, and given back where the caller goes meanwhile.
    Refuses with `RateLimited` where too many receivers with filters are there already.
    """
    began = broker.clock.monotonic()
    wait_key = wait_key_of(claim.queue_id, claim.source)
    with broker.searches.join(wait_key, message_filter) as search:
        budget = SearchBudget(began + max(wait_seconds, MIN_SECONDS), MAX_MESSAGES, MAX_BYTES)
        receiving = FilteredReceive(broker, claim, message_filter, search, budget)
        try:
            if wait_seconds <= 0:
                return await receiving.start()
            with broker.wait_queue.waiter(wait_key) as waiter:
                messages = await receiving.start()
                while (
                    not messages
                    and not budget.is_spent
                    and await wait_for_wake_up(broker, queue, waiter, began + wait_seconds)
                ):
                    # The new message may match another receiver's filter, so wake the next one too.
                    waiter.pass_on()
                    messages = await receiving.resume()
                return messages
        except CancelledError:
            await release_undelivered(broker, queue, receiving.claimed)
            raise


@dataclass(frozen=True, slots=True)
class SearchStep:
    """What one look has found: the matches, the place that it reached, and whether the order ends there."""

    matches: Sequence[SelectedMessage]
    position: DeliveryPosition
    is_end: bool


class FilteredReceive:
    """One receive through a filter: where it looks, what it claims, and when it stops."""

    def __init__(
        self, broker: Broker, claim: Claim, message_filter: Filter, search: SearchState, budget: SearchBudget
    ) -> None:
        self._broker = broker
        self._claim = claim
        self._matching = message_filter
        self._search = search
        self._budget = budget
        self.claimed: list[Message] = []
        self._numbers: set[int] = set()
        self._is_out_of_bytes = False

    async def start(self) -> list[Message]:
        """Look at the front, where most of what matches is found, and go on."""
        return await self._run(self._scan_from_start)

    async def resume(self) -> list[Message]:
        """Look at what has come since, and at more of what is there."""
        return await self._run(self._resume_scan)

    async def _run(self, step: Callable[[], Awaitable[None]]) -> list[Message]:
        try:
            await step()
        except BackendUnavailable:
            if not self.claimed:
                raise
        return self.claimed

    async def _scan_from_start(self) -> None:
        began = self._search.position
        if began > START_POSITION:
            step = await self._scan_batch(START_POSITION)
            full_at = await self._claim_matches(step.matches)
            if step.is_end and full_at is None:
                self._search.advance(began, max(began, step.position))
                return
        await self._resume_scan()

    async def _resume_scan(self) -> None:
        await self._check_missed()
        if await self._scan_to_end():
            await self._rescan()

    async def _check_missed(self) -> None:
        """Look at the messages that became receivable where the walk has been."""
        if self._is_done or not (numbers := self._search.take_missed(MAX_BATCH_SIZE)):
            return
        batch = await self._read_batch(partial(self._broker.store.read_metadata, self._claim.queue_id, numbers))
        matches = [one for one in batch.matches if one.state is self._claim.source]
        await self._claim_matches(matches)
        self._note_unclaimed(matches)
        if self.claimed and any(one.sequence_number not in self._numbers for one in matches):
            # This call has no room for these messages, and receivers that looked meanwhile did not see them.
            self._broker.wait_queue.wake(wait_key_of(self._claim.queue_id, self._claim.source))

    async def _scan_to_end(self) -> bool:
        """Go on along the order of delivery; whether its end was reached."""
        self._search.active_scans += 1
        try:
            while not self._is_done:
                began = self._search.position
                step = await self._scan_batch(began)
                full_at = await self._claim_matches(step.matches)
                self._search.advance(began, full_at or step.position)
                if step.is_end:
                    return full_at is None
            return False
        finally:
            self._search.active_scans -= 1

    async def _rescan(self) -> None:
        """Look again at some of what the walk has passed, now and then: another process may have freed it."""
        if not self._search.start_rescan(self._broker.clock.monotonic()):
            return
        for _ in range(RESCAN_BATCHES):
            if self._is_done:
                return
            step = await self._scan_batch(self._search.rescan_position)
            await self._claim_matches(step.matches)
            self._search.rescan_position = START_POSITION if step.is_end else step.position
            if step.is_end:
                return

    @property
    def _is_done(self) -> bool:
        is_full = len(self.claimed) >= self._claim.max_messages or self._is_out_of_bytes
        return is_full or self._budget.is_spent or self._broker.clock.monotonic() >= self._budget.deadline

    async def _scan_batch(self, after: DeliveryPosition) -> SearchStep:
        most = self._search.batch_size(MAX_BATCH_SIZE, BATCH_BYTES)
        queue_id, source = self._claim.queue_id, self._claim.source
        batch = await self._read_batch(partial(self._broker.store.candidates, queue_id, source, after, most))
        self._search.record_batch(batch.count, batch.weight)
        return SearchStep(
            batch.matches, after if batch.last is None else delivery_position(batch.last), batch.count < most
        )

    async def _read_batch(self, read: filtered_read.Read) -> filtered_read.FilteredBatch:
        batch = await filtered_read.read_filtered(self._broker, self._matching, read)
        self._budget.spend(batch)
        return batch

    async def _claim_matches(self, matches: Sequence[SelectedMessage]) -> DeliveryPosition | None:
        """Claim what matches; the place of the last that was taken where the call has room for no more.

        Asks for all matches, so that another match replaces one that another receiver took first. What was not taken
        although there was room is looked at again.
        """
        if not matches:
            return None
        missing = self._claim.max_messages - len(self.claimed)
        budget = self._claim.max_bytes - sum(map(weight_of, self.claimed))
        if self.claimed and matches[0].weight > budget:
            # A claim takes at least one message, also where the answer has no room for it.
            self._is_out_of_bytes = True
            self._note_unclaimed(matches)
            return None
        claim = replace(self._claim, max_messages=missing, max_bytes=budget)
        async with self._broker.response_budget.reserve(budget):
            taken = await self._broker.store.claim_by_number(claim, [one.sequence_number for one in matches])
        self.claimed += taken
        self._numbers.update(message.sequence_number for message in taken)
        if len(taken) == missing:
            return next(delivery_position(one) for one in reversed(matches) if one.sequence_number in self._numbers)
        left = budget - sum(map(weight_of, taken))
        unclaimed = [one for one in matches if one.sequence_number not in self._numbers]
        self._is_out_of_bytes = any(one.weight > left for one in unclaimed)
        self._note_unclaimed(matches)
        return None

    def _note_unclaimed(self, matches: Sequence[SelectedMessage]) -> None:
        for one in matches:
            if one.sequence_number not in self._numbers:
                self._search.note_receivable(one.sequence_number, None)
