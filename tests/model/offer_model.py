"""A model of synchronous sends: a sender, its client that repeats, receivers, and the one row of the message.

The row is `-` (not stored), offered, locked, completed, removed, or `stored`: available again, which no rule allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explorer import FAULT

FALSE_YES = "the sender heard of a completion that did not happen"
FALSE_NO = "the sender heard that the message was not completed, and it was or still can be"
LEFT_BEHIND = "a message is stored after its sender heard that nothing is"
SECOND_MESSAGE = "one send stored two messages"

MAX_DELIVERIES = 3


@dataclass(frozen=True)
class OfferRules:
    """The rules of "Synchronous sends" in docs/protocol.md. `False` removes one."""

    ends_remove: bool = True
    """Every end of a lock but a completion removes the message."""
    withdraws: bool = True
    """A sender that waits no longer takes the message back before it answers."""
    withdrawal_decides: bool = True
    """If there is no message to take back, the recorded outcome is the answer."""
    looks_again: bool = True
    """The sender reads the outcome from time to time, even without a wake-up."""
    offers_end: bool = True
    """A message that no receiver has taken is removed after its time."""
    attempt_with_message: bool = True
    """The attempt is recorded in the transaction that stores the message."""


@dataclass(frozen=True)
class OfferScenario:
    """The receivers, the deaths of processes, the wake-ups and answers that get lost, and whether the client repeats."""

    receivers: int = 2
    deaths: int = 1
    lost_wake_ups: int = 1
    lost_answers: int = 1
    repeats: bool = True


class State(NamedTuple):
    """The row with its lock, what the sender does or has answered, and the tokens that receivers hold (0: none)."""

    row: str
    token: int
    lock_lasts: bool
    offer_lasts: bool
    is_known: bool
    sender: str
    wake_up: bool
    held: tuple[int, ...]
    stored: int
    deaths: int
    lost_wake_ups: int
    lost_answers: int


class OfferModel:
    """Every interleaving of a synchronous send."""

    def __init__(self, rules: OfferRules, scenario: OfferScenario) -> None:
        self.rules, self.scenario = rules, scenario
        losses = (scenario.deaths, scenario.lost_wake_ups, scenario.lost_answers)
        none_held = (0,) * scenario.receivers
        self.start = State("-", 0, False, False, False, "ready", False, none_held, 0, *losses)

    def steps(self, state: State) -> Iterator[tuple[str, State, str]]:
        yield from self._send(state)
        yield from self._wait(state)
        for receiver, token in enumerate(state.held):
            yield from self._settle(state, receiver, token) if token else self._claim(state, receiver)
        yield from self._time(state)

    def _send(self, state: State) -> Iterator[tuple[str, State, str]]:
        """The sender stores the message, or its client repeats the request after the sender has died."""
        if state.sender != "ready" and not (state.sender == "dead" and self.scenario.repeats):
            return
        if state.is_known:
            yield "the repeat finds the attempt", state._replace(sender="waiting"), ""
            return
        stored = state._replace(
            row="offered",
            offer_lasts=True,
            is_known=self.rules.attempt_with_message,
            sender="waiting",
            stored=state.stored + 1,
        )
        yield "store", stored, SECOND_MESSAGE if state.stored else ""

    def _wait(self, state: State) -> Iterator[tuple[str, State, str]]:
        if state.sender not in ("waiting", "leaving"):
            return
        if state.deaths:
            yield f"{FAULT}the sender dies", state._replace(sender="dead", wake_up=False, deaths=state.deaths - 1), ""
        if state.sender == "leaving":
            yield from self._withdraw(state)
            return
        if state.row in ("completed", "removed") and (state.wake_up or self.rules.looks_again):
            answered = state._replace(sender="yes" if state.row == "completed" else "no", wake_up=False)
            yield "read the outcome", answered, ""
            if state.lost_answers:
                lost = answered._replace(sender="dead", lost_answers=state.lost_answers - 1)
                yield f"{FAULT}the answer is lost", lost, ""
        if self.rules.looks_again:
            yield "wait no longer", state._replace(sender="leaving"), ""

    def _withdraw(self, state: State) -> Iterator[tuple[str, State, str]]:
        if not self.rules.withdraws:
            yield "give up", state._replace(sender="no"), ""
        elif state.row in ("offered", "locked"):
            yield "withdraw", state._replace(row="removed", lock_lasts=False, sender="no"), ""
        elif self.rules.withdrawal_decides:
            yield "withdraw nothing, and read", state._replace(sender="waiting"), ""
        else:
            yield "withdraw nothing", state._replace(sender="no"), ""

    def _claim(self, state: State, receiver: int) -> Iterator[tuple[str, State, str]]:
        is_claimable = (state.row == "offered" and state.offer_lasts) or state.row == "stored"
        if is_claimable and state.token < MAX_DELIVERIES:
            claimed = state._replace(row="locked", token=state.token + 1, lock_lasts=True)
            yield f"{receiver} claims", _holding(claimed, receiver, claimed.token), ""
            if state.deaths:
                yield f"{FAULT}{receiver} claims and dies", claimed._replace(deaths=state.deaths - 1), ""

    def _settle(self, state: State, receiver: int, token: int) -> Iterator[tuple[str, State, str]]:
        left = _holding(state, receiver, 0)
        holds = state.row == "locked" and state.token == token and state.lock_lasts
        completed = left._replace(row="completed", wake_up=True)
        yield f"{receiver} completes", completed if holds else left, ""
        yield f"{receiver} abandons", self._ended(left) if holds else left, ""
        if state.deaths:
            yield f"{FAULT}{receiver} dies", left._replace(deaths=state.deaths - 1), ""

    def _time(self, state: State) -> Iterator[tuple[str, State, str]]:
        if state.row == "locked":
            if state.lock_lasts:
                yield "the lock runs out", state._replace(lock_lasts=False), ""
            else:
                yield "a sweep ends the lock", self._ended(state), ""
        if state.row == "offered":
            if state.offer_lasts:
                yield "the offer runs out", state._replace(offer_lasts=False), ""
            elif self.rules.offers_end:
                yield "a sweep ends the offer", state._replace(row="removed", wake_up=True), ""
        if state.wake_up and state.lost_wake_ups:
            lost = state._replace(wake_up=False, lost_wake_ups=state.lost_wake_ups - 1)
            yield f"{FAULT}the wake-up is lost", lost, ""

    def _ended(self, state: State) -> State:
        """A lock ends without a completion."""
        row = "removed" if self.rules.ends_remove else "stored"
        return state._replace(row=row, lock_lasts=False, wake_up=True)

    def broken(self, state: State) -> Iterator[str]:
        if state.sender == "yes" and state.row != "completed":
            yield FALSE_YES
        if state.sender == "no" and state.row != "removed":
            yield FALSE_NO
        if state.sender == "no" and state.row == "stored":
            yield LEFT_BEHIND

    def finished(self, state: State) -> bool:
        has_heard = state.sender in ("yes", "no") or (state.sender == "dead" and not self.scenario.repeats)
        return has_heard and state.row in ("completed", "removed") and not any(state.held)


def _holding(state: State, receiver: int, token: int) -> State:
    return state._replace(held=(*state.held[:receiver], token, *state.held[receiver + 1 :]))
