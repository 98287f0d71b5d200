"""The state of the model: one message row, the lock store, and every participant between two steps.

Time is relative: every counter holds the ticks that are left or have passed, and a tick changes all of them. So time is
unbounded and the number of states is finite. For the same reason `canonical` drops what no request can name any more,
and renumbers tokens and generations: deliveries and renewals are unbounded too.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

AVAILABLE = 0
DONE = -1
"""A row's `token` when it is not locked. A lock token itself is a positive number."""

UNREAD = -1
"""A handler's `age` when it has not read the lock store's clock."""

NOT_CHANGED = -1
"""A row's `ends` if its lock was not changed since its last renewal, or if the lock store has lost the change."""


class Row(NamedTuple):
    """The message in SQL: the token that locks it, the ticks until `locked_until`, and the generation of the lock.

    `ends` is what a holder was told by the last change: the ticks until the lock must have ended, or `NOT_CHANGED`.
    """

    token: int
    left: int
    generation: int
    ends: int = -1


class Record(NamedTuple):
    """The lock store's record of one token, with the ticks until its deadline and until its bound."""

    generation: int
    deadline: int
    bound: int


class Lock(NamedTuple):
    """One token: its record, and its tombstone (the verb that took effect, or '')."""

    record: Record | None
    outcome: str


class Handler(NamedTuple):
    """A request inside the service.

    `age` is the number of ticks since it read the lock store's clock. `generation` is that of the expired record which it
    read (0: none), after a renewal the one that it wrote, or before a change in SQL the one of the row which it read.
    """

    verb: str
    step: str
    token: int
    age: int = UNREAD
    generation: int = 0


class Receiver(NamedTuple):
    """A client: its intent, its token, the ticks left of its promise, and its request.

    The intent `hold` is that of a holder, and `doubt` that of a holder with an unanswered change.
    """

    intent: str
    token: int
    promise: int
    request: Handler | tuple[()]


IDLE = Receiver("", 0, 0, ())
NEVER_USED = Lock(None, "")


class ExpiredRecord(NamedTuple):
    """What a sweeper has read in the lock store: this generation of this token has expired."""

    token: int
    generation: int


class State(NamedTuple):
    """The whole state. `abandoned` are requests whose caller has left; `faults` and `timeouts` can still happen."""

    row: Row
    locks: tuple[Lock, ...]
    receivers: tuple[Receiver, ...]
    abandoned: tuple[Handler, ...]
    sweepers: tuple[ExpiredRecord | tuple[()], ...]
    faults: int
    timeouts: int


def replaced(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    return (*items[:index], item, *items[index + 1 :])
