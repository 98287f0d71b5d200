"""Release: the holder returns a message that it has not begun to process. The delivery is not counted."""

from app.broker.settle import PendingSettlement
from app.domain.queue import Queue
from app.domain.settlement import LockedMessage, LockToken, Move, Outcome, release_unprocessed


def release(_queue: Queue, token: LockToken) -> PendingSettlement:
    """The settlement that undoes a delivery (S2.21).

    The message returns to its state and position. `delivery_count` is as before the delivery, and no failure is counted, so a
    release never dead-letters a message.
    """

    def build(locked: LockedMessage, _random_fraction: float) -> Move:
        return release_unprocessed(locked)

    return PendingSettlement(token, Outcome.RELEASED, build)
