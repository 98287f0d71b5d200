"""The sender of a synchronous send hears the truth, nothing stays that it was told is gone, and each rule is needed."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.model.explorer import STUCK, Exploration, explore
from tests.model.offer_model import (
    FALSE_NO,
    LEFT_BEHIND,
    SECOND_MESSAGE,
    OfferModel,
    OfferRules,
    OfferScenario,
)

ONE_DEATH = OfferScenario()
TWO_DEATHS = OfferScenario(deaths=2)
NO_REPEAT = OfferScenario(repeats=False)
NO_RECEIVER = OfferScenario(receivers=0, repeats=False)
SOUND = [ONE_DEATH, TWO_DEATHS, NO_REPEAT, NO_RECEIVER]

ABLATIONS = [
    ("ends_remove", ONE_DEATH, STUCK),
    ("withdraws", ONE_DEATH, FALSE_NO),
    ("withdrawal_decides", ONE_DEATH, FALSE_NO),
    ("looks_again", ONE_DEATH, STUCK),
    ("offers_end", NO_RECEIVER, STUCK),
    ("attempt_with_message", ONE_DEATH, SECOND_MESSAGE),
]


def explored(scenario: OfferScenario, rules: OfferRules, enough: frozenset[str] = frozenset()) -> Exploration:
    return explore(OfferModel(rules, scenario), enough)


@pytest.mark.parametrize("scenario", SOUND, ids=["one death", "two deaths", "no repeat", "no receiver"])
def test_no_interleaving_deceives_the_sender(scenario: OfferScenario) -> None:
    seen = explored(scenario, OfferRules())
    assert seen.complete
    assert seen.paths == {}


@pytest.mark.parametrize(("rule", "scenario", "promise"), ABLATIONS, ids=[f"{rule}: {p}" for rule, _, p in ABLATIONS])
def test_without_a_rule_of_synchronous_sends_a_promise_breaks(rule: str, scenario: OfferScenario, promise: str) -> None:
    enough = frozenset() if promise == STUCK else frozenset({promise})
    assert promise in explored(scenario, OfferRules(**{rule: False}), enough).broken


def test_a_message_that_is_given_back_outlives_a_sender_that_only_gives_up() -> None:
    rules = OfferRules(ends_remove=False, withdraws=False)
    assert LEFT_BEHIND in explored(ONE_DEATH, rules, frozenset({LEFT_BEHIND})).broken


def test_every_rule_of_synchronous_sends_is_removed_once() -> None:
    assert {rule for rule, *_ in ABLATIONS} == {rule.name for rule in fields(OfferRules)}


def test_no_scenario_of_an_ablation_deceives_the_sender_under_all_rules() -> None:
    assert {scenario for _, scenario, _ in ABLATIONS} <= set(SOUND)
