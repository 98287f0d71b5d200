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
    LeftOverError,
    Scale,
)
from tests.clock import settle


class StoreAwayError(Exception):
    """Stands for the failure that concerns every entry."""


class BadEntryError(Exception):
    """Stands for the failure that one entry brings upon its batch."""


class Statements:
    """A run that notes each batch and keeps it under way until the test says how it ends."""

    def __init__(self, **options: Any) -> None:
        self.batches: list[str] = []
        self._ends: list[asyncio.Future[Sequence[str | Exception]]] = []
        self.orphans: list[tuple[str, str]] = []
        self.coalescer: Coalescer[str, str] = Coalescer(
            self.run,
            in_flight=2,
            largest=4,
            shared=(StoreAwayError,),
            orphaned=lambda *pair: self.orphans.append(pair),
            **options,
        )

    async def run(self, entries: list[str]) -> Sequence[str | Exception]:
        self.batches.append("".join(entries))
        end: asyncio.Future[Sequence[str | Exception]] = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        return await end

    async def finish(self, number: int, *outcomes: str | Exception) -> None:
        """Let a batch end with these outcomes; without any, each entry's outcome is its capital letter."""
        self._ends[number].set_result(outcomes or list(self.batches[number].upper()))
        await settle()

    async def fail(self, number: int, error: Exception) -> None:
        self._ends[number].set_exception(error)
        await settle()

    async def interrupt(self, number: int) -> None:
        self._ends[number].cancel()
        await settle()

    async def callers(self, entries: str) -> list[asyncio.Task[str]]:
        """One caller for each letter, all in the same turn of the event loop."""
        tasks = [asyncio.create_task(self.coalescer.submit(entry)) for entry in entries]
        await settle()
        return tasks


@pytest.fixture
def statements() -> Statements:
    return Statements()


async def outcomes(tasks: Sequence[asyncio.Task[str]]) -> list[str | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


# ---- who shares a batch ----------------------------------------------------------------------------------------------


async def test_when_idle_an_entry_leaves_at_once_and_alone(statements: Statements) -> None:
    [caller] = await statements.callers("a")
    assert statements.batches == ["a"]
    await statements.finish(0)
    assert await caller == "A"


async def test_callers_of_the_same_moment_leave_together_and_hear_their_own_outcome(statements: Statements) -> None:
    callers = await statements.callers("abc")
    assert statements.batches == ["abc"]
    await statements.finish(0, "one", "two", "three")
    assert await outcomes(callers) == ["one", "two", "three"]


async def test_callers_gather_while_the_allowed_batches_are_under_way(statements: Statements) -> None:
    callers = [*await statements.callers("a"), *await statements.callers("b")]
    for entry in "cde":
        callers += await statements.callers(entry)
    assert statements.batches == ["a", "b"]
    await statements.finish(1)
    assert statements.batches == ["a", "b", "cde"]
    await statements.finish(0)
    await statements.finish(2)
    assert await outcomes(callers) == list("ABCDE")


async def test_nobody_is_answered_before_the_run_has_returned(statements: Statements) -> None:
    callers = await statements.callers("ab")
    assert not any(caller.done() for caller in callers)
    await statements.finish(0)
    assert all(caller.done() for caller in callers)


async def test_a_crowd_is_spread_over_batches_in_the_order_it_came(statements: Statements) -> None:
    callers = await statements.callers("abcdefghi")
    assert statements.batches == ["abcd", "efgh"]
    await statements.finish(0)
    assert statements.batches == ["abcd", "efgh", "i"]
    await statements.finish(1)
    await statements.finish(2)
    assert await outcomes(callers) == list("ABCDEFGHI")


async def test_entries_together_share_a_batch_even_above_the_largest(statements: Statements) -> None:
    single = await statements.callers("a")
    group = asyncio.create_task(statements.coalescer.submit_together("bcdefg"))
    await settle()
    assert statements.batches == ["a", "bcdefg"]
    await statements.finish(0)
    await statements.finish(1)
    assert await outcomes(single) == ["A"]
    assert await group == list("BCDEFG")


async def test_entries_together_wait_for_a_batch_with_room_for_all(statements: Statements) -> None:
    singles = await statements.callers("abc")
    group = asyncio.create_task(statements.coalescer.submit_together("de"))
    await settle()
    assert statements.batches == ["abc", "de"]
    await statements.finish(0)
    await statements.finish(1)
    assert [await outcomes(singles), await group] == [list("ABC"), list("DE")]


async def test_an_empty_call_is_answered_without_a_run(statements: Statements) -> None:
    assert await statements.coalescer.submit_together([]) == []
    assert statements.batches == []


async def test_a_batch_does_not_run_in_the_context_of_whoever_came_first() -> None:
    request_id: ContextVar[str] = ContextVar("request_id", default="none")

    async def run(entries: list[str]) -> list[str]:
        return [request_id.get() for _ in entries]

    request_id.set("the caller's")
    assert await Coalescer(run).submit("a") == "none"


# ---- weight ----------------------------------------------------------------------------------------------------------


def weighed(most_waiting: int = 100) -> Statements:
    """A run that carries a weight of 10; a digit is as heavy as it says."""
    return Statements(scale=Scale(int, largest_run_weight=10, most_waiting=most_waiting))


async def test_a_run_is_no_heavier_than_it_may_be() -> None:
    statements = weighed()
    callers = await statements.callers("6394")
    assert statements.batches == ["63", "9"]
    await statements.finish(0)
    assert statements.batches == ["63", "9", "4"]
    await statements.finish(1)
    await statements.finish(2)
    assert await outcomes(callers) == list("6394")


async def test_an_entry_that_is_too_heavy_for_any_run_leaves_alone() -> None:
    statements = weighed()
    single = await statements.callers("1")
    group = asyncio.create_task(statements.coalescer.submit_together("999"))
    after = await statements.callers("2")
    assert statements.batches == ["1", "999"]
    await statements.finish(1)
    assert statements.batches == ["1", "999", "2"]
    await statements.finish(0)
    await statements.finish(2)
    assert [await outcomes(single), await group, await outcomes(after)] == [["1"], ["9", "9", "9"], ["2"]]


async def test_what_waits_is_no_heavier_than_it_may_be() -> None:
    statements = weighed(most_waiting=12)
    callers = [*await statements.callers("9"), *await statements.callers("9"), *await statements.callers("9")]
    assert statements.batches == ["9", "9"], "one waits"
    with pytest.raises(CoalescerFullError):
        await statements.coalescer.submit("4")
    callers += await statements.callers("3")
    await statements.finish(0)
    assert statements.batches == ["9", "9", "9"]
    callers += await statements.callers("9")
    for number in (1, 2, 3, 4):
        await statements.finish(number)
    assert await outcomes(callers) == list("99939")


async def test_an_entry_heavier_than_all_that_may_wait_waits_alone() -> None:
    statements = weighed(most_waiting=5)
    callers = [*await statements.callers("9"), *await statements.callers("9"), *await statements.callers("9")]
    for number in range(3):
        await statements.finish(number)
    assert await outcomes(callers) == list("999")


async def test_what_a_run_has_no_room_for_goes_first_in_the_next_run(statements: Statements) -> None:
    callers = [*await statements.callers("z"), *await statements.callers("abc"), *await statements.callers("d")]
    assert statements.batches == ["z", "abc"]
    await statements.finish(1, "A", LeftOverError(), LeftOverError())
    assert statements.batches == ["z", "abc", "bcd"]
    await statements.finish(0)
    await statements.finish(2)
    assert await outcomes(callers) == list("ZABCD")


async def test_one_who_was_left_over_may_go_before_the_next_run(statements: Statements) -> None:
    callers = await statements.callers("ab")
    callers[1].cancel()
    await statements.finish(0, "A", LeftOverError())
    assert statements.batches == ["ab"]
    assert await callers[0] == "A"
    assert statements.orphans == []
    await statements.coalescer.close()


# ---- failures --------------------------------------------------------------------------------------------------------


async def test_a_failure_in_place_of_an_outcome_reaches_its_caller_only(statements: Statements) -> None:
    callers = await statements.callers("abc")
    error = BadEntryError()
    await statements.finish(0, "A", error, "C")
    assert await outcomes(callers) == ["A", error, "C"]
    assert statements.batches == ["abc"]


async def test_a_failure_that_concerns_all_reaches_all(statements: Statements) -> None:
    callers = await statements.callers("abc")
    error = StoreAwayError()
    await statements.fail(0, error)
    assert await outcomes(callers) == [error, error, error]
    assert statements.batches == ["abc"], "nothing is tried again"


async def test_after_any_other_failure_each_is_tried_alone_and_only_the_bad_one_fails(statements: Statements) -> None:
    callers = await statements.callers("abc")
    await statements.fail(0, BadEntryError("somebody"))
    assert statements.batches == ["abc", "a", "b"], "two under way, as always"
    await statements.finish(1)
    error = BadEntryError("b")
    await statements.fail(2, error)
    assert statements.batches == ["abc", "a", "b", "c"]
    await statements.finish(3)
    assert await outcomes(callers) == ["A", error, "C"]


async def test_entries_together_are_tried_again_together(statements: Statements) -> None:
    single = await statements.callers("a")
    other = await statements.callers("b")
    group = asyncio.create_task(statements.coalescer.submit_together("cd"))
    last = await statements.callers("e")
    await statements.finish(0)
    assert statements.batches == ["a", "b", "cde"]
    error = BadEntryError()
    await statements.fail(2, error)
    assert statements.batches == ["a", "b", "cde", "cd"]
    await statements.fail(3, error)
    assert statements.batches == ["a", "b", "cde", "cd", "e"]
    await statements.finish(1)
    await statements.finish(4)
    assert await outcomes([*single, *other, *last]) == ["A", "B", "E"]
    with pytest.raises(BadEntryError):
        await group


async def test_a_lone_entry_is_not_tried_twice(statements: Statements) -> None:
    callers = await statements.callers("a")
    error = BadEntryError()
    await statements.fail(0, error)
    assert await outcomes(callers) == [error]
    assert statements.batches == ["a"]


async def test_when_the_store_goes_away_among_lone_tries_the_rest_is_not_tried(statements: Statements) -> None:
    callers = await statements.callers("abcd")
    await statements.fail(0, BadEntryError())
    away = StoreAwayError()
    await statements.fail(1, away)
    await statements.finish(2)
    assert await outcomes(callers) == [away, "B", away, away]
    assert statements.batches == ["abcd", "a", "b"]


async def test_a_run_that_miscounts_fails_all_and_is_not_repeated(statements: Statements) -> None:
    callers = await statements.callers("abc")
    await statements.finish(0, "A", "B")
    heard = await outcomes(callers)
    assert [str(error) for error in heard] == ["a run of 3 entries gave 2 outcomes"] * 3
    assert statements.batches == ["abc"]


async def test_an_interrupted_run_leaves_its_callers_in_no_doubt_that_they_are_in_doubt(
    statements: Statements,
) -> None:
    callers = await statements.callers("ab")
    await statements.interrupt(0)
    assert [type(error) for error in await outcomes(callers)] == [BatchInterruptedError] * 2
    [after] = await statements.callers("c")
    await statements.finish(1)
    assert await after == "C"


# ---- callers who go --------------------------------------------------------------------------------------------------


async def test_one_who_goes_before_the_batch_leaves_drops_out(statements: Statements) -> None:
    callers = [*await statements.callers("a"), *await statements.callers("b"), *await statements.callers("cde")]
    callers[3].cancel()
    await settle()
    for number in range(3):
        await statements.finish(min(number, len(statements.batches) - 1))
    assert statements.batches == ["a", "b", "ce"]
    assert [type(heard) for heard in await outcomes(callers)] == [str, str, str, asyncio.CancelledError, str]
    assert statements.orphans == []


async def test_when_all_have_gone_nothing_runs(statements: Statements) -> None:
    callers = [*await statements.callers("a"), *await statements.callers("b"), *await statements.callers("cd")]
    for caller in callers[2:]:
        caller.cancel()
    await statements.finish(0)
    await statements.finish(1)
    assert statements.batches == ["a", "b"]
    await statements.coalescer.close()


async def test_one_who_goes_while_the_batch_is_under_way_leaves_an_orphan(statements: Statements) -> None:
    callers = await statements.callers("abc")
    callers[1].cancel()
    await statements.finish(0)
    assert [type(heard) for heard in await outcomes(callers)] == [str, asyncio.CancelledError, str]
    assert statements.orphans == [("b", "B")]


async def test_one_who_is_cancelled_after_the_answer_before_reading_it_leaves_an_orphan(
    statements: Statements,
) -> None:
    async def first_cancels_second() -> None:
        await statements.coalescer.submit("a")
        second.cancel()

    first = asyncio.create_task(first_cancels_second())
    second = asyncio.create_task(statements.coalescer.submit("b"))
    await settle()
    await statements.finish(0)
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert statements.orphans == [("b", "B")]


async def test_a_failure_leaves_no_orphan(statements: Statements) -> None:
    callers = await statements.callers("ab")
    callers[0].cancel()
    await statements.finish(0, BadEntryError(), "B")
    assert await callers[1] == "B"
    assert statements.orphans == []


async def test_a_suspect_whose_caller_has_gone_is_not_tried_again(statements: Statements) -> None:
    callers = await statements.callers("ab")
    callers[0].cancel()
    await statements.fail(0, BadEntryError())
    assert statements.batches == ["ab", "b"]
    await statements.finish(1)
    assert await callers[1] == "B"


async def test_a_group_with_a_failure_in_it_orphans_its_other_outcomes(statements: Statements) -> None:
    group = asyncio.create_task(statements.coalescer.submit_together("abc"))
    await settle()
    error = BadEntryError()
    await statements.finish(0, "A", error, "C")
    with pytest.raises(BadEntryError) as raised:
        await group
    assert raised.value is error
    assert statements.orphans == [("a", "A"), ("c", "C")]


# ---- closing ---------------------------------------------------------------------------------------------------------


async def test_closing_finishes_what_was_gathered_and_takes_nothing_more(statements: Statements) -> None:
    callers = await statements.callers("z")
    await statements.finish(0)
    callers += [*await statements.callers("a"), *await statements.callers("b"), *await statements.callers("c")]
    closing = asyncio.create_task(statements.coalescer.close())
    await settle()
    with pytest.raises(CoalescerClosedError):
        await statements.coalescer.submit("late")
    with pytest.raises(CoalescerClosedError):
        await statements.coalescer.submit_together(["late"])
    for number in (1, 2, 3):
        assert not closing.done()
        await statements.finish(number)
    await closing
    assert await outcomes(callers) == list("ZABC")


async def test_closing_when_idle_returns_at_once_however_often(statements: Statements) -> None:
    await statements.coalescer.close()
    await statements.coalescer.close()
    assert statements.batches == []
