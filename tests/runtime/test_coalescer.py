"""Group commit: which callers share a batch, which result each gets, and which failures stay with one entry."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from math import inf
from typing import Any

import pytest

from app.runtime.coalescer import (
    BatchInterruptedError,
    Coalescer,
    CoalescerClosedError,
    CoalescerFullError,
    RequeueEntryError,
    WeightLimits,
)
from tests.virtual_clock import run_ready_tasks


class StoreUnavailableError(Exception):
    """A failure of every entry."""


class BadEntryError(Exception):
    """A failure that one entry causes for its batch."""


class BusyEntryError(StoreUnavailableError):
    """A failure of the same kind that one entry causes for its batch."""


class PatientCoalescer(Coalescer[str, str]):
    """Counts only turns, however slow this machine is."""

    batch_errors = (StoreUnavailableError,)
    entry_errors = (BusyEntryError,)
    gather_seconds = inf
    return_seconds = inf


class ForgetfulCoalescer(PatientCoalescer):
    """Expects no caller back once a shared run has ended."""

    return_seconds = 0


class HurriedCoalescer(PatientCoalescer):
    """Has no time for a turn."""

    gather_seconds = 0


class BatchRunner:
    """A run that records each batch and keeps it under way until the test ends it."""

    def __init__(self, kind: type[Coalescer[str, str]] = PatientCoalescer, **options: Any) -> None:
        self.batches: list[str] = []
        self._results: list[asyncio.Future[Sequence[str | Exception]]] = []
        self.orphans: list[tuple[str, str]] = []
        self.coalescer = kind(
            self.run,
            in_flight=2,
            max_batch_size=4,
            on_orphaned=lambda *pair: self.orphans.append(pair),
            **options,
        )

    async def run(self, entries: list[str]) -> Sequence[str | Exception]:
        self.batches.append("".join(entries))
        end: asyncio.Future[Sequence[str | Exception]] = asyncio.get_running_loop().create_future()
        self._results.append(end)
        return await end

    async def finish(self, number: int, *outcomes: str | Exception) -> None:
        """End a batch with these results; by default each entry's result is its capital letter."""
        self._results[number].set_result(outcomes or list(self.batches[number].upper()))
        await run_ready_tasks()

    async def fail(self, number: int, error: Exception) -> None:
        self._results[number].set_exception(error)
        await run_ready_tasks()

    async def interrupt(self, number: int) -> None:
        self._results[number].cancel()
        await run_ready_tasks()

    async def callers(self, entries: str) -> list[asyncio.Task[str]]:
        """One caller for each letter, all in the same turn of the event loop."""
        tasks = [asyncio.create_task(self.coalescer.submit(entry)) for entry in entries]
        await run_ready_tasks()
        return tasks


@pytest.fixture
def batches() -> BatchRunner:
    return BatchRunner()


async def outcomes(tasks: Sequence[asyncio.Task[str]]) -> list[str | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


# ---- sharing a batch -------------------------------------------------------------------------------------------------


async def test_an_idle_coalescer_runs_an_entry_at_once_and_alone(batches: BatchRunner) -> None:
    [caller] = await batches.callers("a")
    assert batches.batches == ["a"]
    await batches.finish(0)
    assert await caller == "A"


async def test_callers_of_one_turn_share_a_batch_and_get_their_own_results(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    assert batches.batches == ["abc"]
    await batches.finish(0, "one", "two", "three")
    assert await outcomes(callers) == ["one", "two", "three"]


async def test_entries_gather_while_the_allowed_batches_run(batches: BatchRunner) -> None:
    callers = [*await batches.callers("a"), *await batches.callers("b")]
    for entry in "cde":
        callers += await batches.callers(entry)
    assert batches.batches == ["a", "b"]
    await batches.finish(1)
    assert batches.batches == ["a", "b", "cde"]
    await batches.finish(0)
    await batches.finish(2)
    assert await outcomes(callers) == list("ABCDE")


async def test_no_caller_is_answered_before_the_run_has_returned(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    assert not any(caller.done() for caller in callers)
    await batches.finish(0)
    assert all(caller.done() for caller in callers)


async def test_many_entries_fill_batches_in_order_of_arrival(batches: BatchRunner) -> None:
    callers = await batches.callers("abcdefghi")
    assert batches.batches == ["abcd", "efgh"]
    await batches.finish(0)
    assert batches.batches == ["abcd", "efgh", "i"]
    await batches.finish(1)
    await batches.finish(2)
    assert await outcomes(callers) == list("ABCDEFGHI")


async def test_entries_of_one_call_share_a_batch_even_above_the_maximum_size(batches: BatchRunner) -> None:
    single = await batches.callers("a")
    group = asyncio.create_task(batches.coalescer.submit_all("bcdefg"))
    await run_ready_tasks()
    assert batches.batches == ["a", "bcdefg"]
    await batches.finish(0)
    await batches.finish(1)
    assert await outcomes(single) == ["A"]
    assert await group == list("BCDEFG")


async def test_entries_of_one_call_wait_for_a_batch_that_fits_all(batches: BatchRunner) -> None:
    singles = await batches.callers("abc")
    group = asyncio.create_task(batches.coalescer.submit_all("de"))
    await run_ready_tasks()
    assert batches.batches == ["abc", "de"]
    await batches.finish(0)
    await batches.finish(1)
    assert [await outcomes(singles), await group] == [list("ABC"), list("DE")]


async def test_an_empty_call_is_answered_without_a_run(batches: BatchRunner) -> None:
    assert await batches.coalescer.submit_all([]) == []
    assert batches.batches == []


async def test_a_batch_does_not_run_in_the_context_of_its_first_caller() -> None:
    request_id: ContextVar[str] = ContextVar("request_id", default="none")

    async def run(entries: list[str]) -> list[str]:
        return [request_id.get() for _ in entries]

    request_id.set("the caller's")
    assert await Coalescer(run).submit("a") == "none"


# ---- waiting for more callers ----------------------------------------------------------------------------------------


async def turns(number: int) -> None:
    """Let the event loop run this many turns."""
    for _ in range(number):
        await asyncio.sleep(0)


FROM_CALL_TO_ENTRY = 1
"""The turns until the task of a caller has submitted its entry."""


async def after_a_shared_run(kind: type[Coalescer[str, str]] = PatientCoalescer) -> BatchRunner:
    """A coalescer whose last run had two callers."""
    batches = BatchRunner(kind)
    await batches.callers("xy")
    await batches.finish(0)
    return batches


async def test_a_lone_caller_does_not_wait_for_others(batches: BatchRunner) -> None:
    for number, entry in enumerate("abc"):
        caller = asyncio.create_task(batches.coalescer.submit(entry))
        await turns(FROM_CALL_TO_ENTRY + 2)
        assert batches.batches[number:] == [entry]
        await batches.finish(number)
        assert await caller == entry.upper()


async def test_after_a_shared_run_an_entry_waits_some_turns_for_others() -> None:
    batches = await after_a_shared_run()
    callers = [asyncio.create_task(batches.coalescer.submit("a"))]
    await turns(Coalescer.gather_turns - 1)
    callers.append(asyncio.create_task(batches.coalescer.submit("b")))
    await run_ready_tasks()
    assert batches.batches == ["xy", "ab"]
    await batches.finish(1)
    assert await outcomes(callers) == ["A", "B"]


async def test_an_entry_waits_no_longer_than_these_turns() -> None:
    batches = await after_a_shared_run()
    caller = asyncio.create_task(batches.coalescer.submit("a"))
    await turns(FROM_CALL_TO_ENTRY + Coalescer.gather_turns)
    assert batches.batches == ["xy"]
    await turns(2)
    assert batches.batches == ["xy", "a"]
    await batches.finish(1)
    assert await caller == "A"


async def test_an_entry_waits_no_longer_than_its_time_even_if_turns_are_left() -> None:
    batches = await after_a_shared_run(HurriedCoalescer)
    caller = asyncio.create_task(batches.coalescer.submit("a"))
    await turns(FROM_CALL_TO_ENTRY + 2)
    assert batches.batches == ["xy", "a"]
    await batches.finish(1)
    assert await caller == "A"


async def test_a_full_batch_does_not_wait() -> None:
    batches = await after_a_shared_run()
    callers = [asyncio.create_task(batches.coalescer.submit(entry)) for entry in "abcd"]
    await turns(FROM_CALL_TO_ENTRY + 2)
    assert batches.batches == ["xy", "abcd"]
    await batches.finish(1)
    assert await outcomes(callers) == list("ABCD")


async def test_long_after_a_shared_run_no_entry_waits() -> None:
    batches = await after_a_shared_run(ForgetfulCoalescer)
    caller = asyncio.create_task(batches.coalescer.submit("a"))
    await turns(FROM_CALL_TO_ENTRY + 2)
    assert batches.batches == ["xy", "a"]
    await batches.finish(1)
    assert await caller == "A"


async def test_an_entry_waits_for_others_while_a_shared_run_is_under_way() -> None:
    batches = BatchRunner(ForgetfulCoalescer)
    first = await batches.callers("xy")
    callers = [asyncio.create_task(batches.coalescer.submit("a"))]
    await turns(Coalescer.gather_turns - 1)
    callers.append(asyncio.create_task(batches.coalescer.submit("b")))
    await run_ready_tasks()
    assert batches.batches == ["xy", "ab"]
    await batches.finish(0)
    await batches.finish(1)
    assert await outcomes([*first, *callers]) == list("XYAB")


async def test_after_a_run_of_one_caller_no_entry_waits() -> None:
    batches = await after_a_shared_run()
    await batches.callers("a")
    await batches.finish(1)
    caller = asyncio.create_task(batches.coalescer.submit("b"))
    await turns(FROM_CALL_TO_ENTRY + 2)
    assert batches.batches == ["xy", "a", "b"]
    await batches.finish(2)
    assert await caller == "B"


# ---- weight ----------------------------------------------------------------------------------------------------------


def weighted_coalescer(max_waiting_weight: int = 100) -> BatchRunner:
    """A coalescer with a maximum weight of 10 per run; the weight of a digit is its value."""
    return BatchRunner(limits=WeightLimits(int, max_run_weight=10, max_waiting_weight=max_waiting_weight))


async def test_a_run_does_not_exceed_its_maximum_weight() -> None:
    batches = weighted_coalescer()
    callers = await batches.callers("6394")
    assert batches.batches == ["63", "9"]
    await batches.finish(0)
    assert batches.batches == ["63", "9", "4"]
    await batches.finish(1)
    await batches.finish(2)
    assert await outcomes(callers) == list("6394")


async def test_an_entry_above_the_maximum_weight_runs_alone() -> None:
    batches = weighted_coalescer()
    single = await batches.callers("1")
    group = asyncio.create_task(batches.coalescer.submit_all("999"))
    after = await batches.callers("2")
    assert batches.batches == ["1", "999"]
    await batches.finish(1)
    assert batches.batches == ["1", "999", "2"]
    await batches.finish(0)
    await batches.finish(2)
    assert [await outcomes(single), await group, await outcomes(after)] == [["1"], ["9", "9", "9"], ["2"]]


async def test_waiting_entries_do_not_exceed_their_maximum_weight() -> None:
    batches = weighted_coalescer(max_waiting_weight=12)
    callers = [*await batches.callers("9"), *await batches.callers("9"), *await batches.callers("9")]
    assert batches.batches == ["9", "9"], "one waits"
    with pytest.raises(CoalescerFullError):
        await batches.coalescer.submit("4")
    callers += await batches.callers("3")
    await batches.finish(0)
    assert batches.batches == ["9", "9", "9"]
    callers += await batches.callers("9")
    for number in (1, 2, 3, 4):
        await batches.finish(number)
    assert await outcomes(callers) == list("99939")


async def test_an_entry_above_the_maximum_waiting_weight_waits_alone() -> None:
    batches = weighted_coalescer(max_waiting_weight=5)
    callers = [*await batches.callers("9"), *await batches.callers("9"), *await batches.callers("9")]
    for number in range(3):
        await batches.finish(number)
    assert await outcomes(callers) == list("999")


async def test_a_requeued_entry_counts_as_waiting_again() -> None:
    batches = weighted_coalescer(max_waiting_weight=12)
    callers = [*await batches.callers("9"), *await batches.callers("3")]
    await batches.finish(0, RequeueEntryError())
    assert batches.batches == ["9", "3", "9"]
    callers += await batches.callers("9")
    (refused,) = await batches.callers("4")
    assert refused.done()
    with pytest.raises(CoalescerFullError):
        await refused
    for number in (1, 2, 3):
        await batches.finish(number)
    assert await outcomes(callers) == list("939")


async def test_a_requeued_entry_goes_first_in_the_next_run(batches: BatchRunner) -> None:
    callers = [*await batches.callers("z"), *await batches.callers("abc"), *await batches.callers("d")]
    assert batches.batches == ["z", "abc"]
    await batches.finish(1, "A", RequeueEntryError(), RequeueEntryError())
    assert batches.batches == ["z", "abc", "bcd"]
    await batches.finish(0)
    await batches.finish(2)
    assert await outcomes(callers) == list("ZABCD")


async def test_a_requeued_caller_may_be_cancelled_before_the_next_run(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    callers[1].cancel()
    await batches.finish(0, "A", RequeueEntryError())
    assert batches.batches == ["ab"]
    assert await callers[0] == "A"
    assert batches.orphans == []
    await batches.coalescer.close()


# ---- failures --------------------------------------------------------------------------------------------------------


async def test_a_failure_as_a_result_reaches_only_its_caller(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    error = BadEntryError()
    await batches.finish(0, "A", error, "C")
    assert await outcomes(callers) == ["A", error, "C"]
    assert batches.batches == ["abc"]


async def test_a_batch_error_reaches_every_caller(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    error = StoreUnavailableError()
    await batches.fail(0, error)
    assert await outcomes(callers) == [error, error, error]
    assert batches.batches == ["abc"], "no entry runs again"


class LargeEntry:
    """An entry whose end can be observed."""


@pytest.mark.parametrize("failure", [StoreUnavailableError, BadEntryError])
async def test_a_failed_entry_is_freed_with_its_answer(failure: type[Exception]) -> None:
    """Garbage collections are rare, so a cycle would keep the entries of many failures in memory."""

    async def fail(_entries: list[LargeEntry]) -> Sequence[Any]:
        raise failure

    class LargeEntries(Coalescer[LargeEntry, Any]):
        batch_errors = (StoreUnavailableError,)

    large_entries = LargeEntries(fail)
    freed: list[bool] = []

    async def submit_one() -> None:
        entry = LargeEntry()
        weakref.finalize(entry, freed.append, True)
        await large_entries.submit(entry)

    gc.disable()
    try:
        with contextlib.suppress(failure):
            await submit_one()
        await run_ready_tasks()
        assert freed
    finally:
        gc.enable()


async def test_after_any_other_failure_each_entry_runs_alone(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    await batches.fail(0, BadEntryError("somebody"))
    assert batches.batches == ["abc", "a", "b"], "at most two runs at a time"
    await batches.finish(1)
    error = BadEntryError("b")
    await batches.fail(2, error)
    assert batches.batches == ["abc", "a", "b", "c"]
    await batches.finish(3)
    assert await outcomes(callers) == ["A", error, "C"]


async def test_after_an_entry_error_each_entry_runs_alone(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    await batches.fail(0, BusyEntryError("busy"))
    assert batches.batches == ["ab", "a", "b"]
    error = BusyEntryError("b")
    await batches.fail(2, error)
    await batches.finish(1)
    assert await outcomes(callers) == ["A", error]


async def test_entries_of_one_call_run_again_together(batches: BatchRunner) -> None:
    single = await batches.callers("a")
    other = await batches.callers("b")
    group = asyncio.create_task(batches.coalescer.submit_all("cd"))
    last = await batches.callers("e")
    await batches.finish(0)
    assert batches.batches == ["a", "b", "cde"]
    error = BadEntryError()
    await batches.fail(2, error)
    assert batches.batches == ["a", "b", "cde", "cd"]
    await batches.fail(3, error)
    assert batches.batches == ["a", "b", "cde", "cd", "e"]
    await batches.finish(1)
    await batches.finish(4)
    assert await outcomes([*single, *other, *last]) == ["A", "B", "E"]
    with pytest.raises(BadEntryError):
        await group


async def test_an_entry_that_ran_alone_does_not_run_again(batches: BatchRunner) -> None:
    callers = await batches.callers("a")
    error = BadEntryError()
    await batches.fail(0, error)
    assert await outcomes(callers) == [error]
    assert batches.batches == ["a"]


async def test_a_batch_error_of_a_single_run_fails_the_other_isolated_entries(batches: BatchRunner) -> None:
    callers = await batches.callers("abcd")
    await batches.fail(0, BadEntryError())
    unavailable = StoreUnavailableError()
    await batches.fail(1, unavailable)
    await batches.finish(2)
    assert await outcomes(callers) == [unavailable, "B", unavailable, unavailable]
    assert batches.batches == ["abcd", "a", "b"]


async def test_a_run_with_a_wrong_number_of_results_fails_all_once(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    await batches.finish(0, "A", "B")
    errors = await outcomes(callers)
    assert [str(error) for error in errors] == ["a run of 3 entries returned 2 results"] * 3
    assert batches.batches == ["abc"]


async def test_a_cancelled_run_fails_with_an_unknown_outcome(
    batches: BatchRunner,
) -> None:
    callers = await batches.callers("ab")
    await batches.interrupt(0)
    assert [type(error) for error in await outcomes(callers)] == [BatchInterruptedError] * 2
    [after] = await batches.callers("c")
    await batches.finish(1)
    assert await after == "C"


# ---- cancelled callers -----------------------------------------------------------------------------------------------


async def test_an_entry_cancelled_before_its_run_has_no_effect(batches: BatchRunner) -> None:
    callers = [*await batches.callers("a"), *await batches.callers("b"), *await batches.callers("cde")]
    callers[3].cancel()
    await run_ready_tasks()
    for number in range(3):
        await batches.finish(min(number, len(batches.batches) - 1))
    assert batches.batches == ["a", "b", "ce"]
    assert [type(result) for result in await outcomes(callers)] == [str, str, str, asyncio.CancelledError, str]
    assert batches.orphans == []


async def test_a_batch_whose_callers_were_all_cancelled_does_not_run(batches: BatchRunner) -> None:
    callers = [*await batches.callers("a"), *await batches.callers("b"), *await batches.callers("cd")]
    for caller in callers[2:]:
        caller.cancel()
    await batches.finish(0)
    await batches.finish(1)
    assert batches.batches == ["a", "b"]
    await batches.coalescer.close()


async def test_an_entry_cancelled_during_its_run_is_orphaned(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    callers[1].cancel()
    await batches.finish(0)
    assert [type(result) for result in await outcomes(callers)] == [str, asyncio.CancelledError, str]
    assert batches.orphans == [("b", "B")]


async def test_a_caller_cancelled_before_it_reads_its_result_is_orphaned(
    batches: BatchRunner,
) -> None:
    async def first_cancels_second() -> None:
        await batches.coalescer.submit("a")
        second.cancel()

    first = asyncio.create_task(first_cancels_second())
    second = asyncio.create_task(batches.coalescer.submit("b"))
    await run_ready_tasks()
    await batches.finish(0)
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert batches.orphans == [("b", "B")]


async def test_a_caller_cancelled_before_it_reads_its_failure_is_cancelled(batches: BatchRunner) -> None:
    async def first_cancels_second() -> None:
        await batches.coalescer.submit("a")
        second.cancel()

    first = asyncio.create_task(first_cancels_second())
    second = asyncio.create_task(batches.coalescer.submit("b"))
    await run_ready_tasks()
    await batches.finish(0, "A", BadEntryError())
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert batches.orphans == []


async def test_a_failure_is_not_orphaned(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    callers[0].cancel()
    await batches.finish(0, BadEntryError(), "B")
    assert await callers[1] == "B"
    assert batches.orphans == []


async def test_an_isolated_entry_of_a_cancelled_caller_does_not_run_again(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    callers[0].cancel()
    await batches.fail(0, BadEntryError())
    assert batches.batches == ["ab", "b"]
    await batches.finish(1)
    assert await callers[1] == "B"


async def test_a_failure_in_a_call_orphans_its_other_results(batches: BatchRunner) -> None:
    group = asyncio.create_task(batches.coalescer.submit_all("abc"))
    await run_ready_tasks()
    error = BadEntryError()
    await batches.finish(0, "A", error, "C")
    with pytest.raises(BadEntryError) as raised:
        await group
    assert raised.value is error
    assert batches.orphans == [("a", "A"), ("c", "C")]


async def test_a_call_gets_the_first_of_its_failures(batches: BatchRunner) -> None:
    group = asyncio.create_task(batches.coalescer.submit_all("abc"))
    await run_ready_tasks()
    first = BadEntryError()
    await batches.finish(0, "A", first, BusyEntryError())
    with pytest.raises(BadEntryError) as raised:
        await group
    assert raised.value is first


# ---- closing ---------------------------------------------------------------------------------------------------------


async def test_close_runs_gathered_entries_and_refuses_new_ones(batches: BatchRunner) -> None:
    callers = await batches.callers("z")
    await batches.finish(0)
    callers += [*await batches.callers("a"), *await batches.callers("b"), *await batches.callers("c")]
    closing = asyncio.create_task(batches.coalescer.close())
    await run_ready_tasks()
    with pytest.raises(CoalescerClosedError):
        await batches.coalescer.submit("late")
    with pytest.raises(CoalescerClosedError):
        await batches.coalescer.submit_all(["late"])
    for number in (1, 2, 3):
        assert not closing.done()
        await batches.finish(number)
    await closing
    assert await outcomes(callers) == list("ZABC")


async def test_close_returns_at_once_when_idle(batches: BatchRunner) -> None:
    await batches.coalescer.close()
    await batches.coalescer.close()
    assert batches.batches == []
