"""What every verb is handed: the rooms, opened by main, behind their ports."""

from collections.abc import Callable
from dataclasses import dataclass

from app.broker.catalogue import Catalogue
from app.broker.outbox import Outbox
from app.broker.ports import Bells, Locks, Store, Tally
from app.broker.searches import Searches
from app.domain.weight import LARGEST_ANSWER
from app.runtime.bell import Bell
from app.runtime.byte_budget import ByteBudget
from app.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Broker:
    """The rooms of one process. `chance` gives a fraction in [0, 1), `new_id` a fresh message id.

    `answers` counts the bytes that are read for answers or being written. `largest_answer` is what the messages of one
    answer weigh at most, unless it is one message.
    """

    store: Store
    locks: Locks
    catalogue: Catalogue
    waiting: Bell[int]
    bells: Bells
    outbox: Outbox
    searches: Searches
    tally: Tally
    clock: Clock
    chance: Callable[[], float]
    new_id: Callable[[], str]
    answers: ByteBudget
    largest_answer: int = LARGEST_ANSWER
