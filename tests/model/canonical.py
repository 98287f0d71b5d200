"""One form for all states that can never be told apart: forget the unreachable, renumber the rest, sort what has no
order."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.state import NEVER_USED, Evidence, Handler, Lock, Receiver, Record, Row, State

Numbering = dict[int, int]


def canonical(state: State) -> State:
    """The same state for all that differ only in names: of receivers, sweepers, tokens, generations."""
    tokens = _numbering(_tokens(state))
    locks = tuple(
        _without_dead_record(state.locks[token - 1], token == state.row.token) for token in tokens if token > 0
    )
    generations = _numbering(_generations(state, locks))
    row, receivers, abandoned, sweepers = state.row, state.receivers, state.abandoned, state.sweepers
    if any(old != new for old, new in (*tokens.items(), *generations.items())):
        row = Row(tokens[row.token] if row.token > 0 else row.token, row.left, generations[row.generation])
        locks = tuple(_renumber_lock(lock, generations) for lock in locks)
        receivers = tuple(_renumber_receiver(receiver, tokens, generations) for receiver in receivers)
        abandoned = tuple(_renumber_handler(handler, tokens, generations) for handler in abandoned)
        sweepers = tuple(s and Evidence(tokens[s[0]], generations[s[1]]) for s in sweepers)
    return State(
        row,
        locks,
        tuple(sorted(receivers)),
        tuple(sorted(abandoned)),
        tuple(sorted(sweepers)),
        state.faults,
        state.timeouts,
    )


def without_doomed_requests(state: State) -> State:
    """Where every statement names its token and every miss ends in a look-up, only the tombstone matters to a request
    whose token locks nothing."""
    return state._replace(
        receivers=tuple(
            receiver._replace(request=_doomed_request(state, receiver.request)) if receiver.request else receiver
            for receiver in state.receivers
        ),
        abandoned=tuple(_doomed_request(state, handler) for handler in state.abandoned),
        sweepers=tuple(carried if carried and carried.token == state.row.token else () for carried in state.sweepers),
    )


def _doomed_request(state: State, handler: Handler) -> Handler:
    """Such a request goes to its only possible end, the tombstone, once no record can be extended or written."""
    token, step = handler.token, handler.step
    if token in (0, state.row.token) or step in ("record", "undo", "look_up", "again", "glance"):
        return handler
    if step == "peek" and state.locks[token - 1].record:
        return handler
    return Handler(handler.verb, "look_up", token)


def _numbering(names: Iterator[int]) -> Numbering:
    """Old name to new, in the old order; 0 keeps its meaning of none."""
    return {old: new for new, old in enumerate(sorted({0, *names}))}


def _tokens(state: State) -> Iterator[int]:
    """Tokens that a client can still name. No request will ever name another one, its record or its tombstone."""
    if state.row.token > 0:
        yield state.row.token
    for receiver in state.receivers:
        yield receiver.token
        if receiver.request:
            yield receiver.request.token
    for handler in state.abandoned:
        yield handler.token
    for evidence in state.sweepers:
        if evidence:
            yield evidence.token


def _generations(state: State, locks: tuple[Lock, ...]) -> Iterator[int]:
    yield state.row.generation
    for lock in locks:
        if lock.record:
            yield lock.record.generation
    for receiver in state.receivers:
        if receiver.request:
            yield receiver.request.generation
    for handler in state.abandoned:
        yield handler.generation
    for evidence in state.sweepers:
        if evidence:
            yield evidence.generation


def _without_dead_record(lock: Lock, current: bool) -> Lock:
    """The expired record of a token that locks nothing has no effect; it equals an absent one."""
    if not current and lock.record and lock.record.deadline == 0:
        return lock._replace(record=None) if lock.outcome else NEVER_USED
    return lock


def _renumber_lock(lock: Lock, generations: Numbering) -> Lock:
    if lock.record is None:
        return lock
    generation, deadline, bound = lock.record
    return Lock(Record(generations[generation], deadline, bound), lock.outcome)


def _renumber_handler(handler: Handler, tokens: Numbering, generations: Numbering) -> Handler:
    verb, step, token, age, generation = handler
    return Handler(verb, step, tokens[token], age, generations[generation])


def _renumber_receiver(receiver: Receiver, tokens: Numbering, generations: Numbering) -> Receiver:
    about, token, promise, request = receiver
    return Receiver(about, tokens[token], promise, request and _renumber_handler(request, tokens, generations))
