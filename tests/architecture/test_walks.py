"""A walk over data is one test: its failure names all cases that break the rule."""

from __future__ import annotations

import pytest

from tests.walks import for_each


@for_each("number", [1, 2, 3, 4], lambda number: f"number {number}")
def walk(number: int, divisor: int) -> None:
    assert number % divisor == 0, "not divisible"


def test_a_failure_names_every_case_that_breaks_the_rule() -> None:
    with pytest.raises(pytest.fail.Exception) as failure:
        walk(divisor=2)
    assert [line.partition(": ")[0] for line in str(failure.value).splitlines() if "not divisible" in line] == [
        "number 1",
        "number 3",
    ]
    walk(divisor=1)


def test_any_other_error_ends_a_walk() -> None:
    with pytest.raises(ZeroDivisionError):
        walk(divisor=0)


@for_each(("one", "other"), [("a", "b"), ("c", "d")], " and ".join)
async def pairs(one: str, other: str) -> None:
    if one == "c":
        pytest.fail(f"{one} before {other}")


async def test_a_walk_may_be_asynchronous_and_have_several_names() -> None:
    with pytest.raises(pytest.fail.Exception, match="c and d: c before d"):
        await pairs()


@for_each("greeting", ["hello"])
@for_each("name", ["anna"])
def test_walks_may_be_stacked_and_have_fixtures(greeting: str, name: str, tmp_path: object) -> None:
    assert (greeting, name) == ("hello", "anna")
    assert tmp_path


def test_a_walk_without_a_case_is_refused() -> None:
    with pytest.raises(ValueError, match="no case of number"):
        for_each("number", [])
