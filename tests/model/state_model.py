"""A model of commits with a state: messages X, X again and Y change one key, and two processors handle them.

A processor claims a message, loads the state, handles the message and commits. Handling is a pure function, so its result
is named by the message and by the version that it ran on. Locks may run out, answers may be lost, and processors may die.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explorer import FAULT

IDS = "XXY"
"""The ids of the messages. The second one is a duplicate of the first."""

TWO_VERSIONS = "a message has added two versions"
STALE_BASE = "a version was computed from another than the one before it"
TWO_RESULTS = "a message has two different results"
GHOST = "a result was sent, and its version never existed"
LOST_RESULT = "a message is completed, and its result was never sent"
UNPROCESSED = "a message is completed, and no version names it"
OTHER_STATE = "a duplicate was completed that ran on another version than the first processing"


@dataclass(frozen=True)
class StateRules:
    """The rules of "Commit" in docs/protocol.md. `False` removes one."""

    is_one_transaction: bool = True
    """The completion, the version and the sends are one transaction."""
    stores_before_sending: bool = True
    """Without one transaction: the version is stored before the results are sent."""
    names_messages: bool = True
    """A version names its message, and a duplicate adds none."""
    loads_before_message: bool = True
    """A duplicate loads the version before that of the first processing."""
    checks_duplicates: bool = True
    """A duplicate must have run on that version."""
    checks_version: bool = True
    """Any other message must have run on the newest version."""
    locks_before_look: bool = True
    """The commit looks at the versions after it has locked the key."""


@dataclass(frozen=True)
class StateScenario:
    """How often each message can be delivered, and how many answers may be lost or processors die."""

    deliveries: int = 2
    faults: int = 1


class Processor(NamedTuple):
    """What a processor does next, its message, its delivery, the version that it runs on, and the versions it has seen.

    `next` is empty, `load`, `look`, `commit`, `send`, `store` or `complete`.
    """

    next: str = ""
    message: int = 0
    delivery: int = 0
    base: int = -1
    seen: tuple[tuple[str, int], ...] | None = None


IDLE = Processor()


class State(NamedTuple):
    """The messages (`a`vailable, `l`ocked or `c`ompleted, and their deliveries), the versions (message and base), the
    results that were sent (message and base), the processors, and the faults that may still happen.
    """

    rows: tuple[tuple[str, int], ...]
    versions: tuple[tuple[str, int], ...]
    sent: tuple[tuple[str, int], ...]
    processors: tuple[Processor, ...]
    faults: int


Step = tuple[str, State, Processor, str]


class StateModel:
    """Every interleaving of two processors."""

    def __init__(self, rules: StateRules, scenario: StateScenario) -> None:
        self.rules, self.scenario = rules, scenario
        self.start = State((("a", 0),) * len(IDS), (), (), (IDLE, IDLE), scenario.faults)

    def steps(self, state: State) -> Iterator[tuple[str, State, str]]:
        for number, (kind, deliveries) in enumerate(state.rows):
            if kind == "l":
                yield f"lock of {number} runs out", _with_row(state, number, ("a", deliveries)), ""
        for index, processor in enumerate(state.processors):
            if not processor.next:
                yield from self._claims(state, index)
                continue
            for label, after, later, promise in getattr(self, f"_{processor.next}")(state, processor):
                yield label, _with_processor(after, index, later), promise
                if processor.next == "commit" and state.faults:
                    repeated = _with_processor(after._replace(faults=state.faults - 1), index, processor)
                    yield f"{FAULT}{label}, the answer is lost", repeated, promise
            if state.faults:
                dead = _with_processor(state._replace(faults=state.faults - 1), index, IDLE)
                yield f"{FAULT}a processor dies", dead, ""

    def _claims(self, state: State, index: int) -> Iterator[tuple[str, State, str]]:
        for number, (kind, deliveries) in enumerate(state.rows):
            if kind == "a" and deliveries < self.scenario.deliveries:
                locked = _with_row(state, number, ("l", deliveries + 1))
                yield f"claim {number}", _with_processor(locked, index, Processor("load", number, deliveries + 1)), ""

    def _first(self, versions: tuple[tuple[str, int], ...], message: int) -> int:
        """Return the number of the version that names the message, or 0."""
        names = [name for name, _ in versions] if self.rules.names_messages else []
        return names.index(IDS[message]) + 1 if IDS[message] in names else 0

    def _load(self, state: State, processor: Processor) -> Iterator[Step]:
        first = self._first(state.versions, processor.message) if self.rules.loads_before_message else 0
        base = first - 1 if first else len(state.versions)
        after = "commit" if self.rules.locks_before_look else "look"
        if not self.rules.is_one_transaction:
            after = "store" if self.rules.stores_before_sending else "send"
        yield f"load version {base}", state, processor._replace(next=after, base=base), ""

    def _look(self, state: State, processor: Processor) -> Iterator[Step]:
        yield "look", state, processor._replace(next="commit", seen=state.versions), ""

    def _commit(self, state: State, processor: Processor) -> Iterator[Step]:
        """One transaction: the fence of the message, the lock of the key, the look, and then everything or nothing."""
        if state.rows[processor.message] != ("l", processor.delivery):
            yield "hear the first answer, or that the lock is lost", state, IDLE, ""
            return
        seen = state.versions if processor.seen is None else processor.seen
        completed = _with_row(state, processor.message, ("c", processor.delivery))
        again = processor._replace(next="load", seen=None)
        if first := self._first(seen, processor.message):
            if self.rules.checks_duplicates and processor.base != first - 1:
                yield "hear of a conflict", state, again, ""
            else:
                other = "" if processor.base == state.versions[first - 1][1] else OTHER_STATE
                yield "complete a duplicate", completed, IDLE, other
        elif self.rules.checks_version and processor.base != len(seen):
            yield "hear of a conflict", state, again, ""
        else:
            result = (IDS[processor.message], processor.base)
            added = completed._replace(versions=(*state.versions, result), sent=_added(state.sent, result))
            yield "commit", added, IDLE, ""

    # ---- in several transactions -------------------------------------------------------------------------------------

    def _store(self, state: State, processor: Processor) -> Iterator[Step]:
        after = processor._replace(next="send" if self.rules.stores_before_sending else "complete")
        if self._first(state.versions, processor.message):
            yield "find a duplicate", state, processor._replace(next="complete"), ""
        elif processor.base != len(state.versions):
            yield "hear of a conflict", state, processor._replace(next="load"), ""
        else:
            version = (IDS[processor.message], processor.base)
            yield "store", state._replace(versions=(*state.versions, version)), after, ""

    def _send(self, state: State, processor: Processor) -> Iterator[Step]:
        after = processor._replace(next="complete" if self.rules.stores_before_sending else "store")
        yield "send", state._replace(sent=_added(state.sent, (IDS[processor.message], processor.base))), after, ""

    def _complete(self, state: State, processor: Processor) -> Iterator[Step]:
        if state.rows[processor.message] == ("l", processor.delivery):
            state = _with_row(state, processor.message, ("c", processor.delivery))
        yield "complete", state, IDLE, ""

    def broken(self, state: State) -> Iterator[str]:
        names = [name for name, _ in state.versions]
        if len(set(names)) < len(names):
            yield TWO_VERSIONS
        if any(base != place for place, (_, base) in enumerate(state.versions)):
            yield STALE_BASE
        if len({name for name, _ in state.sent}) < len(state.sent):
            yield TWO_RESULTS
        is_busy = any(processor.next in ("send", "store") for processor in state.processors)
        if not is_busy and any(result not in state.versions for result in state.sent):
            yield GHOST
        for number, (kind, _) in enumerate(state.rows):
            if kind == "c" and IDS[number] not in names:
                yield UNPROCESSED
            if kind == "c" and all(name != IDS[number] for name, _ in state.sent):
                yield LOST_RESULT

    def finished(self, state: State) -> bool:
        is_done = all(kind == "c" or deliveries == self.scenario.deliveries for kind, deliveries in state.rows)
        return is_done and all(processor == IDLE for processor in state.processors)


def _added(results: tuple[tuple[str, int], ...], result: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted({*results, result}))


def _with_row(state: State, number: int, row: tuple[str, int]) -> State:
    return state._replace(rows=(*state.rows[:number], row, *state.rows[number + 1 :]))


def _with_processor(state: State, index: int, processor: Processor) -> State:
    others = [*state.processors[:index], processor, *state.processors[index + 1 :]]
    return state._replace(processors=tuple(sorted(others, key=repr)))
