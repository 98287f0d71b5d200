"""Visits every state of a model, keeps the shortest path to each broken promise, and finds states without a way out."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
"""A state: a value, so that equal states are one state."""

FAULT = "! "
"""The prefix of labels of faults. A way out must not need a fault."""

STUCK = "stuck for ever"


class Model(Protocol[S]):
    """What the explorer needs to know of a model."""

    @property
    def start(self) -> S: ...

    def steps(self, state: S, /) -> Iterable[tuple[str, S, str]]:
        """Every step possible from a state: its label, the state after it, and the promise it breaks or ''."""
        ...

    def broken(self, state: S, /) -> Iterable[str]:
        """The promises broken by being in this state."""
        ...

    def finished(self, state: S, /) -> bool:
        """Whether a state is one that every state must be able to reach."""
        ...


@dataclass
class Exploration:
    """The result of a run. `paths` maps each broken promise to the labels of a shortest path to it."""

    states: int = 0
    steps: int = 0
    complete: bool = False
    paths: dict[str, list[str]] = field(default_factory=dict)

    @property
    def broken(self) -> frozenset[str]:
        return frozenset(self.paths)


class _Graph(Generic[S]):
    """The states seen, in the order of their distance, and the steps between them."""

    def __init__(self, start: S) -> None:
        self.states: list[S] = [start]
        self._number: dict[S, int] = {start: 0}
        self._parent = array("i", [-1])
        self._label = [""]
        self._targets = array("i")
        self._offsets = array("i", [0])
        self.steps = 0

    def add(self, source: int, label: str, state: S) -> None:
        number = self._number.get(state)
        if number is None:
            number = self._number[state] = len(self.states)
            self.states.append(state)
            self._parent.append(source)
            self._label.append(label)
        self.steps += 1
        if not label.startswith(FAULT):
            self._targets.append(number)

    def close(self) -> None:
        """End the list of steps of the state being expanded."""
        self._offsets.append(len(self._targets))

    def path_to(self, number: int) -> list[str]:
        labels = []
        while number:
            labels.append(self._label[number])
            number = self._parent[number]
        return labels[::-1]

    def first_stuck_state(self, model: Model[S]) -> int | None:
        """The nearest state from which steps without faults reach no finished state."""
        can_finish = bytearray(model.finished(state) for state in self.states)
        waiting = [number for number, done in enumerate(can_finish) if not done]
        while True:
            # Backwards, because most steps lead away from the start: few rounds are needed.
            unresolved = []
            for number in reversed(waiting):
                targets = self._targets[self._offsets[number] : self._offsets[number + 1]]
                if any(can_finish[target] for target in targets):
                    can_finish[number] = 1
                else:
                    unresolved.append(number)
            if len(unresolved) == len(waiting):
                return min(waiting, default=None)
            waiting = unresolved[::-1]


def explore(
    model: Model[S], stop_when_broken: frozenset[str] = frozenset(), max_states: int = 10_000_000
) -> Exploration:
    """Search breadth first; stop early once every promise in `stop_when_broken` is broken, or at `max_states` states."""
    graph, exploration = _Graph(model.start), Exploration()
    number = 0
    while number < len(graph.states) and len(graph.states) < max_states:
        _expand(model, graph, number, exploration)
        if stop_when_broken and stop_when_broken <= exploration.broken:
            break
        number += 1
    exploration.states, exploration.steps = len(graph.states), graph.steps
    exploration.complete = number == len(graph.states)
    if exploration.complete:
        stuck = graph.first_stuck_state(model)
        if stuck is not None:
            exploration.paths[STUCK] = graph.path_to(stuck)
    return exploration


def _expand(model: Model[S], graph: _Graph[S], number: int, exploration: Exploration) -> None:
    state = graph.states[number]
    for promise in model.broken(state):
        if promise not in exploration.paths:
            exploration.paths[promise] = graph.path_to(number)
    for label, after, promise in model.steps(state):
        graph.add(number, label, after)
        if promise and promise not in exploration.paths:
            exploration.paths[promise] = [*graph.path_to(number), label]
    graph.close()
