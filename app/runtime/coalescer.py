"""Group commit: callers who come while a statement is under way leave together in the next one."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry")
Outcome = TypeVar("Outcome")

Run = Callable[[list[Entry]], Coroutine[Any, Any, Sequence[Outcome | Exception]]]
"""Does a whole batch in one statement: one outcome per entry, in order, an exception where an entry has none."""


class CoalescerClosedError(Exception):
    """Nothing more is taken in; the refused entry had no effect."""


class CoalescerFullError(Exception):
    """As much as may wait is waiting already; the refused entry had no effect."""


class LeftOverError(Exception):
    """Stands for the outcome of an entry that its run had no room for: it had no effect and goes in the next run.

    Only an entry of `submit` may be left over, and each run must do at least one entry.
    """


class BatchInterruptedError(Exception):
    """The batch was cancelled while under way; whether it took effect is unknown."""


class _Party(Generic[Entry, Outcome]):
    """Entries that leave in one batch, and the caller who waits for all their outcomes."""

    __slots__ = ("answer", "entries", "weight")

    def __init__(self, entries: list[Entry], weight: int) -> None:
        self.entries = entries
        self.weight = weight
        self.answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()

    def hear(self, outcomes: list[Outcome | Exception]) -> bool:
        """Answer the caller; false when outcomes stay unread: the caller has gone, or one of them is a failure."""
        if self.answer.done():
            return False
        good = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
        if len(good) == len(outcomes):
            self.answer.set_result(good)
            return True
        self.fail(next(outcome for outcome in outcomes if isinstance(outcome, Exception)))
        return False

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class Scale(Generic[Entry]):
    """The weight of an entry, the most weight of a run, and the most that may wait. The caller chooses the unit.

    An entry heavier than `largest_run_weight` runs alone. An entry that comes while others wait is refused with
    `CoalescerFullError` where the sum would be more than `most_waiting`.
    """

    weigh: Callable[[Entry], int]
    largest_run_weight: int
    most_waiting: int = sys.maxsize


def _weightless(_entry: object) -> int:
    return 0


WEIGHTLESS: Scale[Any] = Scale(_weightless, 0)


class Coalescer(Generic[Entry, Outcome]):
    """Gathers the entries of many callers into few runs; when idle, an entry leaves at once and alone.

    At most `in_flight` runs are under way, each of at most `largest` entries and no heavier than the `scale` allows;
    there is no timer. A caller is
    answered only after `run` has returned. A caller cancelled before its batch leaves drops out and has no
    effect; later, the entry has taken effect, and its outcome goes to `orphaned`, as does every outcome that
    reaches nobody.

    When `run` raises one of `shared`, every caller of the batch gets it. Any other exception promises that
    nothing of the batch took effect: its parties are run again one by one, so that only the bad one fails.
    """

    def __init__(
        self,
        run: Run[Entry, Outcome],
        *,
        in_flight: int = 2,
        largest: int = 256,
        scale: Scale[Entry] = WEIGHTLESS,
        shared: tuple[type[Exception], ...] = (),
        orphaned: Callable[[Entry, Outcome], None] | None = None,
    ) -> None:
        self._run = run
        self._in_flight = in_flight
        self._largest = largest
        self._scale = scale
        self._waiting = 0
        self._shared = shared
        self._orphaned = orphaned
        self._gathered: deque[_Party[Entry, Outcome]] = deque()
        self._suspects: deque[_Party[Entry, Outcome]] = deque()
        self._under_way: set[asyncio.Task[Sequence[Outcome | Exception]]] = set()
        self._boarding = False
        self._closed = False
        self._idle = asyncio.Event()

    async def submit(self, entry: Entry) -> Outcome:
        """The entry's outcome, once the batch it left in has been run. Raises `CoalescerFullError`."""
        return (await self._answer(self._gather([entry])))[0]

    async def submit_together(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Outcomes of entries that share one batch, even above its limits; raises the first failure among them.

        Raises `CoalescerFullError`.
        """
        return await self._answer(self._gather(list(entries))) if entries else []

    async def close(self) -> None:
        """Refuse new entries from now on; return when everything gathered has been run."""
        self._closed = True
        self._idle.clear()
        self._depart()
        await self._idle.wait()

    def _gather(self, entries: list[Entry]) -> _Party[Entry, Outcome]:
        if self._closed:
            raise CoalescerClosedError
        party: _Party[Entry, Outcome] = _Party(entries, sum(map(self._scale.weigh, entries)))
        if self._waiting and self._waiting + party.weight > self._scale.most_waiting:
            raise CoalescerFullError
        self._waiting += party.weight
        self._gathered.append(party)
        self._depart()
        return party

    async def _answer(self, party: _Party[Entry, Outcome]) -> list[Outcome]:
        try:
            return await party.answer
        except asyncio.CancelledError:
            self._leave(party)
            raise

    def _leave(self, party: _Party[Entry, Outcome]) -> None:
        """The caller goes. Its outcome may already be there: cancelled after the answer, before it was read."""
        answer = party.answer
        if not answer.cancel() and not answer.cancelled() and answer.exception() is None:
            self._orphan(party, answer.result())

    def _depart(self) -> None:
        if not (self._gathered or self._suspects):
            if not self._under_way:
                self._idle.set()
        elif not self._boarding and len(self._under_way) < self._in_flight:
            self._boarding = True
            # Not now but next: callers who run in this turn of the event loop come along.
            asyncio.get_running_loop().call_soon(self._board)

    def _board(self) -> None:
        self._boarding = False
        if batch := self._next_batch():
            entries = [entry for party in batch for entry in party.entries]
            # A context of its own: a batch must not log under the request id of whoever came first.
            task = asyncio.get_running_loop().create_task(self._run(entries), context=Context())
            self._under_way.add(task)
            task.add_done_callback(partial(self._arrived, batch))
        self._depart()

    def _next_batch(self) -> list[_Party[Entry, Outcome]]:
        while self._suspects:
            party = self._suspects.popleft()
            if not party.answer.done():
                return [party]
        batch: list[_Party[Entry, Outcome]] = []
        room = self._largest
        weight_left = self._scale.largest_run_weight
        while self._gathered and (not batch or self._fits(self._gathered[0], room, weight_left)):
            party = self._gathered.popleft()
            self._waiting -= party.weight
            if not party.answer.done():
                batch.append(party)
                room -= len(party.entries)
                weight_left -= party.weight
        return batch

    def _fits(self, party: _Party[Entry, Outcome], room: int, weight_left: int) -> bool:
        return len(party.entries) <= room and party.weight <= weight_left

    def _arrived(self, batch: list[_Party[Entry, Outcome]], task: asyncio.Task[Sequence[Outcome | Exception]]) -> None:
        self._under_way.discard(task)
        try:
            if task.cancelled():
                _fail(batch, BatchInterruptedError())
            elif error := task.exception():
                self._failed(batch, error)
            else:
                self._deliver(batch, task.result())
        finally:
            self._depart()

    def _failed(self, batch: list[_Party[Entry, Outcome]], error: BaseException) -> None:
        if isinstance(error, self._shared):
            # What fails every entry would fail the suspects too, each after its own long wait.
            _fail([*batch, *self._suspects], error)
        elif len(batch) == 1:
            _fail(batch, error)
        else:
            self._suspects.extend(batch)

    def _deliver(self, batch: list[_Party[Entry, Outcome]], outcomes: Sequence[Outcome | Exception]) -> None:
        entries = sum(len(party.entries) for party in batch)
        if len(outcomes) != entries:
            _fail(batch, RuntimeError(f"a run of {entries} entries gave {len(outcomes)} outcomes"))
            return
        remaining = iter(outcomes)
        unread: list[tuple[_Party[Entry, Outcome], list[Outcome | Exception]]] = []
        left_over: list[_Party[Entry, Outcome]] = []
        for party in batch:
            mine = list(islice(remaining, len(party.entries)))
            if len(mine) == 1 and isinstance(mine[0], LeftOverError):
                left_over.append(party)
            elif not party.hear(mine):
                unread.append((party, mine))
        self._waiting += sum(party.weight for party in left_over)
        self._gathered.extendleft(reversed(left_over))
        for party, mine in unread:
            self._orphan(party, mine)

    def _orphan(self, party: _Party[Entry, Outcome], outcomes: Sequence[Outcome | Exception]) -> None:
        if self._orphaned is not None:
            for entry, outcome in zip(party.entries, outcomes, strict=True):
                if not isinstance(outcome, Exception):
                    self._orphaned(entry, outcome)


def _fail(parties: Sequence[_Party[Any, Any]], error: BaseException) -> None:
    for party in parties:
        party.fail(error)
