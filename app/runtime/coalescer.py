"""Group commit: entries that arrive during a statement, or shortly after it, share the next one."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, ClassVar, Generic, TypeVar

Entry = TypeVar("Entry")
Result = TypeVar("Result")

RunBatch = Callable[[list[Entry]], Coroutine[Any, Any, Sequence[Result | Exception]]]
"""Runs a batch in one statement. Returns one result per entry, in order; an exception fails its entry alone."""


class CoalescerClosedError(Exception):
    """The coalescer is closed; the refused entry had no effect."""


class CoalescerFullError(Exception):
    """The waiting entries have reached their limit; the refused entry had no effect."""


class RequeueEntryError(Exception):
    """The result of an entry that did not fit into its run: it had no effect and goes into the next run.

    Only an entry of `submit` may be requeued, and each run must finish at least one entry.
    """


class BatchInterruptedError(Exception):
    """The batch was cancelled while it ran; whether it took effect is unknown."""


class _Submission(Generic[Entry, Result]):
    """Entries that share one batch, and the caller that waits for all their results."""

    __slots__ = ("entries", "future", "weight")

    def __init__(self, entries: list[Entry], weight: int) -> None:
        self.entries = entries
        self.weight = weight
        self.future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()

    def resolve(self, results: list[Result | Exception]) -> bool:
        """Answer the caller. Return false if results stay unread: the caller is gone, or one result is a failure."""
        if self.future.done():
            return False
        successes = [result for result in results if not isinstance(result, Exception)]
        if len(successes) == len(results):
            self.future.set_result(successes)
            return True
        self.fail(next(result for result in results if isinstance(result, Exception)))
        return False

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class WeightLimits(Generic[Entry]):
    """The weight of an entry, and the maximum weight of a run and of the waiting entries. The caller chooses the unit.

    An entry heavier than `max_run_weight` runs alone. An entry that arrives while others wait is refused with
    `CoalescerFullError` if the sum would exceed `max_waiting_weight`.
    """

    weigh: Callable[[Entry], int]
    max_run_weight: int
    max_waiting_weight: int = sys.maxsize


def _zero_weight(_entry: object) -> int:
    return 0


UNWEIGHTED: WeightLimits[Any] = WeightLimits(_zero_weight, 0)


class Coalescer(Generic[Entry, Result]):
    """Gathers the entries of many callers into few runs.

    If several callers shared the last run, the next one waits for more of them, for at most `gather_turns` turns of the event
    loop and `gather_seconds`, or until as many callers wait as it may have entries. Otherwise an entry runs at once, so a
    lone caller waits at most once, after others. No timer is used, because those of event loops are too coarse.

    At most `in_flight` runs are under way, each with at most `max_batch_size` entries and within `limits`. A caller is
    answered only after `run` has returned. The entry of a caller that is cancelled before its run starts has no effect.
    After that start it takes effect, and its result goes to `on_orphaned`, as does every result that reaches no caller.

    When `run` raises one of `batch_errors`, every caller of the batch gets it. Any other exception promises that the batch
    had no effect: each submission runs again alone, so that only the faulty one fails.
    """

    gather_turns: ClassVar[int] = 8
    """Callers whose answers came from one run come back over several turns."""

    gather_seconds: ClassVar[float] = 0.002
    """A turn takes microseconds on an idle event loop, and much longer on a busy one."""

    def __init__(
        self,
        run: RunBatch[Entry, Result],
        *,
        in_flight: int = 2,
        max_batch_size: int = 256,
        limits: WeightLimits[Entry] = UNWEIGHTED,
        batch_errors: tuple[type[Exception], ...] = (),
        on_orphaned: Callable[[Entry, Result], None] | None = None,
    ) -> None:
        self._run = run
        self._in_flight = in_flight
        self._max_batch_size = max_batch_size
        self._limits = limits
        self._waiting_weight = 0
        self._batch_errors = batch_errors
        self._on_orphaned = on_orphaned
        self._pending: deque[_Submission[Entry, Result]] = deque()
        self._isolated: deque[_Submission[Entry, Result]] = deque()
        self._running: set[asyncio.Task[Sequence[Result | Exception]]] = set()
        self._run_scheduled = False
        self._last_run_was_shared = False
        self._closed = False
        self._idle = asyncio.Event()

    async def submit(self, entry: Entry) -> Result:
        """Return the entry's result after its batch has run. Raises `CoalescerFullError`."""
        return (await self._await_results(self._enqueue([entry])))[0]

    async def submit_all(self, entries: Sequence[Entry]) -> list[Result]:
        """Return the results of entries that share one batch, even above its limits; raises their first failure.

        Raises `CoalescerFullError`.
        """
        return await self._await_results(self._enqueue(list(entries))) if entries else []

    async def close(self) -> None:
        """Refuse new entries, and return when all earlier ones have run."""
        self._closed = True
        self._idle.clear()
        self._schedule_run()
        await self._idle.wait()

    def _enqueue(self, entries: list[Entry]) -> _Submission[Entry, Result]:
        if self._closed:
            raise CoalescerClosedError
        weight = 0 if self._limits is UNWEIGHTED else sum(map(self._limits.weigh, entries))
        submission: _Submission[Entry, Result] = _Submission(entries, weight)
        if self._waiting_weight and self._waiting_weight + submission.weight > self._limits.max_waiting_weight:
            raise CoalescerFullError
        self._waiting_weight += submission.weight
        self._pending.append(submission)
        self._schedule_run()
        return submission

    async def _await_results(self, submission: _Submission[Entry, Result]) -> list[Result]:
        try:
            return await submission.future
        except asyncio.CancelledError:
            self._cancel(submission)
            raise
        finally:
            # A failure holds this frame. If the frame held the failure too, the entries would stay in memory.
            del submission

    def _cancel(self, submission: _Submission[Entry, Result]) -> None:
        """Drop a cancelled caller. Its results may exist already: it was cancelled after the answer, before reading it."""
        future = submission.future
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            self._report_orphaned(submission, future.result())

    def _schedule_run(self) -> None:
        if not (self._pending or self._isolated):
            if not self._running:
                self._idle.set()
        elif not self._run_scheduled and len(self._running) < self._in_flight:
            self._run_scheduled = True
            turns = self.gather_turns if self._last_run_was_shared else 0
            # Deferred, so that callers of this turn of the event loop join the batch.
            asyncio.get_running_loop().call_soon(self._gather, turns, monotonic() + self.gather_seconds)

    def _gather(self, turns: int, until: float) -> None:
        """Start the run once no turn or time is left, or enough callers wait to fill it."""
        if turns and len(self._pending) < self._max_batch_size and monotonic() < until:
            asyncio.get_running_loop().call_soon(self._gather, turns - 1, until)
        else:
            self._start_run()

    def _start_run(self) -> None:
        self._run_scheduled = False
        if batch := self._next_batch():
            self._last_run_was_shared = len(batch) > 1
            entries = [entry for submission in batch for entry in submission.entries]
            # A new context: a batch must not log under the request id of its first caller.
            task = asyncio.get_running_loop().create_task(self._run(entries), context=Context())
            self._running.add(task)
            task.add_done_callback(partial(self._finish_run, batch))
        self._schedule_run()

    def _next_batch(self) -> list[_Submission[Entry, Result]]:
        while self._isolated:
            submission = self._isolated.popleft()
            if not submission.future.done():
                return [submission]
        batch: list[_Submission[Entry, Result]] = []
        free_slots = self._max_batch_size
        weight_left = self._limits.max_run_weight
        while self._pending and (not batch or self._fits(self._pending[0], free_slots, weight_left)):
            submission = self._pending.popleft()
            self._waiting_weight -= submission.weight
            if not submission.future.done():
                batch.append(submission)
                free_slots -= len(submission.entries)
                weight_left -= submission.weight
        return batch

    def _fits(self, submission: _Submission[Entry, Result], free_slots: int, weight_left: int) -> bool:
        return len(submission.entries) <= free_slots and submission.weight <= weight_left

    def _finish_run(
        self, batch: list[_Submission[Entry, Result]], task: asyncio.Task[Sequence[Result | Exception]]
    ) -> None:
        self._running.discard(task)
        try:
            if task.cancelled():
                _fail(batch, BatchInterruptedError())
            elif error := task.exception():
                self._fail_run(batch, error)
            else:
                self._deliver_results(batch, task.result())
        finally:
            self._schedule_run()

    def _fail_run(self, batch: list[_Submission[Entry, Result]], error: BaseException) -> None:
        if isinstance(error, self._batch_errors):
            # Such an error would fail the isolated submissions too, each after its own long wait.
            _fail([*batch, *self._isolated], error)
        elif len(batch) == 1:
            _fail(batch, error)
        else:
            self._isolated.extend(batch)

    def _deliver_results(self, batch: list[_Submission[Entry, Result]], results: Sequence[Result | Exception]) -> None:
        entries = sum([len(submission.entries) for submission in batch])
        if len(results) != entries:
            _fail(batch, RuntimeError(f"a run of {entries} entries returned {len(results)} results"))
            return
        remaining = iter(results)
        undelivered: list[tuple[_Submission[Entry, Result], list[Result | Exception]]] = []
        requeued: list[_Submission[Entry, Result]] = []
        for submission in batch:
            own_results = list(islice(remaining, len(submission.entries)))
            if len(own_results) == 1 and isinstance(own_results[0], RequeueEntryError):
                requeued.append(submission)
            elif not submission.resolve(own_results):
                undelivered.append((submission, own_results))
        for submission in reversed(requeued):
            self._waiting_weight += submission.weight
            self._pending.appendleft(submission)
        for submission, own_results in undelivered:
            self._report_orphaned(submission, own_results)

    def _report_orphaned(self, submission: _Submission[Entry, Result], results: Sequence[Result | Exception]) -> None:
        if self._on_orphaned is not None:
            for entry, result in zip(submission.entries, results, strict=True):
                if not isinstance(result, Exception):
                    self._on_orphaned(entry, result)


def _fail(submissions: Sequence[_Submission[Any, Any]], error: BaseException) -> None:
    for submission in submissions:
        submission.fail(error)
