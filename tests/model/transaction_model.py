"""A model of open transactions: joins, commits, rollbacks, and all that may happen to their messages meanwhile.

Each message is locked by one receiver under one token. The store runs SQL transactions one after the other. A request
has up to two of them, and anything may happen in between, also the end of the request: its client then knows nothing.
Time passes in ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explorer import FAULT

PART = "a part of the members took effect"
GHOST = "a member took effect without a commit"
REFUSED = "a commit in time is refused, though no administrator interfered"
LIED = "a client was told another outcome"
ORPHAN = "a member belongs to a transaction that has ended"


@dataclass(frozen=True)
class TransactionRules:
    """The rules of "Open transactions" in docs/protocol.md. `False` removes one."""

    commit_is_one: bool = True
    """All members take effect in one SQL transaction."""
    commit_locks: bool = True
    """A commit asks whether the transaction is open in the SQL transaction in which it acts."""
    join_locks: bool = True
    """So does a send that joins."""
    rollback_is_one: bool = True
    """The members are forgotten in the SQL transaction that ends the transaction."""
    outcome_kept: bool = True
    """The outcome is stored, and a repeated commit hears it."""
    join_extends: bool = True
    """A settlement that joins extends its lock beyond the deadline."""
    join_raises: bool = True
    """It raises the generation of its lock."""
    outside_looks: bool = True
    """A settlement outside is refused while one of the message waits."""
    outside_names_generation: bool = True
    """A settlement outside takes effect only in the generation in which it has looked."""
    evidence_after_promises: bool = True
    """The record of a renewal expires no earlier than the lock would have ended before it."""
    change_looks: bool = True
    """An exact renewal is refused while a settlement of the message waits."""
    change_names_generation: bool = True
    """An exact renewal takes effect only in the generation in which it has looked."""


@dataclass(frozen=True)
class TransactionScenario:
    """How many messages, the ticks until the deadline and until the locks end, and how often each request is made."""

    messages: int = 1
    deadline: int = 1
    lock: int = 1
    sends: int = 1
    commits: int = 2
    rollbacks: int = 1
    outside: int = 1
    renewals: int = 1
    changes: int = 0
    """How often a holder changes the end of its lock to one tick from then."""


class Row(NamedTuple):
    """A message: locked (`L`), available again (`A`), settled by the transaction (`T`) or outside of it (`X`)."""

    state: str
    generation: int
    left: int
    noted: bool


class Record(NamedTuple):
    """What the lock store knows of the newest renewal."""

    generation: int
    left: int


class Call(NamedTuple):
    """A request between two of its SQL transactions, and what it has seen in the first."""

    verb: str
    message: int
    seen: int


class State(NamedTuple):
    """The rows, the records, the transaction (open, committed, rolled back), its send, the requests, and the outcomes that
    clients were told. `budget` counts the requests that may still begin, by verb."""

    rows: tuple[Row, ...]
    records: tuple[Record | None, ...]
    status: str
    deadline: int
    sent: str
    calls: tuple[Call, ...]
    budget: tuple[tuple[str, int], ...]
    told: str


NO_EVIDENCE = -1


class TransactionModel:
    """Every interleaving of these requests."""

    def __init__(self, rules: TransactionRules, scenario: TransactionScenario) -> None:
        self.rules, self.scenario = rules, scenario
        budget = {
            "send": scenario.sends,
            "commit": scenario.commits,
            "roll back": scenario.rollbacks,
            "outside": scenario.outside,
            "renew": scenario.renewals,
            "change": scenario.changes,
        }
        rows = tuple(Row("L", 0, scenario.lock, noted=False) for _ in range(scenario.messages))
        self.start = State(
            rows, (None,) * scenario.messages, "O", scenario.deadline, "-", (), tuple(budget.items()), ""
        )

    def steps(self, state: State) -> Iterator[tuple[str, State, str]]:
        yield from self._begin(state)
        for index, call in enumerate(state.calls):
            others = state._replace(calls=state.calls[:index] + state.calls[index + 1 :])
            yield f"{FAULT}{call.verb} dies", others, ""
            yield from getattr(self, "_" + call.verb.replace(" ", "_"))(others, call)
        yield from self._sweep(state)
        if self._moves(state):
            yield "a tick", _tick(state), ""

    def _begin(self, state: State) -> Iterator[tuple[str, State, str]]:
        for verb, count in state.budget:
            if not count:
                continue
            left = tuple((name, number - (name == verb)) for name, number in state.budget)
            begun = state._replace(budget=left)
            messages = range(len(state.rows)) if verb in ("outside", "renew") else (0,)
            for message in messages:
                yield from self._first(begun, verb, message)
        for message, row in enumerate(state.rows):
            if not row.noted and row.state == "L" and not any(call.verb == "join" for call in state.calls):
                yield f"join {message} looks", _with_call(state, "join", message, _evidence(state, message)), ""

    def _first(self, state: State, verb: str, message: int) -> Iterator[tuple[str, State, str]]:
        """The first step of a request. Most have one step alone."""
        row = state.rows[message]
        match verb:
            case "outside" if row.state == "L" and row.generation == 0:
                # The first try knows no generation but 0.
                yield f"outside {message}", _with_row(state, message, row._replace(state="X")), ""
            case "outside" if row.state == "L" and not (row.noted and self.rules.outside_looks):
                yield f"outside {message} looks", _with_call(state, "outside", message, row.generation), ""
            case "outside":
                yield f"outside {message} is refused", state, ""
            case "send" | "commit" if not (self.rules.join_locks if verb == "send" else self.rules.commit_locks):
                yield f"{verb} looks", _with_call(state, verb, message, int(self._is_open(state))), ""
            case "commit" if not self.rules.commit_is_one:
                yield "commit begins", _with_call(state, "commit", message, int(self._is_open(state))), ""
            case _:
                yield from getattr(self, "_" + verb.replace(" ", "_"))(state, Call(verb, message, NO_EVIDENCE))

    def _is_open(self, state: State) -> bool:
        return state.status == "O" and state.deadline > 0

    # ---- members join ------------------------------------------------------------------------------------------------

    def _send(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        is_open = call.seen == 1 if call.seen != NO_EVIDENCE else self._is_open(state)
        yield "send joins", state._replace(sent="U") if is_open else state, ""

    def _join(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        row = state.rows[call.message]
        if self._is_open(state) and row.state == "L" and row.left > 0 and row.generation != call.seen:
            left = max(row.left, state.deadline + 1) if self.rules.join_extends else row.left
            noted = Row("L", row.generation + self.rules.join_raises, left, noted=True)
            yield f"join {call.message}", _with_row(state, call.message, noted), ""
        else:
            yield f"join {call.message} is refused", state, ""

    # ---- the transaction ends ----------------------------------------------------------------------------------------

    def _commit(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        if not self.rules.commit_is_one and call.seen == 1:
            yield from self._commit_in_parts(state, call)
            return
        is_open = state.status == "O" if call.seen == NO_EVIDENCE else call.seen == 1
        if not is_open:
            yield "commit is repeated", self._tell(state), ""
        elif state.deadline == 0 and call.seen == NO_EVIDENCE:
            yield "commit is late", self._tell(_ended(state, "R")), ""
        elif all(row.state == "L" and row.left > 0 for row in state.rows if row.noted):
            yield "commit", self._tell(_applied(state, range(len(state.rows)))), ""
        else:
            broken = REFUSED if self._is_open(state) else ""
            yield "commit is refused", self._tell(_ended(state, "R")), broken

    def _commit_in_parts(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        """Each member in an SQL transaction of its own."""
        row = state.rows[call.message]
        if row.noted and row.state == "L":
            state = _with_row(state, call.message, row._replace(state="T"))
        if call.message + 1 < len(state.rows):
            yield "commit goes on", _with_call(state, "commit", call.message + 1, 1), ""
        elif state.status == "O":
            yield "commit ends", self._tell(_applied(state, ())), ""

    def _roll_back(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        if state.status != "O":
            yield "rollback is repeated", self._tell(state), ""
        elif not self.rules.rollback_is_one and state.sent == "U":
            yield "rollback forgets its members", _with_call(state._replace(sent="G"), "roll back", 0, 0), ""
        else:
            yield "rollback", self._tell(_ended(state, "R")), ""

    def _tell(self, state: State) -> State:
        """A client hears the outcome; an unknown transaction was not committed, for all that it knows."""
        known = state.status if self.rules.outcome_kept or not state.told else "R"
        return state._replace(told=known)

    # ---- what else happens to the messages ---------------------------------------------------------------------------

    def _outside(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        row = state.rows[call.message]
        fits = row.generation == call.seen or not self.rules.outside_names_generation
        takes_effect = row.state == "L" and row.left > 0 and fits and row.generation != _evidence(state, call.message)
        after = _with_row(state, call.message, row._replace(state="X")) if takes_effect else state
        yield f"outside {call.message}", after, ""

    def _renew(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        """The first step extends the lock in SQL, the second writes the record. `seen` is what the record needs."""
        row, record = state.rows[call.message], state.records[call.message]
        if call.seen == NO_EVIDENCE:
            if row.state == "L" and row.left > 0:
                renewed = row._replace(generation=row.generation + 1, left=max(row.left, self.scenario.lock))
                lasting = max(self.scenario.lock, row.left if self.rules.evidence_after_promises else 0)
                begun = _with_row(state, call.message, renewed)
                yield (
                    f"renew {call.message}",
                    _with_call(begun, "renew", call.message, 10 * (row.generation + 1) + lasting),
                    "",
                )
            else:
                yield f"renew {call.message} is refused", state, ""
            return
        generation, lasting = divmod(call.seen, 10)
        if record is None or record.generation < generation:
            state = _with_record(state, call.message, Record(generation, lasting))
        yield f"record of {call.message}", state, ""

    def _change(self, state: State, call: Call) -> Iterator[tuple[str, State, str]]:
        """The first step reads the row, the second sets its end."""
        row = state.rows[call.message]
        if call.seen == NO_EVIDENCE:
            if row.state == "L" and not (row.noted and self.rules.change_looks):
                yield f"change {call.message} looks", _with_call(state, "change", call.message, row.generation), ""
            else:
                yield f"change {call.message} is refused", state, ""
            return
        fits = row.generation == call.seen or not self.rules.change_names_generation
        takes_effect = row.state == "L" and row.left > 0 and fits
        after = _with_row(state, call.message, row._replace(left=1)) if takes_effect else state
        yield f"change {call.message}", after, ""

    def _sweep(self, state: State) -> Iterator[tuple[str, State, str]]:
        """Background loops free locks that have ended, and roll back a transaction past its deadline."""
        for message, row in enumerate(state.rows):
            if row.state == "L" and (row.left == 0 or row.generation == _evidence(state, message)):
                yield f"lock of {message} ends", _with_row(state, message, row._replace(state="A")), ""
        if state.status == "O" and state.deadline == 0:
            yield "rolled back by time", _ended(state, "R"), ""

    def _moves(self, state: State) -> bool:
        return state.deadline > 0 or any(row.left for row in state.rows) or any(r and r.left for r in state.records)

    # ---- promises ----------------------------------------------------------------------------------------------------

    def broken(self, state: State) -> Iterator[str]:
        done = [row.state == "T" for row in state.rows if row.noted]
        if state.status == "C" and (not all(done) or state.sent == "G"):
            yield PART
        if state.status != "C" and (any(done) or state.sent == "V"):
            yield GHOST
        if state.status != "O" and state.sent == "U":
            yield ORPHAN
        if state.told and state.told != state.status:
            yield LIED

    def finished(self, state: State) -> bool:
        return state.status != "O" and all(row.state != "L" for row in state.rows) and not state.calls


def _evidence(state: State, message: int) -> int:
    """The generation of which the lock store knows that it has expired."""
    record = state.records[message]
    return record.generation if record is not None and record.left == 0 else NO_EVIDENCE


def _applied(state: State, messages: range | tuple[()]) -> State:
    rows = tuple(
        row._replace(state="T") if number in messages and row.noted and row.state == "L" else row
        for number, row in enumerate(state.rows)
    )
    return _ended(state._replace(rows=rows, sent="V" if state.sent == "U" else state.sent), "C")


def _ended(state: State, status: str) -> State:
    """The transaction has ended; a rollback forgets its members."""
    if status == "C":
        return state._replace(status="C")
    rows = tuple(row._replace(noted=False) if row.state != "T" else row for row in state.rows)
    return state._replace(status="R", rows=rows, sent="G" if state.sent == "U" else state.sent)


def _tick(state: State) -> State:
    return state._replace(
        rows=tuple(row._replace(left=max(0, row.left - 1)) for row in state.rows),
        records=tuple(r and r._replace(left=max(0, r.left - 1)) for r in state.records),
        deadline=max(0, state.deadline - 1),
    )


def _with_row(state: State, message: int, row: Row) -> State:
    return state._replace(rows=(*state.rows[:message], row, *state.rows[message + 1 :]))


def _with_record(state: State, message: int, record: Record) -> State:
    return state._replace(records=(*state.records[:message], record, *state.records[message + 1 :]))


def _with_call(state: State, verb: str, message: int, seen: int) -> State:
    return state._replace(calls=tuple(sorted((*state.calls, Call(verb, message, seen)))))
