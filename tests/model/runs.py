"""The table of runs: the chosen protocol must break no promise, and without any one rule it must break the named
one."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.explorer import STUCK, Exploration, explore
from tests.model.protocol_model import (
    COMPLETED_REDELIVERED,
    EFFECT_DENIED,
    LOSS_NOT_FINAL,
    PROMISE_BROKEN,
    STALE_SETTLEMENT,
    TWO_HOLDERS,
    ProtocolModel,
)
from tests.model.rules import Rules, Scenario

CHOSEN_RULES = Rules()


@dataclass(frozen=True)
class ModelRun:
    """One exploration. A sound run and a residual one see every state; an ablation may stop at what it expects."""

    name: str
    scenario: Scenario
    rules: Rules = CHOSEN_RULES
    breaks: frozenset[str] = frozenset()
    exhaustive: bool = True

    def explore(self) -> Exploration:
        enough = frozenset() if self.exhaustive else self.breaks
        return explore(ProtocolModel(self.rules, self.scenario), enough)

    def as_expected(self, seen: Exploration) -> bool:
        if self.exhaustive:
            return seen.complete and seen.broken == self.breaks
        return self.breaks <= seen.broken


QUIET = Scenario()
LONG_LOCK = Scenario(lock=2, lead=4)
FAULT = Scenario(faults=1)
TIMEOUT = Scenario(timeouts=1)
KEYED = Scenario(timeouts=1, keyed=True)
LONG_LOCK_TIMEOUT = Scenario(lock=2, lead=4, timeouts=1)

SOUND = (
    ModelRun("no mishap", QUIET),
    ModelRun("no mishap, longer lock", LONG_LOCK),
    ModelRun("no mishap, two sweepers", Scenario(lock=2, lead=4, sweepers=2)),
    ModelRun("no mishap, three receivers", Scenario(receivers=3)),
    ModelRun("no mishap, every detour", Scenario(reduced=False)),
    ModelRun("one fault", FAULT),
    ModelRun("one request abandoned", TIMEOUT),
    ModelRun("one receive repeated by its key", KEYED),
    ModelRun("no lock store, a fault, a request abandoned", Scenario(lead=1, redis=False, faults=1, timeouts=1)),
    ModelRun("one fault, no evidence read on settle", FAULT, Rules(settle_reads_evidence=False)),
    ModelRun(
        "one request abandoned, refused locks left to the sweep",
        Scenario(timeouts=1, verbs=("complete",)),
        Rules(refused_lock_is_freed=False),
    ),
)
"""The protocol as chosen, and without the two rules that only make it prompt."""

RESIDUAL = (
    ModelRun(
        "an old replica promoted",
        Scenario(lock=2, lead=4, faults=1, hazards=("stale",)),
        breaks=frozenset({TWO_HOLDERS, PROMISE_BROKEN}),
    ),
    ModelRun(
        "a clock jumps",
        Scenario(faults=1, hazards=("clocks",)),
        breaks=frozenset({TWO_HOLDERS, PROMISE_BROKEN}),
    ),
)
"""What is not survived whole: a lock may end before its promise. The fence holds all the same: nothing else breaks."""


def _without(rule: str, scenario: Scenario, *breaks: str) -> ModelRun:
    return ModelRun(f"without {rule}", scenario, Rules(**{rule: False}), frozenset(breaks), exhaustive=False)


ABLATIONS = (
    _without("settle_names_token", QUIET, STALE_SETTLEMENT, COMPLETED_REDELIVERED),
    _without("release_names_token", QUIET, TWO_HOLDERS),
    _without("evidence_names_generation", LONG_LOCK, TWO_HOLDERS),
    _without("deadline_clock_read_after", LONG_LOCK_TIMEOUT, TWO_HOLDERS),
    _without("bound_clock_read_before", QUIET, TWO_HOLDERS),
    _without("late_record_refused", FAULT, TWO_HOLDERS),
    _without("tombstones_kept", FAULT, EFFECT_DENIED),
    _without("tombstone_read_last", TIMEOUT, EFFECT_DENIED),
    _without("settle_checks_deadline", QUIET, LOSS_NOT_FINAL),
    _without("free_that_misses_looks_again", TIMEOUT, EFFECT_DENIED),
    _without("refused_lock_is_gone", TIMEOUT, LOSS_NOT_FINAL),
    _without("missing_record_is_silent", QUIET, TWO_HOLDERS),
    _without("keyed_claim_waits", KEYED, TWO_HOLDERS),
    ModelRun(
        "deadline in the lock store alone, a missing record is an expired one",
        QUIET,
        Rules(sql_keeps_deadline=False, missing_record_is_silent=False),
        frozenset({TWO_HOLDERS}),
        exhaustive=False,
    ),
    ModelRun(
        "deadline in the lock store alone, a missing record is silent",
        FAULT,
        Rules(sql_keeps_deadline=False, late_record_refused=False),
        frozenset({STUCK}),
        exhaustive=False,
    ),
)
"""One rule taken away (or the deadline moved to the lock store): the promise named must be seen broken."""

LONG = (
    ModelRun("no mishap, longer lock, every detour", Scenario(lock=2, lead=4, reduced=False)),
    ModelRun(
        "one request abandoned, no abandon, every detour", Scenario(timeouts=1, verbs=("complete",), reduced=False)
    ),
    ModelRun("one fault, longer lock", Scenario(lock=2, lead=4, faults=1)),
    ModelRun("one fault, two sweepers", Scenario(lock=2, lead=4, faults=1, sweepers=2)),
    ModelRun("one fault, three receivers", Scenario(receivers=3, faults=1)),
    ModelRun("two faults", Scenario(faults=2)),
    ModelRun("one request abandoned, longer lock", LONG_LOCK_TIMEOUT),
    ModelRun("one receive repeated by its key, longer lock", Scenario(lock=2, lead=4, timeouts=1, keyed=True)),
    ModelRun("a fault, a request abandoned", Scenario(faults=1, timeouts=1)),
    ModelRun(
        "a clock jumps, a request abandoned",
        Scenario(faults=1, timeouts=1, hazards=("clocks",)),
        breaks=frozenset({TWO_HOLDERS, PROMISE_BROKEN}),
    ),
)
"""Sound runs that take minutes, and a residual one."""
