"""One run of mutants: the fast tests once as they are, then the tests that run a function against each mutant of it."""

from __future__ import annotations

import gc
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import pytest

from tests.mutants.mutations import Mutant
from tests.mutants.trial import BaselineResult, TrialOutcome, loaded_functions, run_baseline, run_trial

SERVER_FIXTURE = "require_server"
"""Every fixture that lends a server uses this one."""
SLOW_MARKS = ("slow", "faults")
SERVER_STORES = {"postgresql", "mariadb", "redis"}
"""Words in the parameters of tests that need a server."""
WORD = re.compile(r"[a-z]+")

SLOWEST_SECONDS = 3.0
"""Of processor time that a test may take to be run again and again."""
TRIAL_SECONDS = 20.0
"""Of processor time that the tests of one mutant take together at most, when all pass."""


class MutationRun:
    """A plugin for pytest that runs mutants in the place of the tests that were collected."""

    def __init__(self, mutants: Sequence[Mutant], listed: Mapping[str, str], minutes: float) -> None:
        self.mutants = mutants
        self.listed = listed
        self.deadline = time.monotonic() + minutes * 60
        self.outcomes: dict[str, TrialOutcome] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what needs a server, is known to be slow, or runs on the store in memory as well."""
        in_memory = {_function(item) for item in items if "memory" in _parameters(item)}
        items[:] = [
            item
            for item in items
            if _is_fast(item) and not ("sqlite" in _parameters(item) and _function(item) in in_memory)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all mutants, as far as the time allows. Without a module of tests, mutants would survive by mistake."""
        if session.testsfailed:
            raise session.Interrupted("a module of tests cannot be loaded")
        print(f"{len(self.mutants)} mutants; running {len(session.items)} tests once without any", flush=True)
        for module in {mutant.module for mutant in self.mutants}:
            import_module(module)  # some are loaded by a test only, which is too late to plant a mistake in them
        functions, baseline = loaded_functions(), run_baseline(session.items)
        print(
            "".join(f"fails without a mutant, left out: {test}\n" for test in baseline if not baseline[test].passes),
            end="",
        )
        gc.freeze()  # forks share what the collector does not touch
        items = {item.nodeid: item for item in session.items}
        for mutant in self.mutants:
            tests = [items[test] for test in tests_of(mutant, baseline)]
            if not tests:
                outcome = TrialOutcome.NOT_REACHED
            elif time.monotonic() > self.deadline:
                outcome = TrialOutcome.NOT_RUN
            else:
                outcome = run_trial(mutant, functions[mutant.function_id], tests)
            self._note(mutant, outcome)
        return True

    def _note(self, mutant: Mutant, outcome: TrialOutcome) -> None:
        self.outcomes[str(mutant)] = outcome
        if outcome is TrialOutcome.SURVIVED:
            print(f"survived: {mutant} ({self.listed.get(str(mutant), 'NOT LISTED')})", flush=True)
        elif outcome in (TrialOutcome.TIMED_OUT, TrialOutcome.BROKEN):
            print(f"{outcome.value}: {mutant}", flush=True)

    def unfinished_modules(self) -> set[str]:
        """The modules of which a mutant was not run, is broken, or survived without being listed."""
        return {
            mutant.module
            for mutant in self.mutants
            if (outcome := self.outcomes.get(str(mutant), TrialOutcome.NOT_RUN))
            in (TrialOutcome.NOT_RUN, TrialOutcome.BROKEN)
            or (outcome is TrialOutcome.SURVIVED and str(mutant) not in self.listed)
        }

    def report(self) -> bool:
        """Print what became of all. False where a survivor is not listed, a listed mutant is killed, or one is broken."""
        outcomes, counts = self.outcomes, Counter(self.outcomes.values())
        idle = Counter(
            mutant.function_id for mutant in self.mutants if outcomes.get(str(mutant)) is TrialOutcome.NOT_REACHED
        )
        unlisted = [name for name in outcomes if outcomes[name] is TrialOutcome.SURVIVED and name not in self.listed]
        outdated = [name for name in self.listed if outcomes.get(name) is TrialOutcome.KILLED]
        print("".join(f"not reached: {function} ({number})\n" for function, number in idle.items()), end="")
        print("".join(f"listed, but killed: {name}\n" for name in outdated), end="")
        print(", ".join(f"{counts[outcome]} {outcome.value}" for outcome in TrialOutcome))
        print(f"{len(unlisted)} of those that survived are not listed")
        return not unlisted and not outdated and not counts[TrialOutcome.BROKEN]


def _is_fast(item: pytest.Item) -> bool:
    return (
        SERVER_FIXTURE not in getattr(item, "fixturenames", ())
        and SERVER_STORES.isdisjoint(_parameters(item))
        and not any(item.get_closest_marker(mark) for mark in SLOW_MARKS)
    )


def _parameters(item: pytest.Item) -> set[str]:
    """The words of the texts among the parameters of a test: stores are named there, as in `redis locks`."""
    call = getattr(item, "callspec", None)
    texts = [value for value in call.params.values() if type(value) is str] if call else []
    return {word for text in texts for word in WORD.findall(text)}


def _function(item: pytest.Item) -> str:
    """The name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def tests_of(mutant: Mutant, baseline: Mapping[str, BaselineResult]) -> list[str]:
    """The fast tests that run the mutant's function, the fastest first, as many as a trial may take."""
    covering = [test for test, one in baseline.items() if one.passes and mutant.function_id in one.function_ids]
    fast = [test for test in covering if baseline[test].seconds <= SLOWEST_SECONDS]
    return list(_within(TRIAL_SECONDS, sorted(fast, key=lambda test: baseline[test].seconds), baseline))


def _within(seconds: float, tests: Sequence[str], baseline: Mapping[str, BaselineResult]) -> Iterator[str]:
    for test in tests:
        seconds -= baseline[test].seconds
        if seconds < 0:
            return
        yield test
