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
from app.domain.delivery import Place, line_of
from app.domain.message import DEFAULT_PRIORITY, Draft, Message, MessageState, Receipt
from app.domain.settlement import Move

RECEIVABLE = (MessageState.AVAILABLE, MessageState.DEAD_LETTERED)
"""States that a receiver can wait for. Deferred messages are asked for by number, without waiting."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message in the state in which a committed change has left it."""

    queue_id: int
    sequence_number: int
    state: MessageState
    place: Place | None = None
    """Where it stands in the order of delivery, if that is known."""

    @property
    def may_be_passed(self) -> bool:
        """Whether it may stand where a search has been that has looked at all there was."""
        return self.place is None or -self.place[0] > DEFAULT_PRIORITY


def announce(broker: Broker, arrivals: Iterable[Arrival]) -> None:
    """Wake one receiver for each receivable message, and the schedule pass where a message now waits for its time."""
    lines: defaultdict[int, list[Arrival]] = defaultdict(list)
    is_scheduled = False
    for arrival in arrivals:
        if arrival.state in RECEIVABLE:
            line = line_of(arrival.queue_id, arrival.state)
            lines[line].append(arrival)
            broker.searches.note(line, arrival.sequence_number, arrival.place)
        is_scheduled = is_scheduled or arrival.state is MessageState.SCHEDULED
    for line, arrived in lines.items():
        passed = [one.sequence_number for one in arrived if one.may_be_passed]
        broker.bells.ring(line, len(arrived), passed)
    if is_scheduled:
        broker.bells.schedule_changed()


def hear_of_passed(broker: Broker, line: int, sequence_numbers: Sequence[int]) -> None:
    """Another process tells of messages that became receivable where the searches of this one may have been."""
    for number in sequence_numbers:
        broker.searches.note(line, number, None)
    if broker.searches.has_receivers(line):
        broker.waiting.ring(line)


def announce_sent(broker: Broker, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
    """Announce what a send has stored. A duplicate was stored, and announced, by an earlier send."""
    announce(
        broker,
        (
            Arrival(
                draft.queue_id,
                receipt.sequence_number,
                receipt.state,
                (-draft.priority, receipt.enqueued_at, receipt.sequence_number),
            )
            for draft, receipt in zip(drafts, receipts, strict=True)
            if not receipt.duplicate
        ),
    )


def announce_moved(broker: Broker, moves: Sequence[Move], effective: Sequence[bool]) -> None:
    """Announce those moves that took effect."""
    announce(
        broker,
        (Arrival(move.queue_id, move.token.sequence_number, move.state) for move in compress(moves, effective)),
    )


def announce_message(broker: Broker, message: Message) -> None:
    """Announce a message as it stands after a change."""
    announce(broker, [Arrival(message.queue_id, message.sequence_number, message.state)])


def announce_open(broker: Broker, queue_id: int, available: int, dead_lettered: int) -> None:
    """Announce what a queue holds when it is opened to receivers again."""
    for state, count in ((MessageState.AVAILABLE, available), (MessageState.DEAD_LETTERED, dead_lettered)):
        if count:
            broker.bells.ring(line_of(queue_id, state), count)


def connect(broker: Broker) -> None:
    """Announce also what is stored after its sender was answered, and what the store gives back by itself."""
    broker.outbox.on_stored = partial(announce_sent, broker)
    broker.store.on_moved = partial(announce_moved, broker)
