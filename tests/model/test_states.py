"""A message adds one version to a state and has one result, and each rule is needed for that."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.model.explorer import Exploration, explore
from tests.model.state_model import (
    GHOST,
    LOST_RESULT,
    OTHER_STATE,
    STALE_BASE,
    TWO_RESULTS,
    TWO_VERSIONS,
    StateModel,
    StateRules,
    StateScenario,
)

ONE_FAULT = StateScenario()
TWO_FAULTS = StateScenario(deliveries=3, faults=2)

ABLATIONS = [
    (("is_one_transaction",), LOST_RESULT),
    (("is_one_transaction", "stores_before_sending"), GHOST),
    (("names_messages",), TWO_VERSIONS),
    (("names_messages",), TWO_RESULTS),
    (("loads_before_message", "checks_duplicates"), OTHER_STATE),
    (("checks_duplicates",), OTHER_STATE),
    (("checks_version",), STALE_BASE),
    (("locks_before_look",), TWO_VERSIONS),
]


def explored(scenario: StateScenario, rules: StateRules, enough: frozenset[str] = frozenset()) -> Exploration:
    return explore(StateModel(rules, scenario), enough)


@pytest.mark.behaviour("S4.24")
@pytest.mark.parametrize("scenario", [ONE_FAULT, TWO_FAULTS], ids=["one fault", "two faults"])
def test_no_interleaving_breaks_a_promise(scenario: StateScenario) -> None:
    seen = explored(scenario, StateRules())
    assert seen.complete
    assert seen.paths == {}


@pytest.mark.parametrize(("rules", "promise"), ABLATIONS, ids=[f"{rules}: {promise}" for rules, promise in ABLATIONS])
def test_without_a_rule_of_states_a_promise_breaks(rules: tuple[str, ...], promise: str) -> None:
    removed = StateRules(**dict.fromkeys(rules, False))
    assert promise in explored(ONE_FAULT, removed, frozenset({promise})).broken


def test_every_rule_of_states_is_removed_once() -> None:
    assert {rule for rules, _ in ABLATIONS for rule in rules} == {rule.name for rule in fields(StateRules)}
