"""Groups never exceed their limit, never stand still, and need each of their rules."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.model.explorer import Exploration, explore
from tests.model.group_model import (
    BACK,
    DEADLOCK,
    IDLE,
    OVERTAKEN,
    TOO_MANY,
    GroupModel,
    GroupRules,
    GroupScenario,
)

TWO = GroupScenario()
THREE = GroupScenario(transactions=3)
TWO_PLACES = GroupScenario(messages=4, limit=2)
TWO_GROUPS = GroupScenario(messages=4, groups=2, limit=2, verbs=("complete",))
DYING = GroupScenario(deaths=1)
SOUND = [TWO, THREE, TWO_PLACES, TWO_GROUPS, DYING]

ABLATIONS = [
    ("locks_groups", TWO, TOO_MANY),
    ("locks_groups", TWO, IDLE),
    ("counts_after_lock", TWO, TOO_MANY),
    ("counts_after_lock", TWO, IDLE),
    ("counts_after_lock", TWO, OVERTAKEN),
    ("admits_blocked_only", TWO, BACK),
    ("asks_again", TWO, IDLE),
    ("admits_with_change", DYING, IDLE),
    ("locks_in_order", TWO_GROUPS, DEADLOCK),
    ("blocked_need_no_group", TWO, DEADLOCK),
]


def explored(scenario: GroupScenario, rules: GroupRules, enough: frozenset[str] = frozenset()) -> Exploration:
    return explore(GroupModel(rules, scenario), enough)


@pytest.mark.parametrize("scenario", SOUND, ids=["two", "three", "two places", "two groups", "a death"])
def test_no_interleaving_breaks_a_promise(scenario: GroupScenario) -> None:
    seen = explored(scenario, GroupRules())
    assert seen.complete
    assert seen.paths == {}


@pytest.mark.parametrize(("rule", "scenario", "promise"), ABLATIONS, ids=[f"{rule}: {p}" for rule, _, p in ABLATIONS])
def test_without_a_rule_of_groups_a_promise_breaks(rule: str, scenario: GroupScenario, promise: str) -> None:
    assert promise in explored(scenario, GroupRules(**{rule: False}), frozenset({promise})).broken


def test_every_rule_of_groups_is_removed_once() -> None:
    assert {rule for rule, *_ in ABLATIONS} == {rule.name for rule in fields(GroupRules)}


def test_no_scenario_of_an_ablation_breaks_a_promise_under_all_rules() -> None:
    assert {scenario for _, scenario, _ in ABLATIONS} <= set(SOUND)
