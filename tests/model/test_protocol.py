"""The protocol breaks no promise, and each of its rules is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest

from tests.model.explorer import STUCK, explore
from tests.model.rules import Rules
from tests.model.runs import ABLATIONS, CHOSEN_RULES, LONG, RESIDUAL, SOUND, ModelRun

LARGE = (
    "no fault, three receivers",
    "no fault, every step",
    "one receive repeated by its key",
    "one request abandoned, refused locks wait for the sweep",
)
"""Sound runs with many states that vary a smaller one. They run at night."""


def _name(run: ModelRun) -> str:
    return run.name


def _check(run: ModelRun) -> None:
    seen = run.explore()
    allowed = "\n".join(f"{promise}:\n  " + "\n  ".join(path) for promise, path in seen.paths.items())
    assert run.as_expected(seen), f"{seen.states} states, complete: {seen.complete}\n{allowed}"


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=[pytest.mark.nightly] * (run.name in LARGE)) for run in SOUND], ids=_name
)
def test_breaks_no_promise(run: ModelRun) -> None:
    assert not run.breaks
    _check(run)


@pytest.mark.parametrize("run", RESIDUAL, ids=_name)
def test_breaks_what_is_documented_and_nothing_else(run: ModelRun) -> None:
    assert run.breaks
    assert run.exhaustive
    _check(run)


@pytest.mark.parametrize("run", ABLATIONS, ids=_name)
def test_a_missing_rule_breaks_the_promise_it_guards(run: ModelRun) -> None:
    assert run.breaks
    _check(run)


@pytest.mark.full
@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("run", LONG, ids=_name)
def test_larger_scenarios_break_what_is_documented(run: ModelRun) -> None:
    _check(run)


def test_every_rule_is_removed_once() -> None:
    removed = {rule.name for run in (*ABLATIONS, *SOUND) for rule in fields(Rules) if not getattr(run.rules, rule.name)}
    assert removed == {rule.name for rule in fields(Rules)}


def test_no_scenario_breaks_a_promise_under_all_rules() -> None:
    """So the promise that an ablation breaks is broken by the missing rule."""
    sound = {run.scenario for run in (*SOUND, *LONG) if run.rules == CHOSEN_RULES and not run.breaks}
    assert {run.scenario for run in ABLATIONS} <= sound


class CounterModel:
    """A model with known results: steps of one and two from 0 to 5, and a step from 3 to a state without a way out."""

    start = 0

    def steps(self, state: int) -> Iterator[tuple[str, int, str]]:
        if 0 <= state < 5:
            yield "one", state + 1, ""
            yield "two", min(state + 2, 5), "leapt over 5" if state == 4 else ""
        if state == 3:
            yield "fall", -1, ""
        if state == -1:
            yield "! rescue", 0, ""

    def broken(self, state: int) -> list[str]:
        return ["stood on 4"] if state == 4 else []

    def finished(self, state: int) -> bool:
        return state == 5


def test_the_explorer_visits_all_states_and_finds_the_shortest_paths() -> None:
    seen = explore(CounterModel())
    assert seen.complete
    assert (seen.states, seen.steps) == (7, 12)
    assert {promise: len(path) for promise, path in seen.paths.items()} == {
        "stood on 4": 2,
        "leapt over 5": 3,
        STUCK: 3,
    }


def test_the_explorer_stops_early_once_the_named_promises_are_broken() -> None:
    assert not explore(CounterModel(), frozenset({"stood on 4"})).complete
    assert explore(CounterModel(), frozenset({"never"})).complete
