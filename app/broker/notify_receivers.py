"""Notify: wake waiting receivers for every message that becomes receivable, and count what has happened to messages.

Each operation and background loop passes the states in which the store has left its messages. Only this module decides
which receivers to wake and whether the schedule changes. A lost notification is harmless: receivers also poll once per
second.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

import msgspec

from app.broker.filtering.search_state import SearchRegistry
from app.broker.ports.notifier import Counters, Notifier
from app.broker.ports.settling import Admitted
from app.domain.delivery import DeliveryPosition, wait_key_of
from app.domain.message import DEFAULT_PRIORITY, Draft, Message, MessageState, Receipt
from app.domain.settlement import Move, Outcome, Removal
from app.runtime.wait_queue import WaitQueue

RECEIVABLE_STATES = (MessageState.AVAILABLE, MessageState.DEAD_LETTERED)
"""States that a receiver can wait for. Deferred messages are received by sequence number, without waiting."""


class StateChange(msgspec.Struct, frozen=True):
    """The state of a message after a committed change."""

    queue_id: int
    sequence_number: int
    state: MessageState
    position: DeliveryPosition | None = None
    """Its position in the order of delivery, if known."""


@dataclass(frozen=True, slots=True)
class ReceiverNotifier:
    """Notifies the receivers and the searches of this process and of the others."""

    notifier: Notifier
    searches: SearchRegistry
    counters: Counters

    def notify(self, changes: Iterable[StateChange]) -> None:
        """Wake one receiver for each receivable message, and the schedule loop if a message is scheduled."""
        counts: defaultdict[int, int] = defaultdict(int)
        passed: defaultdict[int, list[int]] = defaultdict(list)
        is_scheduled = False
        for change in changes:
            if change.state in RECEIVABLE_STATES:
                wait_key = wait_key_of(change.queue_id, change.state)
                counts[wait_key] += 1
                if wait_key in self.searches.by_wait_key:
                    self.searches.note_receivable(wait_key, change.sequence_number, change.position)
                # A search that has read to the end may have passed such a position.
                if change.position is None or -change.position[0] > DEFAULT_PRIORITY:
                    passed[wait_key].append(change.sequence_number)
            elif change.state is MessageState.SCHEDULED:
                is_scheduled = True
        for wait_key, count in counts.items():
            self.notifier.notify(wait_key, count, passed.get(wait_key, ()))
        if is_scheduled:
            self.notifier.schedule_changed()

    def notify_sent(self, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
        """Notify receivers of sent messages, and count them. The first send of a duplicate has done both already."""
        changes: list[StateChange] = []
        for draft, receipt in zip(drafts, receipts, strict=True):
            if receipt.duplicate:
                continue
            self.counters.count_messages(draft.queue_id, "sent")
            number, state = receipt.sequence_number, receipt.state
            if state is not None:
                position = (-draft.priority, receipt.enqueued_at, number)
                changes.append(StateChange(draft.queue_id, number, state, position))
        self.notify(changes)

    def notify_moved(self, moves: Sequence[Move], effective: Sequence[bool]) -> None:
        """Notify receivers of the moves that took effect, and count them."""
        changes: list[StateChange] = []
        for move in compress(moves, effective):
            self.counters.count_messages(move.queue_id, move.outcome)
            # A failed message that has reached a limit is dead-lettered by the move that ends its delivery.
            if move.dead_letter_reason is not None and move.outcome is not Outcome.DEAD_LETTERED:
                self.counters.count_messages(move.queue_id, Outcome.DEAD_LETTERED)
            changes.append(StateChange(move.queue_id, move.token.sequence_number, move.state))
        if changes:
            self.notify(changes)

    def count_removed(self, removals: Iterable[Removal]) -> None:
        """Count the removals that took effect. They leave nothing to receive."""
        for removal in removals:
            self.counters.count_messages(removal.queue_id, removal.outcome)

    def notify_admitted(self, admitted: Sequence[Admitted]) -> None:
        """Notify receivers of messages that became available because others have left their group."""
        self.notify(
            StateChange(
                message.queue_id,
                message.sequence_number,
                MessageState.AVAILABLE,
                (-message.priority, message.available_at, message.sequence_number),
            )
            for message in admitted
        )

    def notify_message(self, message: Message) -> None:
        """Notify receivers of a message in its current state."""
        self.notify([StateChange(message.queue_id, message.sequence_number, message.state)])

    def notify_enabled(self, queue_id: int, available: int, dead_lettered: int) -> None:
        """Notify receivers of the messages in a queue that accepts receives again."""
        for state, count in ((MessageState.AVAILABLE, available), (MessageState.DEAD_LETTERED, dead_lettered)):
            if count:
                self.notifier.notify(wait_key_of(queue_id, state), count)


def on_remote_messages(
    searches: SearchRegistry, wait_queue: WaitQueue[int], wait_key: int, sequence_numbers: Sequence[int]
) -> None:
    """Handle a notification from another process: these messages may be before the positions of local searches."""
    for number in sequence_numbers:
        searches.note_receivable(wait_key, number, None)
    if searches.has_receivers(wait_key):
        wait_queue.wake(wait_key)
