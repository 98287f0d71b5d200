"""Search: receive the next messages that match a filter, scanning in the order of delivery.

Scans are throttled. All filtered reads of a process run one at a time and take at most a share of its time. A request
scans a bounded number of messages and bytes, until its wait is over. The next request with the same filter continues
where this one stopped.

Crash window: messages claimed by earlier reads are locked; if no receiver gets them, they come back when their locks
expire.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from app.broker.filtering import filtered_read
from app.broker.filtering.filters import Filter
from app.broker.filtering.search_state import SearchState
from app.broker.receiving.ports import ReceivingPorts
from app.broker.receiving.search_limits import SearchBudget
from app.broker.receiving.wait import CheckAccess, always_allowed, wait_for_wake_up
from app.broker.settling.settle import release_undelivered
from app.domain.delivery import START_POSITION, Claim, DeliveryPosition, delivery_position, wait_key_of
from app.domain.message import Message, SelectedMessage
from app.domain.queue import Queue
from app.domain.refusals import BackendUnavailable, Refusal
from app.domain.weight import weight_of

RESCAN_BATCHES = 4
"""Batches per rescan: how much a search that has reached the end reads again each time."""


async def receive_filtered(
    ports: ReceivingPorts,
    queue: Queue,
    claim: Claim,
    message_filter: Filter,
    wait_seconds: float,
    check_access: CheckAccess = always_allowed,
) -> list[Message]:
    """Lock and return messages that match; none if none was found in time or within the budget of one request.

    If a later read fails, the messages claimed so far are returned. If the caller disconnects or is refused, they are
    released. Refuses with `RateLimited` if too many receivers have filters, and as `check_access` does. `check_access` runs
    before each claim, because a scan may take as long as a wait.
    """
    started_at = ports.clock.monotonic()
    wait_key = wait_key_of(claim.queue_id, claim.source)
    with ports.searches.join(wait_key, message_filter) as search:
        limits = ports.search_limits
        deadline = started_at + max(wait_seconds, limits.min_seconds)
        budget = SearchBudget(deadline, limits.max_messages, limits.max_bytes)
        receiving = FilteredReceive(ports, claim, message_filter, search, budget, check_access)
        try:
            if wait_seconds <= 0:
                return await receiving.start()
            with ports.wait_queue.waiter(wait_key) as waiter:
                messages = await receiving.start()
                while (
                    not messages
                    and not budget.is_spent
                    and await wait_for_wake_up(ports, queue, waiter, started_at + wait_seconds, check_access)
                ):
                    # The new message may match another receiver's filter, so wake the next one too.
                    waiter.pass_on()
                    messages = await receiving.resume()
                return messages
        except (CancelledError, Refusal):
            await release_undelivered(ports.settling, queue, receiving.claimed)
            raise


@dataclass(frozen=True, slots=True)
class SearchStep:
    """The result of one read: the matches, the position that it reached, and whether that is the end."""

    matches: Sequence[SelectedMessage]
    position: DeliveryPosition
    is_end: bool


class FilteredReceive:
    """One filtered receive: it scans, claims matches, and stops when it is full or its budget is spent."""

    def __init__(
        self,
        ports: ReceivingPorts,
        claim: Claim,
        message_filter: Filter,
        search: SearchState,
        budget: SearchBudget,
        check_access: CheckAccess,
    ) -> None:
        self._ports = ports
        self._claim = claim
        self._filter = message_filter
        self._search = search
        self._budget = budget
        self._check_access = check_access
        self.claimed: list[Message] = []
        self._numbers: set[int] = set()
        self._is_out_of_bytes = False

    async def start(self) -> list[Message]:
        """Scan the front of the queue, where most matches are found, and continue the search."""
        return await self._run(self._scan_from_start)

    async def resume(self) -> list[Message]:
        """Read the messages that became receivable since, and continue the search."""
        return await self._run(self._resume_scan)

    async def _run(self, step: Callable[[], Awaitable[None]]) -> list[Message]:
        try:
            await step()
        except BackendUnavailable:
            if not self.claimed:
                raise
        return self.claimed

    async def _scan_from_start(self) -> None:
        start = self._search.position
        if start > START_POSITION:
            step = await self._scan_batch(START_POSITION)
            full_at = await self._claim_matches(step.matches)
            if step.is_end and full_at is None:
                self._search.advance(start, max(start, step.position))
                return
        await self._resume_scan()

    async def _resume_scan(self) -> None:
        await self._check_missed()
        if await self._scan_to_end():
            await self._rescan()

    async def _check_missed(self) -> None:
        """Read the messages that became receivable behind the search position."""
        if self._is_done or not (numbers := self._search.take_missed(self._ports.search_limits.batch_size)):
            return
        batch = await self._read_batch(partial(self._ports.store.read_metadata, self._claim.queue_id, numbers))
        matches = [message for message in batch.matches if message.state is self._claim.source]
        await self._claim_matches(matches)
        self._note_unclaimed(matches)
        if self.claimed and any(message.sequence_number not in self._numbers for message in matches):
            # This request has no room for these messages, and receivers that polled meanwhile did not find them.
            self._ports.wait_queue.wake(wait_key_of(self._claim.queue_id, self._claim.source))

    async def _scan_to_end(self) -> bool:
        """Continue in the order of delivery; return whether the end was reached."""
        self._search.active_scans += 1
        try:
            while not self._is_done:
                start = self._search.position
                step = await self._scan_batch(start)
                full_at = await self._claim_matches(step.matches)
                self._search.advance(start, full_at or step.position)
                if step.is_end:
                    return full_at is None
            return False
        finally:
            self._search.active_scans -= 1

    async def _rescan(self) -> None:
        """From time to time, read some passed messages again: another process may have freed them."""
        if not self._search.start_rescan(self._ports.clock.monotonic()):
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
        return is_full or self._budget.is_spent or self._ports.clock.monotonic() >= self._budget.deadline

    async def _scan_batch(self, after: DeliveryPosition) -> SearchStep:
        limits = self._ports.search_limits
        size = self._search.batch_size(limits.batch_size, limits.batch_bytes)
        queue_id, source = self._claim.queue_id, self._claim.source
        batch = await self._read_batch(partial(self._ports.store.candidates, queue_id, source, after, size))
        self._search.record_batch(batch.count, batch.weight)
        return SearchStep(
            batch.matches, after if batch.last is None else delivery_position(batch.last), batch.count < size
        )

    async def _read_batch(self, read: filtered_read.Read) -> filtered_read.FilteredBatch:
        batch = await filtered_read.read_filtered(self._ports.searches, self._filter, read)
        self._budget.spend(batch)
        return batch

    async def _claim_matches(self, matches: Sequence[SelectedMessage]) -> DeliveryPosition | None:
        """Claim matches; return the position of the last claimed message if the request is full, else None.

        The claim names all matches, so that another match replaces one that another receiver claimed first. Matches
        that were not claimed although the request had room are read again.
        """
        if not matches:
            return None
        missing = self._claim.max_messages - len(self.claimed)
        budget = self._claim.max_bytes - sum(map(weight_of, self.claimed))
        if self.claimed and matches[0].weight > budget:
            # A claim takes at least one message, even if the response has no room for it.
            self._is_out_of_bytes = True
            self._note_unclaimed(matches)
            return None
        claim = replace(self._claim, max_messages=missing, max_bytes=budget)
        await self._check_access()
        async with self._ports.limits.budget.reserve(budget):
            claimed = await self._ports.store.claim_by_number(claim, [message.sequence_number for message in matches])
        self.claimed += claimed
        self._numbers.update(message.sequence_number for message in claimed)
        if len(claimed) == missing:
            return next(
                delivery_position(message) for message in reversed(matches) if message.sequence_number in self._numbers
            )
        bytes_left = budget - sum(map(weight_of, claimed))
        unclaimed = [message for message in matches if message.sequence_number not in self._numbers]
        self._is_out_of_bytes = any(message.weight > bytes_left for message in unclaimed)
        self._note_unclaimed(matches)
        return None

    def _note_unclaimed(self, matches: Sequence[SelectedMessage]) -> None:
        for message in matches:
            if message.sequence_number not in self._numbers:
                self._search.note_receivable(message.sequence_number, None)
