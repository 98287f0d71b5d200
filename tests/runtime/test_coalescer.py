"""Group commit: who shares a batch, who hears what, and who is spared a neighbour's fault."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
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


class StoreAwayError(Exception):
    """Stands for the failure that concerns every entry."""


class BadEntryError(Exception):
    """Stands for the failure that one entry brings upon its batch."""


class BatchRunner:
    """A run that notes each batch and keeps it under way until the test says how it ends."""

    def __init__(self, **options: Any) -> None:
        self.batches: list[str] = []
        self._results: list[asyncio.Future[Sequence[str | Exception]]] = []
        self.orphans: list[tuple[str, str]] = []
        self.coalescer: Coalescer[str, str] = Coalescer(
            self.run,
            in_flight=2,
            max_batch_size=4,
            batch_errors=(StoreAwayError,),
            on_orphaned=lambda *pair: self.orphans.append(pair),
            **options,
        )

    async def run(self, entries: list[str]) -> Sequence[str | Exception]:
        self.batches.append("".join(entries))
        end: asyncio.Future[Sequence[str | Exception]] = asyncio.get_running_loop().create_future()
        self._results.append(end)
        return await end

    async def finish(self, number: int, *outcomes: str | Exception) -> None:
        """Let a batch end with these outcomes; without any, each entry's outcome is its capital letter."""
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


# ---- who shares a batch ----------------------------------------------------------------------------------------------


async def test_when_idle_an_entry_leaves_at_once_and_alone(batches: BatchRunner) -> None:
    [caller] = await batches.callers("a")
    assert batches.batches == ["a"]
    await batches.finish(0)
    assert await caller == "A"


async def test_callers_of_the_same_moment_leave_together_and_hear_their_own_outcome(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    assert batches.batches == ["abc"]
    await batches.finish(0, "one", "two", "three")
    assert await outcomes(callers) == ["one", "two", "three"]


async def test_callers_gather_while_the_allowed_batches_are_under_way(batches: BatchRunner) -> None:
    callers = [*await batches.callers("a"), *await batches.callers("b")]
    for entry in "cde":
        callers += await batches.callers(entry)
    assert batches.batches == ["a", "b"]
    await batches.finish(1)
    assert batches.batches == ["a", "b", "cde"]
    await batches.finish(0)
    await batches.finish(2)
    assert await outcomes(callers) == list("ABCDE")


async def test_nobody_is_answered_before_the_run_has_returned(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    assert not any(caller.done() for caller in callers)
    await batches.finish(0)
    assert all(caller.done() for caller in callers)


async def test_a_crowd_is_spread_over_batches_in_the_order_it_came(batches: BatchRunner) -> None:
    callers = await batches.callers("abcdefghi")
    assert batches.batches == ["abcd", "efgh"]
    await batches.finish(0)
    assert batches.batches == ["abcd", "efgh", "i"]
    await batches.finish(1)
    await batches.finish(2)
    assert await outcomes(callers) == list("ABCDEFGHI")


async def test_entries_together_share_a_batch_even_above_the_largest(batches: BatchRunner) -> None:
    single = await batches.callers("a")
    group = asyncio.create_task(batches.coalescer.submit_all("bcdefg"))
    await run_ready_tasks()
    assert batches.batches == ["a", "bcdefg"]
    await batches.finish(0)
    await batches.finish(1)
    assert await outcomes(single) == ["A"]
    assert await group == list("BCDEFG")


async def test_entries_together_wait_for_a_batch_with_room_for_all(batches: BatchRunner) -> None:
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


async def test_a_batch_does_not_run_in_the_context_of_whoever_came_first() -> None:
    request_id: ContextVar[str] = ContextVar("request_id", default="none")

    async def run(entries: list[str]) -> list[str]:
        return [request_id.get() for _ in entries]

    request_id.set("the caller's")
    assert await Coalescer(run).submit("a") == "none"


# ---- weight ----------------------------------------------------------------------------------------------------------


def weighted_coalescer(max_waiting_weight: int = 100) -> BatchRunner:
    """A run that carries a weight of 10; a digit is as heavy as it says."""
    return BatchRunner(limits=WeightLimits(int, max_run_weight=10, max_waiting_weight=max_waiting_weight))


async def test_a_run_is_no_heavier_than_it_may_be() -> None:
    batches = weighted_coalescer()
    callers = await batches.callers("6394")
    assert batches.batches == ["63", "9"]
    await batches.finish(0)
    assert batches.batches == ["63", "9", "4"]
    await batches.finish(1)
    await batches.finish(2)
    assert await outcomes(callers) == list("6394")


async def test_an_entry_that_is_too_heavy_for_any_run_leaves_alone() -> None:
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


async def test_what_waits_is_no_heavier_than_it_may_be() -> None:
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


async def test_an_entry_heavier_than_all_that_may_wait_waits_alone() -> None:
    batches = weighted_coalescer(max_waiting_weight=5)
    callers = [*await batches.callers("9"), *await batches.callers("9"), *await batches.callers("9")]
    for number in range(3):
        await batches.finish(number)
    assert await outcomes(callers) == list("999")


async def test_what_a_run_has_no_room_for_goes_first_in_the_next_run(batches: BatchRunner) -> None:
    callers = [*await batches.callers("z"), *await batches.callers("abc"), *await batches.callers("d")]
    assert batches.batches == ["z", "abc"]
    await batches.finish(1, "A", RequeueEntryError(), RequeueEntryError())
    assert batches.batches == ["z", "abc", "bcd"]
    await batches.finish(0)
    await batches.finish(2)
    assert await outcomes(callers) == list("ZABCD")


async def test_one_who_was_left_over_may_go_before_the_next_run(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    callers[1].cancel()
    await batches.finish(0, "A", RequeueEntryError())
    assert batches.batches == ["ab"]
    assert await callers[0] == "A"
    assert batches.orphans == []
    await batches.coalescer.close()


# ---- failures --------------------------------------------------------------------------------------------------------


async def test_a_failure_in_place_of_an_outcome_reaches_its_caller_only(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    error = BadEntryError()
    await batches.finish(0, "A", error, "C")
    assert await outcomes(callers) == ["A", error, "C"]
    assert batches.batches == ["abc"]


async def test_a_failure_that_concerns_all_reaches_all(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    error = StoreAwayError()
    await batches.fail(0, error)
    assert await outcomes(callers) == [error, error, error]
    assert batches.batches == ["abc"], "nothing is tried again"


async def test_after_any_other_failure_each_is_tried_alone_and_only_the_bad_one_fails(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    await batches.fail(0, BadEntryError("somebody"))
    assert batches.batches == ["abc", "a", "b"], "two under way, as always"
    await batches.finish(1)
    error = BadEntryError("b")
    await batches.fail(2, error)
    assert batches.batches == ["abc", "a", "b", "c"]
    await batches.finish(3)
    assert await outcomes(callers) == ["A", error, "C"]


async def test_entries_together_are_tried_again_together(batches: BatchRunner) -> None:
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


async def test_a_lone_entry_is_not_tried_twice(batches: BatchRunner) -> None:
    callers = await batches.callers("a")
    error = BadEntryError()
    await batches.fail(0, error)
    assert await outcomes(callers) == [error]
    assert batches.batches == ["a"]


async def test_when_the_store_goes_away_among_lone_tries_the_rest_is_not_tried(batches: BatchRunner) -> None:
    callers = await batches.callers("abcd")
    await batches.fail(0, BadEntryError())
    away = StoreAwayError()
    await batches.fail(1, away)
    await batches.finish(2)
    assert await outcomes(callers) == [away, "B", away, away]
    assert batches.batches == ["abcd", "a", "b"]


async def test_a_run_that_miscounts_fails_all_and_is_not_repeated(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    await batches.finish(0, "A", "B")
    heard = await outcomes(callers)
    assert [str(error) for error in heard] == ["a run of 3 entries returned 2 results"] * 3
    assert batches.batches == ["abc"]


async def test_an_interrupted_run_leaves_its_callers_in_no_doubt_that_they_are_in_doubt(
    batches: BatchRunner,
) -> None:
    callers = await batches.callers("ab")
    await batches.interrupt(0)
    assert [type(error) for error in await outcomes(callers)] == [BatchInterruptedError] * 2
    [after] = await batches.callers("c")
    await batches.finish(1)
    assert await after == "C"


# ---- callers who go --------------------------------------------------------------------------------------------------


async def test_one_who_goes_before_the_batch_leaves_drops_out(batches: BatchRunner) -> None:
    callers = [*await batches.callers("a"), *await batches.callers("b"), *await batches.callers("cde")]
    callers[3].cancel()
    await run_ready_tasks()
    for number in range(3):
        await batches.finish(min(number, len(batches.batches) - 1))
    assert batches.batches == ["a", "b", "ce"]
    assert [type(heard) for heard in await outcomes(callers)] == [str, str, str, asyncio.CancelledError, str]
    assert batches.orphans == []


async def test_when_all_have_gone_nothing_runs(batches: BatchRunner) -> None:
    callers = [*await batches.callers("a"), *await batches.callers("b"), *await batches.callers("cd")]
    for caller in callers[2:]:
        caller.cancel()
    await batches.finish(0)
    await batches.finish(1)
    assert batches.batches == ["a", "b"]
    await batches.coalescer.close()


async def test_one_who_goes_while_the_batch_is_under_way_leaves_an_orphan(batches: BatchRunner) -> None:
    callers = await batches.callers("abc")
    callers[1].cancel()
    await batches.finish(0)
    assert [type(heard) for heard in await outcomes(callers)] == [str, asyncio.CancelledError, str]
    assert batches.orphans == [("b", "B")]


async def test_one_who_is_cancelled_after_the_answer_before_reading_it_leaves_an_orphan(
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


async def test_a_failure_leaves_no_orphan(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    callers[0].cancel()
    await batches.finish(0, BadEntryError(), "B")
    assert await callers[1] == "B"
    assert batches.orphans == []


async def test_a_suspect_whose_caller_has_gone_is_not_tried_again(batches: BatchRunner) -> None:
    callers = await batches.callers("ab")
    callers[0].cancel()
    await batches.fail(0, BadEntryError())
    assert batches.batches == ["ab", "b"]
    await batches.finish(1)
    assert await callers[1] == "B"


async def test_a_group_with_a_failure_in_it_orphans_its_other_outcomes(batches: BatchRunner) -> None:
    group = asyncio.create_task(batches.coalescer.submit_all("abc"))
    await run_ready_tasks()
    error = BadEntryError()
    await batches.finish(0, "A", error, "C")
    with pytest.raises(BadEntryError) as raised:
        await group
    assert raised.value is error
    assert batches.orphans == [("a", "A"), ("c", "C")]


# ---- closing ---------------------------------------------------------------------------------------------------------


async def test_closing_finishes_what_was_gathered_and_takes_nothing_more(batches: BatchRunner) -> None:
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


async def test_closing_when_idle_returns_at_once_however_often(batches: BatchRunner) -> None:
    await batches.coalescer.close()
    await batches.coalescer.close()
    assert batches.batches == []
