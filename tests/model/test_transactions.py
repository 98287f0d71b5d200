"""A transaction takes effect as a whole or not at all, and needs each of its rules."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.model.explorer import Exploration, explore
from tests.model.transaction_model import (
    GHOST,
    LIED,
    ORPHAN,
    PART,
    REFUSED,
    TransactionModel,
    TransactionRules,
    TransactionScenario,
)

ONE = TransactionScenario()
RENEWED = TransactionScenario(deadline=2, renewals=2, commits=1, sends=0, rollbacks=0)
CHANGED = TransactionScenario(deadline=2, lock=2, renewals=1, changes=1, commits=1, sends=0, rollbacks=0, outside=0)
TWO = TransactionScenario(messages=2, commits=1, renewals=0, outside=1)
SOUND = [ONE, RENEWED, CHANGED, TWO]

ABLATIONS = [
    ("commit_is_one", TWO, GHOST),
    ("commit_is_one", TWO, PART),
    ("commit_locks", ONE, PART),
    ("join_locks", ONE, ORPHAN),
    ("rollback_is_one", ONE, PART),
    ("outcome_kept", ONE, LIED),
    ("join_extends", RENEWED, REFUSED),
    ("join_raises", ONE, REFUSED),
    ("outside_looks", ONE, REFUSED),
    ("outside_names_generation", RENEWED, REFUSED),
    ("evidence_after_promises", RENEWED, REFUSED),
    ("change_looks", CHANGED, REFUSED),
    ("change_names_generation", CHANGED, REFUSED),
]


def explored(
    scenario: TransactionScenario, rules: TransactionRules, enough: frozenset[str] = frozenset()
) -> Exploration:
    return explore(TransactionModel(rules, scenario), enough)


@pytest.mark.parametrize("scenario", SOUND, ids=["one message", "renewals", "exact renewals", "two messages"])
def test_no_interleaving_breaks_a_promise(scenario: TransactionScenario) -> None:
    seen = explored(scenario, TransactionRules())
    assert seen.complete
    assert seen.paths == {}


@pytest.mark.parametrize(("rule", "scenario", "promise"), ABLATIONS, ids=[f"{rule}: {p}" for rule, _, p in ABLATIONS])
def test_without_a_rule_of_transactions_a_promise_breaks(
    rule: str, scenario: TransactionScenario, promise: str
) -> None:
    assert promise in explored(scenario, TransactionRules(**{rule: False}), frozenset({promise})).broken


def test_every_rule_of_transactions_is_removed_once() -> None:
    assert {rule for rule, *_ in ABLATIONS} == {rule.name for rule in fields(TransactionRules)}


def test_no_scenario_of_an_ablation_breaks_a_promise_under_all_rules() -> None:
    assert {scenario for _, scenario, _ in ABLATIONS} <= set(SOUND)
