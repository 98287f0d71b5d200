"""A model of groups: transactions that let messages enter and leave groups, one statement after the other.

A transaction sees in each statement what was committed before the statement began, and what it did itself. It waits for
rows and groups that another one has locked. It may die between any two statements. A message is `""` (not sent yet) or
a letter and its group: available, locked, blocked, scheduled, gone (`x`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explorer import FAULT

TOO_MANY = "more messages in flight than the limit"
IDLE = "a place is free, a message is blocked, and no transaction is at work"
OVERTAKEN = "a message was admitted before a blocked one with a lower number"
BACK = "a message that had left is available"
DEADLOCK = "two transactions wait for each other"


@dataclass(frozen=True)
class GroupRules:
    """The rules of "Groups" in docs/protocol.md. `False` removes one."""

    locks_groups: bool = True
    """A transaction locks the groups that its messages enter or leave."""
    counts_after_lock: bool = True
    """It counts places in a statement that begins once it has the groups."""
    admits_blocked_only: bool = True
    """It admits a message only if the message is still blocked."""
    asks_again: bool = True
    """If a message was taken away in the meantime, it asks for the next one."""
    admits_with_change: bool = True
    """The change and the admission are one transaction."""
    locks_in_order: bool = True
    """Every transaction locks its groups in the same order."""
    blocked_need_no_group: bool = True
    """A transaction that has locked a message that was blocked before takes no group."""


@dataclass(frozen=True)
class GroupScenario:
    """How many transactions run at once, the messages and groups, the limit, how many transactions may die, and the verbs
    besides send."""

    transactions: int = 2
    messages: int = 3
    groups: int = 1
    limit: int = 1
    deaths: int = 0
    verbs: tuple[str, ...] = ("complete", "delay", "purge", "due", "cancel")


class Work(NamedTuple):
    """A transaction: its verb, its change of rows, the groups it still wants, its locks, and whether it has ended them.

    `heads` is what its last count has found, None before the count.
    """

    verb: str
    change: tuple[tuple[int, str], ...]
    wanted: tuple[int, ...]
    rows: frozenset[int]
    groups: frozenset[int]
    seen: tuple[str, ...] | None
    heads: tuple[int, ...] | None


class State(NamedTuple):
    """The committed messages, the next number, the transactions, and the deaths that may still happen."""

    rows: tuple[str, ...]
    next: int
    works: tuple[Work, ...]
    deaths: int


ENDS = {"complete": ("l", "x"), "delay": ("l", "s"), "purge": ("a", "x"), "due": ("s", "b")}
"""The verbs that let a message leave or enter its group: the state in which they find it, and the one they give it."""


class GroupModel:
    """Every interleaving of these transactions."""

    def __init__(self, rules: GroupRules, scenario: GroupScenario) -> None:
        self.rules, self.scenario = rules, scenario
        self.start = State(("",) * scenario.messages, 0, (), scenario.deaths)

    def steps(self, state: State) -> Iterator[tuple[str, State, str]]:
        yield from self._single_rows(state)
        if len(state.works) < self.scenario.transactions:
            yield from self._begin(state)
        for index, work in enumerate(state.works):
            others = state._replace(works=state.works[:index] + state.works[index + 1 :])
            yield from self._continue(others, work)
            if state.deaths:
                yield f"{FAULT}{work.verb} dies", others._replace(deaths=state.deaths - 1), ""

    def _single_rows(self, state: State) -> Iterator[tuple[str, State, str]]:
        """Claims and abandons change one row and no group."""
        for number, row in enumerate(state.rows):
            if row[:1] in ("a", "l") and _is_free(state, number):
                verb, letter = ("claim", "l") if row[0] == "a" else ("abandon", "a")
                yield f"{verb} {number}", _with_row(state, number, letter + row[1]), ""

    def _begin(self, state: State) -> Iterator[tuple[str, State, str]]:
        """The first statement of each verb: it locks messages and changes them."""
        for group in range(self.scenario.groups):
            if state.next < self.scenario.messages:
                work = self._work(state, "send", ((state.next, f"b{group}"),), (group,))
                yield f"{FAULT}send {state.next}", _with_work(state._replace(next=state.next + 1), work), ""
        for verb, (before, after) in ENDS.items():
            if verb not in self.scenario.verbs:
                continue
            found = [n for n, row in enumerate(state.rows) if row[:1] == before and _is_free(state, n)]
            for number in found:
                group = state.rows[number][1]
                change = ((number, "x" if after == "x" else after + group),)
                work = self._work(state, verb, change, (int(group),))
                yield f"{FAULT if verb in ('delay', 'purge') else ''}{verb} {number}", _with_work(state, work), ""
            if len(found) > 1 and verb == "complete":
                yield from self._begin_batch(state, found[0], found[1])
        for number, row in enumerate(state.rows):
            if row[:1] == "b" and _is_free(state, number) and "cancel" in self.scenario.verbs:
                wanted = () if self.rules.blocked_need_no_group else (int(row[1]),)
                work = self._work(state, "cancel", ((number, "x"),), wanted)
                yield f"{FAULT}cancel {number}", _with_work(state, work), ""

    def _begin_batch(self, state: State, *numbers: int) -> Iterator[tuple[str, State, str]]:
        """Complete two messages in one transaction."""
        groups = tuple(sorted({int(state.rows[number][1]) for number in numbers}))
        for order in (groups,) if self.rules.locks_in_order else {groups, groups[::-1]}:
            work = self._work(state, "complete", tuple((number, "x") for number in numbers), order)
            yield f"complete {numbers}", _with_work(state, work), ""

    def _work(self, state: State, verb: str, change: tuple[tuple[int, str], ...], wanted: tuple[int, ...]) -> Work:
        seen = None if self.rules.counts_after_lock else state.rows
        return Work(verb, change, wanted, frozenset(number for number, _ in change), frozenset(), seen, None)

    def _continue(self, others: State, work: Work) -> Iterator[tuple[str, State, str]]:
        """The next statement of a transaction, unless it has to wait."""
        if not self.rules.admits_with_change and work.change and work.verb != "send":
            committed = others._replace(rows=_changed(others.rows, work.change))
            later = work._replace(verb="admit", change=(), rows=frozenset())
            yield f"{work.verb} commits alone", _with_work(committed, later), ""
        elif work.wanted:
            group, *rest = work.wanted
            if not self.rules.locks_groups or all(group not in other.groups for other in others.works):
                locked = work._replace(wanted=tuple(rest), groups=work.groups | {group})
                yield f"{work.verb} locks group {group}", _with_work(others, locked), ""
        elif work.verb == "cancel":
            yield "cancel commits", others._replace(rows=_changed(others.rows, work.change)), ""
        elif work.heads is None:
            yield f"{work.verb} counts", _with_work(others, work._replace(heads=self._heads(others, work))), ""
        elif all(_is_free(others, number) or number in work.rows for number in work.heads):
            yield from self._admit(others, work, work.heads)

    def _heads(self, others: State, work: Work) -> tuple[int, ...]:
        """The first blocked messages of the groups that have free places, as the statement sees them."""
        rows = _changed(others.rows if work.seen is None else work.seen, work.change)
        heads: list[int] = []
        for group in sorted(work.groups):
            taken = sum(row in (f"a{group}", f"l{group}") for row in rows)
            blocked = [number for number, row in enumerate(rows) if row == f"b{group}"]
            heads += blocked[: max(0, self.scenario.limit - taken)]
        return tuple(heads)

    def _admit(self, others: State, work: Work, heads: tuple[int, ...]) -> Iterator[tuple[str, State, str]]:
        """Admit the heads and commit, or ask again if one was taken away."""
        rows = _changed(others.rows, work.change)
        admitted = tuple(n for n in heads if rows[n][:1] == "b" or not self.rules.admits_blocked_only)
        change = (*work.change, *((number, f"a{rows[number][1:] or '0'}") for number in admitted))
        if len(admitted) < len(heads) and self.rules.asks_again:
            again = work._replace(change=change, rows=work.rows | frozenset(admitted), heads=None)
            yield f"{work.verb} asks again", _with_work(others, again), ""
            return
        after = _changed(others.rows, change)
        yield f"{work.verb} commits", others._replace(rows=after), _judge(others.rows, after)

    def broken(self, state: State) -> Iterator[str]:
        for group in range(self.scenario.groups):
            taken = sum(row in (f"a{group}", f"l{group}") for row in state.rows)
            if taken > self.scenario.limit:
                yield TOO_MANY
            if taken < self.scenario.limit and f"b{group}" in state.rows and not state.works:
                yield IDLE
        if self._waits_in_a_circle(state):
            yield DEADLOCK

    def _waits_in_a_circle(self, state: State) -> bool:
        """Whether every transaction of a circle waits for a lock of the next one."""
        waits: dict[int, int] = {}
        for index, work in enumerate(state.works):
            for other_index, other in enumerate(state.works):
                if other_index == index:
                    continue
                group = work.wanted[:1]
                if (group and group[0] in other.groups) or (not group and set(work.heads or ()) & other.rows):
                    waits[index] = other_index
        return any(waits.get(waits.get(index, -1), -2) == index for index in waits)

    def finished(self, state: State) -> bool:
        return not state.works and all(row in ("", "x") for row in state.rows)


def _judge(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """Return the promise that an admission breaks."""
    for number, row in enumerate(after):
        if row[:1] != "a" or before[number] == row:
            continue
        if before[number] == "x":
            return BACK
        if any(after[lower] == f"b{row[1]}" == before[lower] for lower in range(number)):
            return OVERTAKEN
    return ""


def _changed(rows: tuple[str, ...], change: tuple[tuple[int, str], ...]) -> tuple[str, ...]:
    new = dict(change)
    return tuple(new.get(number, row) for number, row in enumerate(rows))


def _is_free(state: State, number: int) -> bool:
    return all(number not in work.rows for work in state.works)


def _with_row(state: State, number: int, row: str) -> State:
    return state._replace(rows=_changed(state.rows, ((number, row),)))


def _with_work(state: State, work: Work) -> State:
    return state._replace(works=tuple(sorted((*state.works, work), key=repr)))
