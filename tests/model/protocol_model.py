"""The world around the service: receivers, sweepers, time and faults, and the promises that must hold.

A response arrives at once or never: a slow one equals a receiver that acts late. A stopped process takes no step while
time passes. One message is enough, because no step reads two rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.canonical import canonical, without_doomed_requests
from tests.model.explorer import FAULT
from tests.model.rules import Rules, Scenario
from tests.model.service_model import RequestResult, ServiceModel, released
from tests.model.state import (
    AVAILABLE,
    DONE,
    IDLE,
    NOT_CHANGED,
    UNREAD,
    ExpiredRecord,
    Handler,
    Lock,
    Receiver,
    Record,
    Row,
    State,
    replaced,
)

TWO_HOLDERS = "two live promises"
PROMISE_BROKEN = "a live promise outlives its lock"
STALE_SETTLEMENT = "a former holder settles the lock of another"
TWO_EFFECTS = "a settlement takes effect twice"
COMPLETED_REDELIVERED = "a completed message is delivered again"
EFFECT_DENIED = "a settlement that took effect is answered lock-lost"
LOSS_NOT_FINAL = "lock-lost is answered while the lock can still be settled"
OUTLIVES_CHANGE = "a lock outlives the end to which it was changed"

HOLDING = ("hold", "doubt")
"""The intents of a receiver that holds a message: without, and with an unanswered change of its lock."""

Step = tuple[str, State, str]
"""A label, the state after it, and the promise it breaks or ''."""


class ProtocolModel:
    """The model to explore: one message, a few receivers and sweepers, and a budget of faults."""

    def __init__(self, rules: Rules, scenario: Scenario) -> None:
        self.rules = rules
        self.scenario = scenario
        self.service = ServiceModel(rules, scenario)
        names_tokens = rules.settle_names_token and rules.release_names_token
        self._reduced = scenario.reduced and names_tokens and rules.missed_release_reads_again
        self.start = State(
            row=Row(AVAILABLE, 0, 0),
            locks=(),
            receivers=(IDLE,) * scenario.receivers,
            abandoned=(),
            sweepers=((),) * scenario.sweepers,
            faults=scenario.faults,
            timeouts=scenario.timeouts,
        )

    # ---- promises

    def finished(self, state: State) -> bool:
        """Whether the message is completed. Every state must be able to reach such a state."""
        return state.row.token == DONE

    def broken(self, state: State) -> Iterator[str]:
        """Yield the promises that this state breaks."""
        live = [receiver for receiver in state.receivers if receiver.promise > 0]
        if len(live) > 1:
            yield TWO_HOLDERS
        for receiver in live:
            if receiver.token != state.row.token or (
                self.rules.sql_keeps_deadline and receiver.promise > state.row.left
            ):
                yield PROMISE_BROKEN
        if state.row.ends == 0 and not self._has_ended(state):
            yield OUTLIVES_CHANGE

    def _has_ended(self, state: State) -> bool:
        """Whether a sweep would release the row now."""
        row = state.row
        record = state.locks[row.token - 1].record
        return row.left == 0 or (record is not None and record[:2] == (row.generation, 0))

    def _broken_by(self, before: State, handler: Handler, reply: Handler | RequestResult, after: State) -> str:
        """The promise that one step of one request breaks, or ''."""
        token, verb = handler.token, handler.verb
        if not isinstance(reply, RequestResult):
            return ""
        if reply.kind == "settled" and after.row != before.row:
            if before.row.token == DONE:
                return COMPLETED_REDELIVERED
            if before.locks[token - 1].outcome:
                return TWO_EFFECTS
            return STALE_SETTLEMENT if before.row.token != token else ""
        if reply.kind == "lost":
            if before.locks[token - 1].outcome == verb:
                return EFFECT_DENIED
            return LOSS_NOT_FINAL if self.service.passes_fence(after.row, token) else ""
        return ""

    # ---- steps

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every step of every participant, with the canonical state after it."""
        for label, after, promise in self._all_steps(state):
            yield label, canonical(without_doomed_requests(after) if self._reduced else after), promise

    def _all_steps(self, state: State) -> Iterator[Step]:
        yield "a tick passes", self._tick(state), ""
        seen: list[Receiver] = []
        for index, receiver in enumerate(state.receivers):
            if receiver in seen:
                continue
            seen.append(receiver)
            if receiver.request:
                yield from self._request_steps(state, index, receiver, receiver.request)
            else:
                for label, next_receiver in self._possible_requests(state, receiver):
                    yield label, state._replace(receivers=replaced(state.receivers, index, next_receiver)), ""
        for index, handler in enumerate(state.abandoned):
            yield from self._abandoned_steps(state, index, handler)
        yield from self._sweep(state)
        if state.faults:
            for label, after in self._faults(state):
                yield FAULT + label, after._replace(faults=state.faults - 1), ""

    def _tick(self, state: State) -> State:
        row = state.row
        ends = row.ends if row.ends == NOT_CHANGED else max(0, row.ends - 1)
        return state._replace(
            row=row._replace(left=max(0, row.left - 1), ends=ends),
            locks=tuple(_aged_lock(lock) for lock in state.locks),
            receivers=tuple(self._aged_receiver(receiver) for receiver in state.receivers),
            abandoned=tuple(self._aged_handler(handler) for handler in state.abandoned),
        )

    def _aged_receiver(self, receiver: Receiver) -> Receiver:
        intent, token, promise, request = receiver
        return Receiver(intent, token, max(0, promise - 1), request and self._aged_handler(request))

    def _aged_handler(self, handler: Handler) -> Handler:
        if handler.age == UNREAD:
            return handler
        return handler._replace(age=min(handler.age + 1, self.scenario.lead))

    # ---- receivers and their requests

    def _possible_requests(self, state: State, receiver: Receiver) -> Iterator[tuple[str, Receiver]]:
        """Yield the requests that an idle receiver may begin."""
        intent, token, promise, _ = receiver
        if receiver == IDLE:
            if state.row.token == AVAILABLE:
                yield "receiver requests a message", Receiver("receive", 0, 0, self.service.request("receive", 0))
        elif intent in HOLDING:
            yield "receiver renews", receiver._replace(request=self.service.request("renew", token))
            if self.scenario.change:
                relied_on = min(promise, self.scenario.change) if self.rules.holder_counts_on_change else promise
                yield (
                    "receiver changes its lock",
                    Receiver(intent, token, relied_on, self.service.request("change", token)),
                )
            for verb in self.scenario.verbs:
                yield f"receiver requests {verb}", Receiver(verb, token, 0, self.service.request(verb, token))
            yield "receiver drops its message", IDLE
        else:
            yield f"receiver repeats {intent}", Receiver(intent, token, 0, self.service.request(intent, token))
            yield "receiver stops repeating", IDLE

    def _request_steps(self, state: State, index: int, receiver: Receiver, request: Handler) -> Iterator[Step]:
        def receivers(next_receiver: Receiver) -> tuple[Receiver, ...]:
            return replaced(state.receivers, index, next_receiver)

        for label, after, outcome in self.service.step(state, request):
            promise = self._broken_by(state, request, outcome, after)
            if isinstance(outcome, Handler):
                yield label, after._replace(receivers=receivers(receiver._replace(request=outcome))), promise
                continue
            yield label, after._replace(receivers=receivers(self._after_reply(receiver, outcome))), promise
            yield from self._lost_reply_steps(label, after, receivers(self._in_doubt(receiver, outcome)), outcome)
        doubting = state._replace(receivers=receivers(self._in_doubt(receiver, None)))
        if state.faults and "crash" in self.scenario.hazards:
            yield FAULT + "the process dies", doubting._replace(faults=state.faults - 1), ""
        if state.timeouts:
            running = doubting._replace(abandoned=(*state.abandoned, request), timeouts=state.timeouts - 1)
            yield FAULT + "receiver abandons its request", running, ""

    def _lost_reply_steps(
        self, label: str, after: State, receivers: tuple[Receiver, ...], reply: RequestResult
    ) -> Iterator[Step]:
        if after.faults and "crash" in self.scenario.hazards:
            dead = after._replace(receivers=receivers, faults=after.faults - 1)
            yield FAULT + label + ", then the process dies", dead, ""
        if after.timeouts:
            left = after._replace(receivers=receivers, timeouts=after.timeouts - 1)
            yield FAULT + label + ", but the caller has left", self._after_caller_left(left, reply), ""

    def _after_caller_left(self, state: State, reply: RequestResult) -> State:
        """Release a claim whose response is lost, unless a repeat with its key may return it."""
        if reply.kind != "locked" or (self.scenario.keyed and self.rules.keyed_claim_waits):
            return state
        return state._replace(abandoned=(*state.abandoned, Handler("receive", "release_undelivered", reply.token)))

    def _in_doubt(self, receiver: Receiver, reply: RequestResult | None) -> Receiver:
        """Return the receiver without its response. It drops a receive, unless it can repeat it by its key."""
        intent, token, promise, request = receiver
        if request and request.verb == "change":
            return Receiver("doubt", token, promise, ())
        if intent != "receive":
            return Receiver(intent, token, promise, ())
        claimed = reply.token if reply and reply.kind == "locked" else token
        return Receiver(intent, claimed, 0, ()) if self.scenario.keyed and claimed > 0 else IDLE

    def _after_reply(self, receiver: Receiver, reply: RequestResult) -> Receiver:
        """The receiver after its reply."""
        match reply.kind:
            case "locked":
                return Receiver("hold", reply.token, reply.promise, ())
            case "renewed":
                is_limited = receiver.intent == "doubt" and self.rules.holder_counts_on_change
                counted_on = max(0, self.scenario.change - reply.age)
                renewed = min(reply.promise, counted_on) if is_limited else reply.promise
                return receiver._replace(promise=max(receiver.promise, renewed), request=())
            case "changed":
                return receiver._replace(promise=reply.promise, request=())
            case "busy":
                return self._in_doubt(receiver, reply)
            case _:
                return IDLE

    def _abandoned_steps(self, state: State, index: int, handler: Handler) -> Iterator[Step]:
        others = state.abandoned[:index] + state.abandoned[index + 1 :]
        alone = state._replace(abandoned=others)
        for label, after, outcome in self.service.step(alone, handler):
            promise = self._broken_by(alone, handler, outcome, after)
            if isinstance(outcome, Handler):
                next_receiver = after._replace(abandoned=(*after.abandoned, outcome))
            else:
                next_receiver = self._after_caller_left(after, outcome)
            yield label if label.startswith(FAULT) else f"(abandoned) {label}", next_receiver, promise

    # ---- sweepers

    def _sweep(self, state: State) -> Iterator[Step]:
        row = state.row
        if self.rules.sql_keeps_deadline and row.token > 0 and row.left == 0:
            yield "sweep: lock has ended, released", released(state), ""
        for index, carried in enumerate(state.sweepers):
            if carried:
                after = state._replace(sweepers=replaced(state.sweepers, index, ()))
                yield self._release_expired(after, carried)
        if () in state.sweepers:
            free = state.sweepers.index(())
            for expired_record in self._expired(state):
                after = state._replace(sweepers=replaced(state.sweepers, free, expired_record))
                yield "sweep: reads an expired record", after, ""

    def _expired(self, state: State) -> Iterator[ExpiredRecord]:
        """Yield what the lock store reports as expired; without that rule also what it has no record of."""
        for token, lock in enumerate(state.locks, start=1):
            if lock.record and lock.record.deadline == 0:
                yield ExpiredRecord(token, lock.record.generation)
        row = state.row
        if not self.rules.missing_record_proves_nothing and row.token > 0 and not state.locks[row.token - 1].record:
            yield ExpiredRecord(row.token, row.generation)

    def _release_expired(self, state: State, expired_record: ExpiredRecord) -> Step:
        row = state.row
        names_token = row.token == expired_record.token or not self.rules.release_names_token
        has_expired = (
            self.service.has_expired(expired_record.generation, row.generation) or not self.rules.sql_keeps_deadline
        )
        if row.token > 0 and names_token and has_expired:
            return "sweep: released after its record expired", released(state), ""
        return "sweep: the expired record is stale", state, ""

    # ---- faults

    def _faults(self, state: State) -> Iterator[tuple[str, State]]:
        hazards, locks, row = self.scenario.hazards, state.locks, state.row
        recorded = [index for index, lock in enumerate(locks) if lock.record]
        if "flush" in hazards and recorded:
            forgotten = tuple(Lock(None, lock.outcome) for lock in locks)
            yield "FLUSHALL", state._replace(locks=forgotten, row=row._replace(ends=NOT_CHANGED))
        if "stale" in hazards:
            for index in recorded:
                yield (
                    "an old replica is promoted",
                    state._replace(locks=replaced(locks, index, _before_extension(locks[index]))),
                )
        if "clocks" in hazards:
            lead = self.scenario.lead
            for jump, left in (("ahead", 0), ("back", lead)):
                if row.token > 0:
                    yield f"the clock of SQL jumps {jump}", state._replace(row=row._replace(left=left))
                jumped = tuple(_with_time_left(lock, left) for lock in locks)
                yield f"the clock of the lock store jumps {jump}", state._replace(locks=jumped)


def _aged_lock(lock: Lock) -> Lock:
    if lock.record is None:
        return lock
    generation, deadline, bound = lock.record
    return Lock(Record(generation, max(0, deadline - 1), max(0, bound - 1)), lock.outcome)


def _before_extension(lock: Lock) -> Lock:
    """The record as it was before it was last extended."""
    assert lock.record
    return lock._replace(record=lock.record._replace(deadline=max(0, lock.record.deadline - 1)))


def _with_time_left(lock: Lock, left: int) -> Lock:
    if lock.record is None:
        return lock
    return lock._replace(record=lock.record._replace(deadline=left, bound=left))
