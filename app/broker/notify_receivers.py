"""Announce: wakes waiting receivers for every message that becomes receivable.

Each verb and pass hands over the states in which the store says its messages are now. Which line of receivers
hears of them, and whether the schedule changes, is decided here alone. A lost announcement is harmless: receivers
also look once a second.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress

from app.broker.broker import Broker
from app.domain.delivery import DeliveryPosition, wait_key_of
from app.domain.message import DEFAULT_PRIORITY, Draft, Message, MessageState, Receipt
from app.domain.settlement import Move

RECEIVABLE_STATES = (MessageState.AVAILABLE, MessageState.DEAD_LETTERED)
"""States that a receiver can wait for. Deferred messages are asked for by number, without waiting."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A message in the state in which a committed change has left it."""

    queue_id: int
    sequence_number: int
    state: MessageState
    position: DeliveryPosition | None = None
    """Where it stands in the order of delivery, if that is known."""

    @property
    def may_be_behind_search(self) -> bool:
        """Whether it may stand where a search has been that has looked at all there was."""
        return self.position is None or -self.position[0] > DEFAULT_PRIORITY


def notify_receivers(broker: Broker, changes: Iterable[StateChange]) -> None:
    """Wake one receiver for each receivable message, and the schedule pass where a message now waits for its time."""
    by_wait_key: defaultdict[int, list[StateChange]] = defaultdict(list)
    is_scheduled = False
    for change in changes:
        if change.state in RECEIVABLE_STATES:
            wait_key = wait_key_of(change.queue_id, change.state)
            by_wait_key[wait_key].append(change)
            broker.searches.note_receivable(wait_key, change.sequence_number, change.position)
        is_scheduled = is_scheduled or change.state is MessageState.SCHEDULED
    for wait_key, arrived in by_wait_key.items():
        passed = [one.sequence_number for one in arrived if one.may_be_behind_search]
        broker.notifier.notify(wait_key, len(arrived), passed)
    if is_scheduled:
        broker.notifier.schedule_changed()


def on_remote_messages(broker: Broker, wait_key: int, sequence_numbers: Sequence[int]) -> None:
    """Another process tells of messages that became receivable where the searches of this one may have been."""
    for number in sequence_numbers:
        broker.searches.note_receivable(wait_key, number, None)
    if broker.searches.has_receivers(wait_key):
        broker.wait_queue.wake(wait_key)


def notify_sent(broker: Broker, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
    """Announce what a send has stored. A duplicate was stored, and announced, by an earlier send."""
    notify_receivers(
        broker,
        (
            StateChange(
                draft.queue_id,
                receipt.sequence_number,
                receipt.state,
                (-draft.priority, receipt.enqueued_at, receipt.sequence_number),
            )
            for draft, receipt in zip(drafts, receipts, strict=True)
            if not receipt.duplicate
        ),
    )


def notify_moved(broker: Broker, moves: Sequence[Move], effective: Sequence[bool]) -> None:
    """Announce those moves that took effect."""
    notify_receivers(
        broker,
        (StateChange(move.queue_id, move.token.sequence_number, move.state) for move in compress(moves, effective)),
    )


def notify_message(broker: Broker, message: Message) -> None:
    """Announce a message as it stands after a change."""
    notify_receivers(broker, [StateChange(message.queue_id, message.sequence_number, message.state)])


def notify_enabled(broker: Broker, queue_id: int, available: int, dead_lettered: int) -> None:
    """Announce what a queue holds when it is opened to receivers again."""
    for state, count in ((MessageState.AVAILABLE, available), (MessageState.DEAD_LETTERED, dead_lettered)):
        if count:
            broker.notifier.notify(wait_key_of(queue_id, state), count)


def connect_notifications(broker: Broker) -> None:
    """Announce also what is stored after its sender was answered, and what the store gives back by itself."""
    broker.volatile_buffer.on_stored = partial(notify_sent, broker)
    broker.store.on_moved = partial(notify_moved, broker)
