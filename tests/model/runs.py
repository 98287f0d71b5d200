"""The table of runs: the protocol breaks no promise, and without any one rule it breaks the promise named there."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.explorer import STUCK, Exploration, explore
from tests.model.protocol_model import (
    COMPLETED_REDELIVERED,
    EFFECT_DENIED,
    LOSS_NOT_FINAL,
    OUTLIVES_CHANGE,
    PROMISE_BROKEN,
    STALE_SETTLEMENT,
    TWO_HOLDERS,
    ProtocolModel,
)
from tests.model.rules import Rules, Scenario

CHOSEN_RULES = Rules()


@dataclass(frozen=True)
class ModelRun:
    """One exploration. An exhaustive run visits every state. An ablation may stop once it has seen what it expects."""

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
CHANGE = Scenario(lock=2, lead=4, change=1, verbs=("complete",))
CHANGE_FAULT = Scenario(lock=2, lead=4, change=1, verbs=("complete",), faults=1)
CHANGE_TIMEOUT = Scenario(lock=2, lead=4, change=1, verbs=("complete",), timeouts=1)

SOUND = (
    ModelRun("no fault", QUIET),
    ModelRun("no fault, longer lock", LONG_LOCK),
    ModelRun("no fault, two sweepers", Scenario(lock=2, lead=4, sweepers=2)),
    ModelRun("no fault, three receivers", Scenario(receivers=3)),
    ModelRun("no fault, every step", Scenario(reduced=False)),
    ModelRun("one fault", FAULT),
    ModelRun("one request abandoned", TIMEOUT),
    ModelRun("one receive repeated by its key", KEYED),
    ModelRun("no lock store, a fault, a request abandoned", Scenario(lead=1, redis=False, faults=1, timeouts=1)),
    ModelRun("locks are changed", CHANGE),
    ModelRun("locks are changed, no lock store", Scenario(lock=2, lead=2, change=1, redis=False, verbs=("complete",))),
    ModelRun("one fault, settle does not read the record", FAULT, Rules(settle_reads_expired_record=False)),
    ModelRun(
        "one request abandoned, refused locks wait for the sweep",
        Scenario(timeouts=1, verbs=("complete",)),
        Rules(lock_lost_releases_row=False),
    ),
)
"""The protocol, and the protocol without the two rules that only make lock-lost prompt."""

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
"""Faults after which a lock may end before its promise. The fence still holds, so nothing else breaks."""


def _without(rule: str, scenario: Scenario, *breaks: str) -> ModelRun:
    return ModelRun(f"without {rule}", scenario, Rules(**{rule: False}), frozenset(breaks), exhaustive=False)


ABLATIONS = (
    _without("settle_names_token", QUIET, STALE_SETTLEMENT, COMPLETED_REDELIVERED),
    _without("release_names_token", QUIET, TWO_HOLDERS),
    _without("expired_record_names_generation", LONG_LOCK, TWO_HOLDERS),
    _without("deadline_clock_read_after", LONG_LOCK_TIMEOUT, TWO_HOLDERS),
    _without("bound_clock_read_before", QUIET, TWO_HOLDERS),
    _without("late_record_extends_nothing", FAULT, TWO_HOLDERS),
    _without("tombstones_kept", FAULT, EFFECT_DENIED),
    _without("tombstone_read_last", TIMEOUT, EFFECT_DENIED),
    _without("settle_checks_deadline", QUIET, LOSS_NOT_FINAL),
    _without("missed_release_reads_again", TIMEOUT, EFFECT_DENIED),
    _without("lock_lost_is_final", TIMEOUT, LOSS_NOT_FINAL),
    _without("missing_record_proves_nothing", QUIET, TWO_HOLDERS),
    _without("keyed_claim_waits", KEYED, TWO_HOLDERS),
    _without("change_in_sql_without_records", CHANGE, PROMISE_BROKEN),
    _without("change_names_generation", CHANGE_TIMEOUT, PROMISE_BROKEN),
    _without("change_raises_generation", CHANGE_FAULT, OUTLIVES_CHANGE),
    _without("change_counts_from_record", CHANGE_TIMEOUT, TWO_HOLDERS),
    _without("change_records_in_time", CHANGE, PROMISE_BROKEN),
    _without("change_needs_record", CHANGE_FAULT, OUTLIVES_CHANGE),
    _without("holder_counts_on_change", CHANGE_TIMEOUT, TWO_HOLDERS),
    ModelRun(
        "deadline in the lock store alone, a missing record is an expired one",
        QUIET,
        Rules(sql_keeps_deadline=False, missing_record_proves_nothing=False),
        frozenset({TWO_HOLDERS}),
        exhaustive=False,
    ),
    ModelRun(
        "deadline in the lock store alone, a missing record proves nothing",
        FAULT,
        Rules(sql_keeps_deadline=False, late_record_extends_nothing=False),
        frozenset({STUCK}),
        exhaustive=False,
    ),
)
"""Runs without one rule, or with the deadline in the lock store. Each must break the named promise."""

LONG = (
    ModelRun("locks are changed, one fault", CHANGE_FAULT),
    ModelRun("locks are changed, one request abandoned", CHANGE_TIMEOUT),
    ModelRun("no fault, longer lock, every step", Scenario(lock=2, lead=4, reduced=False)),
    ModelRun("one request abandoned, no abandon, every step", Scenario(timeouts=1, verbs=("complete",), reduced=False)),
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
"""Runs that take minutes."""
