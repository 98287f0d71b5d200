"""The consumers that the page of a queue lists, and the paused consumers of all queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.broker.ports.consumer_directory import ConsumerDirectory
from app.console.formats import format_time
from app.domain.consumer import ConsumerState, ConsumersUnknown, ListedConsumer
from app.wire.times import to_wire

UNKNOWN = "The consumers are not known now, because Redis does not answer this server."
NO_CONSUMER = "No consumer reports itself. Workers that push do, and other consumers can."


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """One consumer. `since` is when its state began, `reported` when it reported itself last, each also as a text."""

    id: str
    name: str
    principal: str
    target: str
    state: str
    reason: str
    since: str
    since_text: str
    reported: str
    reported_text: str


@dataclass(frozen=True, slots=True)
class ConsumerTable:
    """The consumers of a queue. `note` says why there is no row, and is empty if there is one."""

    note: str
    rows: Sequence[ConsumerRow]


class PausedConsumers:
    """The consumers that were paused at the last sample. It is empty while Redis does not answer, and the page then says so."""

    def __init__(self, directory: ConsumerDirectory) -> None:
        self._directory = directory
        self._by_queue: Mapping[int, Sequence[ListedConsumer]] = {}

    async def read(self) -> None:
        """Read them now."""
        try:
            self._by_queue = await self._directory.paused()
        except ConsumersUnknown:
            self._by_queue = {}

    def of(self, queue_id: int) -> Sequence[ListedConsumer]:
        """Return those of a queue."""
        return self._by_queue.get(queue_id, ())


async def consumers_of(directory: ConsumerDirectory, queue_id: int) -> Sequence[ListedConsumer] | None:
    """Return the consumers of a queue as they are now, None if they are not known."""
    try:
        return await directory.of_queue(queue_id)
    except ConsumersUnknown:
        return None


def paused_among(listed: Sequence[ListedConsumer] | None) -> Sequence[ListedConsumer]:
    """Return those that are paused."""
    return [one for one in listed or () if one.report.state is ConsumerState.PAUSED]


def consumer_table(listed: Sequence[ListedConsumer] | None) -> ConsumerTable:
    """Return the table of these consumers. None stands for consumers that are not known."""
    if listed is None:
        return ConsumerTable(UNKNOWN, ())
    return ConsumerTable("" if listed else NO_CONSUMER, [_row(one) for one in listed])


def _row(listed: ListedConsumer) -> ConsumerRow:
    report = listed.report
    return ConsumerRow(
        f"{report.consumer} {report.principal}",
        report.consumer,
        report.principal,
        report.target or "–",
        report.state.value,
        report.reason,
        to_wire(listed.state_since),
        format_time(listed.state_since),
        to_wire(listed.reported_at),
        format_time(listed.reported_at),
    )
