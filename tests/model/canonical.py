"""One form for all equivalent states: drop what is unreachable, renumber the rest, and sort what has no order."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.state import NEVER_USED, ExpiredRecord, Handler, Lock, Receiver, Record, State

Numbering = dict[int, int]

KEPT_STEPS = ("record", "change_record", "look_up", "repeat_claim", "read_tombstone_early")
"""Steps that matter even if their token locks nothing: they write a record, or they are the last ones."""


def canonical(state: State) -> State:
    """Return one state for all that differ only in the names of receivers, sweepers, tokens and generations."""
    tokens = _numbering(_tokens(state))
    locks = tuple(
        _without_dead_record(state.locks[token - 1], token == state.row.token) for token in tokens if token > 0
    )
    generations = _numbering(_generations(state, locks))
    row, receivers, abandoned, sweepers = state.row, state.receivers, state.abandoned, state.sweepers
    if any(old != new for old, new in (*tokens.items(), *generations.items())):
        token = tokens[row.token] if row.token > 0 else row.token
        row = row._replace(token=token, generation=generations[row.generation])
        locks = tuple(_renumber_lock(lock, generations) for lock in locks)
        receivers = tuple(_renumber_receiver(receiver, tokens, generations) for receiver in receivers)
        abandoned = tuple(_renumber_handler(handler, tokens, generations) for handler in abandoned)
        sweepers = tuple(
            carried and ExpiredRecord(tokens[carried.token], generations[carried.generation]) for carried in sweepers
        )
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
    """Return the state with requests whose token locks nothing moved to their last step.

    Every statement names its token and every miss ends in a look-up, so only the tombstone matters to them.
    """
    return state._replace(
        receivers=tuple(
            receiver._replace(request=_doomed_request(state, receiver.request)) if receiver.request else receiver
            for receiver in state.receivers
        ),
        abandoned=tuple(_doomed_request(state, handler) for handler in state.abandoned),
        sweepers=tuple(carried if carried and carried.token == state.row.token else () for carried in state.sweepers),
    )


def _doomed_request(state: State, handler: Handler) -> Handler:
    """Move the request to its only possible end, the tombstone, once no record can be extended or written."""
    token, step = handler.token, handler.step
    if token in (0, state.row.token) or step in KEPT_STEPS:
        return handler
    if step == "renew_record" and state.locks[token - 1].record:
        return handler
    return Handler(handler.verb, "look_up", token)


def _numbering(names: Iterator[int]) -> Numbering:
    """Map old names to new ones in the old order. 0 still means none."""
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
    for expired_record in state.sweepers:
        if expired_record:
            yield expired_record.token


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
    for expired_record in state.sweepers:
        if expired_record:
            yield expired_record.generation


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
    intent, token, promise, request = receiver
    return Receiver(intent, tokens[token], promise, request and _renumber_handler(request, tokens, generations))
