"""One run of mutants: the fast tests once as they are, then the tests that run a function against each mutant of it."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import pytest

from tests.mutants.mistakes import Mutant
from tests.mutants.trial import Outcome, Ran, loaded_functions, record, try_out

SERVER_FIXTURE = "wanted"
"""Every fixture that lends a server uses this one."""
SLOW_MARKS = ("slow", "faults")
SERVER_STORES = {"postgresql", "mariadb", "redis"}
"""Parameters of tests that need a server."""

SLOWEST_SECONDS = 3.0
"""Of processor time that a test may take to be run again and again."""
TRIAL_SECONDS = 20.0
"""Of processor time that the tests of one mutant take together at most, when all pass."""


class MutationRun:
    """A plugin for pytest that runs mutants in the place of the tests that were collected."""

    def __init__(self, wanted: Sequence[Mutant], listed: Mapping[str, str], minutes: float) -> None:
        self.wanted = wanted
        self.listed = listed
        self.until = time.monotonic() + minutes * 60
        self.outcomes: dict[str, Outcome] = {}

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
        """Run all mutants, as far as the time allows."""
        print(f"{len(self.wanted)} mutants; running {len(session.items)} tests once without any", flush=True)
        for module in {mutant.module for mutant in self.wanted}:
            import_module(module)  # some are loaded by a test only, which is too late to plant a mistake in them
        functions, ran = loaded_functions(), record(session.items)
        print("".join(f"fails without a mutant, left out: {test}\n" for test in ran if not ran[test].passes), end="")
        gc.freeze()  # forks share what the collector does not touch
        items = {item.nodeid: item for item in session.items}
        for mutant in self.wanted:
            tests = [items[test] for test in tests_of(mutant, ran)]
            if not tests:
                outcome = Outcome.NOT_REACHED
            elif time.monotonic() > self.until:
                outcome = Outcome.NOT_RUN
            else:
                outcome = try_out(mutant, functions[mutant.place], tests)
            self._note(mutant, outcome)
        return True

    def _note(self, mutant: Mutant, outcome: Outcome) -> None:
        self.outcomes[str(mutant)] = outcome
        if outcome is Outcome.SURVIVED:
            print(f"survived: {mutant} ({self.listed.get(str(mutant), 'NOT LISTED')})", flush=True)
        elif outcome in (Outcome.TIMED_OUT, Outcome.BROKEN):
            print(f"{outcome.value}: {mutant}", flush=True)

    def report(self) -> bool:
        """Print what became of all. False where a survivor is not listed, a listed mutant is killed, or one is broken."""
        outcomes, counts = self.outcomes, Counter(self.outcomes.values())
        idle = Counter(one.place for one in self.wanted if outcomes.get(str(one)) is Outcome.NOT_REACHED)
        unlisted = [name for name in outcomes if outcomes[name] is Outcome.SURVIVED and name not in self.listed]
        outdated = [name for name in self.listed if outcomes.get(name) is Outcome.KILLED]
        print("".join(f"not reached: {place} ({number})\n" for place, number in idle.items()), end="")
        print("".join(f"listed, but killed: {name}\n" for name in outdated), end="")
        print(", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome))
        print(f"{len(unlisted)} of those that survived are not listed")
        return not unlisted and not outdated and not counts[Outcome.BROKEN]


def _is_fast(item: pytest.Item) -> bool:
    return (
        SERVER_FIXTURE not in getattr(item, "fixturenames", ())
        and SERVER_STORES.isdisjoint(_parameters(item))
        and not any(item.get_closest_marker(mark) for mark in SLOW_MARKS)
    )


def _parameters(item: pytest.Item) -> set[str]:
    """The plain texts among the parameters of a test: names of stores stand there so."""
    call = getattr(item, "callspec", None)
    return {value for value in call.params.values() if type(value) is str} if call else set()


def _function(item: pytest.Item) -> str:
    """The name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def tests_of(mutant: Mutant, ran: Mapping[str, Ran]) -> list[str]:
    """The fast tests that run the mutant's function, the fastest first, as many as a trial may take."""
    near = [test for test, one in ran.items() if one.passes and mutant.place in one.places]
    fast = [test for test in near if ran[test].seconds <= SLOWEST_SECONDS]
    return list(_within(TRIAL_SECONDS, sorted(fast, key=lambda test: ran[test].seconds), ran))


def _within(seconds: float, tests: Sequence[str], ran: Mapping[str, Ran]) -> Iterator[str]:
    for test in tests:
        seconds -= ran[test].seconds
        if seconds < 0:
            return
        yield test
