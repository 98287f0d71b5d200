"""What the model remembers: one message row, the lock store, and every party that is between two steps.

Time is relative: every counter says how many ticks are left (or have passed), and a tick moves all of them, so time has no end
and the states are still finitely many. For the same end `canonical` forgets what no request can name any more, and
renumbers tokens and generations in order: deliveries and renewals are unbounded too.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

AVAILABLE = 0
DONE = -1
"""A row's `token` when it is not locked. A lock token itself is a positive number."""

UNREAD = -1
"""A handler's `age` when it has not read the lock store's clock."""


class Row(NamedTuple):
    """The message in SQL: who locks it, the ticks left of `locked_until`, and the generation of the lock."""

    token: int
    left: int
    generation: int


class Record(NamedTuple):
    """The lock store's record of one token: ticks left until its deadline, and until no renewal may pass."""

    generation: int
    deadline: int
    bound: int


class Lock(NamedTuple):
    """What is remembered of one token: its record, and its tombstone (the verb that took effect, or '')."""

    record: Record | None
    outcome: str


class Handler(NamedTuple):
    """A request inside the service. `age`: ticks since it read the lock store's clock. `generation`: the one it
    read as evidence (0: none) or, once it has renewed, the one it wrote."""

    verb: str
    step: str
    token: int
    age: int = UNREAD
    generation: int = 0


class Receiver(NamedTuple):
    """A client: what it is about, for which token, the ticks left of the promise it was given, its request."""

    intent: str
    token: int
    promise: int
    request: Handler | tuple[()]


IDLE = Receiver("", 0, 0, ())
NEVER_USED = Lock(None, "")


class Evidence(NamedTuple):
    """What a sweeper carries from the lock store to SQL: this generation of this token has expired."""

    token: int
    generation: int


class State(NamedTuple):
    """Everything. `abandoned` are requests whose caller has gone; `faults` and `timeouts` may still happen."""

    row: Row
    locks: tuple[Lock, ...]
    receivers: tuple[Receiver, ...]
    abandoned: tuple[Handler, ...]
    sweepers: tuple[Evidence | tuple[()], ...]
    faults: int
    timeouts: int


def replaced(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    return (*items[:index], item, *items[index + 1 :])
