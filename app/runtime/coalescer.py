"""Group commit: entries that arrive during a statement, or shortly after it, share the next one."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from time import monotonic
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

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


class _Submission(msgspec.Struct, Generic[Entry, Result], eq=False):
    """Entries that share one batch, and the answer for which their caller waits."""

    entries: Sequence[Entry]
    weight: int
    future: asyncio.Future[list[Result]]


@dataclass(frozen=True, slots=True)
class WeightLimits(Generic[Entry]):
    """The weight of an entry, and the maximum weight of a run and of the waiting entries. The caller chooses the unit.

    An entry heavier than `max_run_weight` runs alone. An entry that arrives while others wait is refused with
    `full_error` if the sum would exceed `max_waiting_weight`.
    """

    weigh: Callable[[Entry], int]
    max_run_weight: int
    max_waiting_weight: int = sys.maxsize


class Coalescer(Generic[Entry, Result]):
    """Gathers the entries of many callers into few runs.

    If several callers share the last run, or shared it at most `return_seconds` ago, the next one waits for more of them: for
    at most `gather_turns` turns of the event loop and `gather_seconds`, or until as many callers wait as it may have
    entries. Otherwise an entry runs at once, so a lone caller waits at most once, right after others. No timer is used,
    because those of event loops are too coarse.

    At most `in_flight` runs are under way, each with at most `max_batch_size` entries and within `limits`. A caller is
    answered only after `run` has returned. The entry of a caller that is cancelled before its run starts has no effect.
    After that start it takes effect, and its result goes to `on_orphaned`, as does every result that reaches no caller.

    When `run` raises one of `batch_errors`, every caller of the batch gets it. Any other exception, and one that is also of
    `entry_errors`, promises that the batch had no effect: each submission runs again alone, so that only the faulty one fails.

    A subclass chooses these errors, and those that the coalescer itself raises.
    """

    batch_errors: ClassVar[tuple[type[Exception], ...]] = ()
    entry_errors: ClassVar[tuple[type[Exception], ...]] = ()
    closed_error: ClassVar[type[Exception]] = CoalescerClosedError
    full_error: ClassVar[type[Exception]] = CoalescerFullError
    interrupted_error: ClassVar[type[Exception]] = BatchInterruptedError

    gather_turns: ClassVar[int] = 8
    """Callers whose answers came from one run come back over several turns."""

    gather_seconds: ClassVar[float] = 0.002
    """A turn takes microseconds on an idle event loop, and much longer on a busy one."""

    return_seconds: ClassVar[float] = 0.05
    """How long after a shared run its callers are expected back."""

    def __init__(
        self,
        run: RunBatch[Entry, Result],
        *,
        in_flight: int = 2,
        max_batch_size: int = 256,
        limits: WeightLimits[Entry] | None = None,
        on_orphaned: Callable[[Entry, Result], None] | None = None,
    ) -> None:
        self._run = run
        self._in_flight = in_flight
        self._max_batch_size = max_batch_size
        self._limits = limits
        self._waiting_weight = 0
        self._on_orphaned = on_orphaned
        self._pending: deque[_Submission[Entry, Result]] = deque()
        self._isolated: deque[_Submission[Entry, Result]] = deque()
        self._running: set[asyncio.Task[Sequence[Result | Exception]]] = set()
        self._run_scheduled = False
        self._callers_expected_until = -inf
        self._closed = False
        self._idle = asyncio.Event()

    async def submit(self, entry: Entry) -> Result:
        """Return the entry's result after its batch has run. Raises `full_error`."""
        (result,) = await self.submit_all([entry])
        return result

    async def submit_all(self, entries: Sequence[Entry]) -> list[Result]:
        """Return the results of entries that share one batch, even above its limits; raises their first failure.

        Raises `full_error`.
        """
        if not entries:
            return []
        if self._closed:
            raise self.closed_error
        weight = 0
        if self._limits is not None:
            weight = sum(map(self._limits.weigh, entries))
            if self._waiting_weight and self._waiting_weight + weight > self._limits.max_waiting_weight:
                raise self.full_error
            self._waiting_weight += weight
        answer: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        submission = _Submission(entries, weight, answer)
        self._pending.append(submission)
        self._schedule_run()
        try:
            return await submission.future
        except asyncio.CancelledError:
            self._cancel(submission)
            raise
        finally:
            # A failure holds this frame. If the frame held the failure too, the entries would stay in memory.
            del submission, answer

    async def close(self) -> None:
        """Refuse new entries, and return when all earlier ones have run."""
        self._closed = True
        self._idle.clear()
        self._schedule_run()
        await self._idle.wait()

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
            now = monotonic()
            turns = self.gather_turns if now < self._callers_expected_until else 0
            # Deferred, so that callers of this turn of the event loop join the batch.
            asyncio.get_running_loop().call_soon(self._gather, turns, now + self.gather_seconds)

    def _gather(self, turns: int, until: float) -> None:
        """Start the run once no turn or time is left, or enough callers wait to fill it."""
        if turns and len(self._pending) < self._max_batch_size and monotonic() < until:
            asyncio.get_running_loop().call_soon(self._gather, turns - 1, until)
        else:
            self._start_run()

    def _start_run(self) -> None:
        self._run_scheduled = False
        if batch := self._next_batch():
            self._callers_expected_until = inf if len(batch) > 1 else -inf
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
        weight_left = self._limits.max_run_weight if self._limits else 0
        while self._pending:
            submission = self._pending[0]
            if batch and (len(submission.entries) > free_slots or submission.weight > weight_left):
                break
            self._pending.popleft()
            self._waiting_weight -= submission.weight
            if not submission.future.done():
                batch.append(submission)
                free_slots -= len(submission.entries)
                weight_left -= submission.weight
        return batch

    def _finish_run(
        self, batch: list[_Submission[Entry, Result]], task: asyncio.Task[Sequence[Result | Exception]]
    ) -> None:
        self._running.discard(task)
        if len(batch) > 1:
            self._callers_expected_until = monotonic() + self.return_seconds
        try:
            if task.cancelled():
                _fail(batch, self.interrupted_error())
            elif error := task.exception():
                self._fail_run(batch, error)
            elif len(results := task.result()) != (entries := sum([len(submission.entries) for submission in batch])):
                _fail(batch, RuntimeError(f"a run of {entries} entries returned {len(results)} results"))
            else:
                self._deliver_results(batch, results)
        finally:
            self._schedule_run()

    def _fail_run(self, batch: list[_Submission[Entry, Result]], error: BaseException) -> None:
        if isinstance(error, self.batch_errors) and not isinstance(error, self.entry_errors):
            # Such an error would fail the isolated submissions too, each after its own long wait.
            _fail([*batch, *self._isolated], error)
        elif len(batch) == 1:
            _fail(batch, error)
        else:
            self._isolated.extend(batch)

    def _deliver_results(self, batch: list[_Submission[Entry, Result]], results: Sequence[Result | Exception]) -> None:
        remaining = iter(results)
        undelivered: list[tuple[_Submission[Entry, Result], list[Result | Exception]]] = []
        requeued: list[_Submission[Entry, Result]] = []
        for submission in batch:
            own_results = list(islice(remaining, len(submission.entries)))
            successes: list[Result] = []
            failure: Exception | None = None
            for result in own_results:
                if not isinstance(result, Exception):
                    successes.append(result)
                elif failure is None:
                    failure = result
            if isinstance(failure, RequeueEntryError):
                requeued.append(submission)
            elif submission.future.done():
                undelivered.append((submission, own_results))
            elif failure is None:
                submission.future.set_result(successes)
            else:
                submission.future.set_exception(failure)
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
        if not submission.future.done():
            submission.future.set_exception(error)
