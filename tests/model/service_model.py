"""The requests of the service as atomic steps: one SQL statement or one script of the lock store each.

Anything may happen between two steps. Dead-letter and defer behave as complete: they end the lock under the same fence
and leave a tombstone. A release behaves as an abandon. A batch is its entries. A receive-and-delete is a claim that ends in DONE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.model.explorer import FAULT
from tests.model.rules import Rules, Scenario
from tests.model.state import (
    AVAILABLE,
    DONE,
    NEVER_USED,
    NOT_CHANGED,
    UNREAD,
    Handler,
    Lock,
    Record,
    Row,
    State,
    replaced,
)


class RequestResult(NamedTuple):
    """The response to a request: locked, empty, renewed, changed, settled, lost or busy.

    `age` is the number of ticks for which the request has run.
    """

    kind: str
    promise: int = 0
    token: int = 0
    age: int = 0


SHORTEST_LOCK = 1
"""No lock is shorter, in ticks. A record must be written within this time to extend a lock."""

Transition = tuple[str, State, Handler | RequestResult]


class ServiceModel:
    """The handlers of receive, renew and settle under a set of rules."""

    def __init__(self, rules: Rules, scenario: Scenario) -> None:
        self.rules = rules
        self.scenario = scenario
        self._steps: dict[str, Callable[[State, Handler], list[Transition]]] = {
            name: getattr(self, name)
            for name in (
                "claim",
                "repeat_claim",
                "release_undelivered",
                "renew_record",
                "extend",
                "record",
                "read_row",
                "lower",
                "read_clock",
                "change_extend",
                "change_record",
                "read_tombstone_early",
                "try_unrenewed",
                "read_record",
                "try_renewed",
                "release",
                "look_up",
            )
        }

    def request(self, verb: str, token: int) -> Handler:
        """A request as it arrives."""
        if verb == "receive":
            return Handler(verb, "repeat_claim" if token else "claim", token)
        if verb == "renew":
            return Handler(verb, "renew_record", token)
        if verb == "change":
            return Handler(verb, "read_row", token)
        return Handler(verb, "try_unrenewed" if self.rules.tombstone_read_last else "read_tombstone_early", token)

    def step(self, state: State, handler: Handler) -> list[Transition]:
        """Every way the handler's next step may go."""
        return self._steps[handler.step](state, handler)

    # ---- predicates of the SQL statements

    def is_locked_by(self, row: Row, token: int) -> bool:
        """The row is locked by this token and its time has not passed."""
        return row.token == token and (row.left > 0 or not self.rules.sql_keeps_deadline)

    def passes_fence(self, row: Row, token: int) -> bool:
        """Whether the row passes the fence of a settlement, apart from the generation."""
        if not self.rules.settle_names_token:
            return True
        return row.token == token if not self.rules.settle_checks_deadline else self.is_locked_by(row, token)

    def has_expired(self, expired_generation: int, generation: int) -> bool:
        """Whether an expired record ends the lock of this generation. Generation 0 has no record."""
        return expired_generation > 0 and (
            expired_generation == generation or not self.rules.expired_record_names_generation
        )

    # ---- receive

    def claim(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: lock the row for a new token until now + D, generation 0. No record is written."""
        if state.row.token != AVAILABLE:
            return [("receive: no message", state, RequestResult("empty"))]
        token, lock = len(state.locks) + 1, self.scenario.lock
        after = state._replace(row=Row(token, lock, 0), locks=(*state.locks, NEVER_USED))
        if not self.rules.sql_keeps_deadline:
            return [("receive: SQL claims", after, handler._replace(step="record", token=token, age=0))]
        return [("receive: SQL claims", after, RequestResult("locked", lock, token))]

    def repeat_claim(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: the attempt is known by its key. Promise what is left of its lock, or claim again."""
        if self.is_locked_by(state.row, handler.token):
            return [("receive: same key, same token", state, RequestResult("locked", state.row.left, handler.token))]
        return [("receive: same key, lock has ended", state, Handler("receive", "claim", 0))]

    def release_undelivered(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: release a claim that no client received."""
        row = state.row
        if row.token == handler.token or (row.token > 0 and not self.rules.release_names_token):
            return [("receive: caller left, released", released(state), RequestResult("empty"))]
        return [("receive: caller left, lock has ended", state, RequestResult("empty"))]

    # ---- renew

    def renew_record(self, state: State, handler: Handler) -> list[Transition]:
        """Lock store: extend a live record inside its bound. Otherwise report its clock and an expired generation."""
        continued, token, lock = handler._replace(step="extend"), handler.token, self.scenario.lock
        if not self.scenario.redis:
            return [("renew: no lock store", state, continued)]
        record = state.locks[token - 1].record
        live = record is not None and record.deadline > 0
        transitions: list[Transition] = []
        if record and live and (record.bound >= lock or not self.rules.sql_keeps_deadline):
            after = self._write(state, token, record._replace(deadline=max(lock, record.deadline)))
            if state.row.token == token:
                after = after._replace(row=state.row._replace(ends=NOT_CHANGED))
            transitions.append(("renew: extended in the lock store", after, RequestResult("renewed", lock)))
            if state.faults and "redis" in self.scenario.hazards:
                spent = after._replace(faults=state.faults - 1)
                transitions.append((FAULT + "renew: extended, but the lock store does not answer", spent, continued))
        elif not self.rules.sql_keeps_deadline:
            transitions.append(("renew: no live record", state, handler._replace(step="look_up")))
        else:
            expired_generation = record.generation if record and not live else 0
            label = "renew: record has expired" if expired_generation else "renew: record missing or at its bound"
            transitions.append((label, state, continued._replace(age=0, generation=expired_generation)))
        return transitions + self._store_fails(state, continued, "renew: lock store does not answer")

    def extend(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: raise `locked_until` and the generation under the fence; by the lead only if the lock store's clock was read."""
        row, token = state.row, handler.token
        if self.is_locked_by(row, token) and not self.has_expired(handler.generation, row.generation):
            recorded = handler.age != UNREAD
            left = max(row.left, self.scenario.lead if recorded else self.scenario.lock)
            after = state._replace(row=Row(token, left, row.generation + 1))
            continued = handler._replace(step="record", generation=row.generation + 1)
            return [
                ("renew: SQL extends", after, continued if recorded else RequestResult("renewed", self.scenario.lock))
            ]
        return [("renew: SQL misses", state, self._refused(handler))]

    def record(self, state: State, handler: Handler) -> list[Transition]:
        """Lock store: write the record unless a newer one exists. The promise counts from the first clock reading."""
        rules, lock, lead = self.rules, self.scenario.lock, self.scenario.lead
        age = handler.age if rules.bound_clock_read_before else 0
        promise = max(0, lock - age)
        reply = (
            RequestResult("locked", lock, handler.token)
            if handler.verb == "receive"
            else RequestResult("renewed", promise, age=handler.age)
        )
        stored = state.locks[handler.token - 1].record
        after = state
        if stored is None or stored.generation <= handler.generation:
            deadline = lock if rules.deadline_clock_read_after else promise
            extends = handler.age < SHORTEST_LOCK or not rules.late_record_extends_nothing
            bound = max(0, lead - age) if extends else 0
            after = self._write(state, handler.token, Record(handler.generation, deadline, bound))
        transitions: list[Transition] = [("renew: record written", after, reply)]
        if state.faults and "redis" in self.scenario.hazards:
            spent = state._replace(faults=state.faults - 1)
            transitions.append((FAULT + "renew: record not written", spent, reply))
            late = spent._replace(abandoned=(*spent.abandoned, handler))
            transitions.append((FAULT + "renew: record written later", late, reply))
        return transitions

    # ---- change the lock

    def read_row(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: read the generation. No record exists of a lock that was never renewed, nor without a lock store."""
        row = state.row
        if not self.is_locked_by(row, handler.token):
            return [("change: the lock has ended", state, self._refused(handler))]
        if row.generation and self.scenario.redis and self.rules.change_in_sql_without_records:
            return [("change: the lock was renewed", state, handler._replace(step="read_clock"))]
        return [("change: no record", state, handler._replace(step="lower", generation=row.generation))]

    def lower(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: the lock ends at now + duration, if no renewal came between. The generation stays."""
        row, duration = state.row, self.scenario.change
        is_unchanged = row.generation == handler.generation or not self.rules.change_names_generation
        if self.is_locked_by(row, handler.token) and is_unchanged:
            after = state._replace(row=row._replace(left=duration, ends=duration))
            return [("change: SQL sets the end", after, RequestResult("changed", duration))]
        return [("change: SQL misses", state, self._refused(handler._replace(generation=0)))]

    def read_clock(self, state: State, handler: Handler) -> list[Transition]:
        """Lock store: report its clock and an expired generation."""
        continued, record = handler._replace(step="change_extend"), state.locks[handler.token - 1].record
        expired_generation = record.generation if record and record.deadline == 0 else 0
        asked = continued._replace(age=0, generation=expired_generation)
        failures = self._store_fails(state, continued, "change: lock store does not answer")
        return [("change: lock store asked", state, asked), *failures]

    def change_extend(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: extend as a renewal does. Without the lock store's clock, only an end that SQL sets itself is an answer."""
        row, token, duration = state.row, handler.token, self.scenario.change
        if not self.is_locked_by(row, token) or self.has_expired(handler.generation, row.generation):
            return [("change: SQL misses", state, self._refused(handler))]
        generation = row.generation + self.rules.change_raises_generation
        if handler.age != UNREAD:
            after = state._replace(row=Row(token, max(row.left, self.scenario.lead), generation))
            return [("change: SQL extends", after, handler._replace(step="change_record", generation=generation))]
        ends = duration if row.left <= duration else NOT_CHANGED
        after = state._replace(row=Row(token, max(row.left, duration), generation, ends))
        answer = RequestResult("busy") if ends == NOT_CHANGED else RequestResult("changed", duration)
        return [("change: SQL extends without the lock store", after, answer)]

    def change_record(self, state: State, handler: Handler) -> list[Transition]:
        """Lock store: the record expires at now + duration, also earlier than before."""
        rules, token = self.rules, handler.token
        duration = self.scenario.change if rules.change_counts_from_record else self.scenario.change - handler.age
        bound = max(0, self.scenario.lead - handler.age)
        stored = state.locks[token - 1].record
        answer = RequestResult("changed", max(0, duration))
        in_time = handler.age < SHORTEST_LOCK or not rules.change_records_in_time
        if stored is not None and stored.generation > handler.generation:
            return [("change: record not wanted, try again", state, self.request("change", token))]
        after = self._write(state, token, Record(handler.generation, max(0, duration), bound if in_time else 0))
        if not in_time:
            return [("change: record written late, try again", after, self.request("change", token))]
        if state.row.token == token and state.row.generation == handler.generation:
            after = after._replace(row=state.row._replace(ends=answer.promise))
        transitions: list[Transition] = [("change: record written", after, answer)]
        if state.faults and "redis" in self.scenario.hazards:
            failed = RequestResult("busy")
            spent, unwritten = after._replace(faults=state.faults - 1), state._replace(faults=state.faults - 1)
            late = unwritten._replace(abandoned=(*unwritten.abandoned, handler))
            if rules.change_needs_record:
                transitions.append((FAULT + "change: record not written", unwritten, failed))
            else:
                told = unwritten._replace(row=unwritten.row._replace(ends=answer.promise))
                transitions.append((FAULT + "change: record not written, but answered", told, answer))
            transitions.append((FAULT + "change: record written, but the lock store does not answer", spent, failed))
            transitions.append((FAULT + "change: record written later", late, failed))
        return transitions

    # ---- settle

    def read_tombstone_early(self, state: State, handler: Handler) -> list[Transition]:
        """The wrong order, for comparison: the tombstone is read in a snapshot older than the fenced statement."""
        if state.locks[handler.token - 1].outcome == handler.verb:
            return [("settle: tombstone found", state, RequestResult("settled"))]
        return [("settle: no tombstone yet", state, handler._replace(step="try_unrenewed"))]

    def try_unrenewed(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: settle a lock that was never renewed. It has no record that could have expired."""
        row, token = state.row, handler.token
        if self.passes_fence(row, token) and (row.generation == 0 or not self.rules.settle_names_token):
            return [self._settle(state, handler)]
        if not self.passes_fence(row, token):
            return [("settle: SQL misses", state, handler._replace(step="look_up"))]
        step = "read_record" if self.rules.settle_reads_expired_record else "try_renewed"
        return [("settle: the lock was renewed", state, handler._replace(step=step))]

    def read_record(self, state: State, handler: Handler) -> list[Transition]:
        """Lock store: read the generation of the record of this token if it has expired."""
        continued = handler._replace(step="try_renewed")
        if not self.scenario.redis:
            return [("settle: no lock store", state, continued)]
        record = state.locks[handler.token - 1].record
        expired = record.generation if record and record.deadline == 0 else 0
        label = "settle: record has expired" if expired else "settle: no expired record"
        transition: Transition = (label, state, continued._replace(generation=expired))
        return [transition, *self._store_fails(state, continued, "settle: lock store does not answer")]

    def try_renewed(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: settle under the fence, unless this generation has expired."""
        row = state.row
        if self.passes_fence(row, handler.token) and not self.has_expired(handler.generation, row.generation):
            return [self._settle(state, handler)]
        return [("settle: SQL misses", state, self._refused(handler))]

    # ---- refusing

    def release(self, state: State, handler: Handler) -> list[Transition]:
        """SQL: release the row whose generation has expired, so that lock-lost is final."""
        row, token = state.row, handler.token
        if row.token == token and self.has_expired(handler.generation, row.generation):
            return [(f"{handler.verb}: released after its record expired", released(state), RequestResult("lost"))]
        if not self.rules.missed_release_reads_again:
            return [(f"{handler.verb}: nothing to release, lock lost", state, RequestResult("lost"))]
        continued = handler._replace(step="look_up", generation=0)
        return [(f"{handler.verb}: nothing to release", state, continued)]

    def look_up(self, state: State, handler: Handler) -> list[Transition]:
        """SQL, one snapshot: the tombstone decides. A request whose lock is live tries again. Otherwise the lock is lost."""
        rules, verb = self.rules, handler.verb
        outcome = state.locks[handler.token - 1].outcome
        if outcome == verb and rules.tombstones_kept and rules.tombstone_read_last:
            return [(f"{verb}: tombstone found", state, RequestResult("settled"))]
        if rules.lock_lost_is_final and rules.sql_keeps_deadline and self.is_locked_by(state.row, handler.token):
            return [(f"{verb}: lock is live, try again", state, self.request(verb, handler.token))]
        return [(f"{verb}: lock lost", state, RequestResult("lost"))]

    # ---- parts of steps

    def _settle(self, state: State, handler: Handler) -> Transition:
        done = handler.verb == "complete"
        lock = state.locks[handler.token - 1]
        locks = replaced(state.locks, handler.token - 1, Lock(lock.record, handler.verb))
        row = Row(DONE if done else AVAILABLE, 0, 0)
        return (f"{handler.verb}: SQL settles", state._replace(row=row, locks=locks), RequestResult("settled"))

    def _refused(self, handler: Handler) -> Handler:
        if handler.generation and self.rules.lock_lost_releases_row:
            return handler._replace(step="release", age=UNREAD)
        return handler._replace(step="look_up", age=UNREAD, generation=0)

    def _store_fails(self, state: State, continued: Handler, label: str) -> list[Transition]:
        if state.faults and "redis" in self.scenario.hazards:
            return [(FAULT + label, state._replace(faults=state.faults - 1), continued)]
        return []

    def _write(self, state: State, token: int, record: Record) -> State:
        lock = state.locks[token - 1]
        return state._replace(locks=replaced(state.locks, token - 1, Lock(record, lock.outcome)))


def released(state: State) -> State:
    """Return the state with the row available again, after an expiry or an abandon."""
    return state._replace(row=Row(AVAILABLE, 0, 0))
