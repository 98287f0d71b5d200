"""Seals the archive: ended messages gather for some seconds and then become a batch that never changes."""

from app.broker.administration.ports import AdministrationPorts
from app.domain.archive import BATCH_SPAN, UnsealedMessage
from app.domain.instant import from_seconds, to_seconds

START = 0

MIN_DELAY_SECONDS = 0.1
"""Messages that reach the minimum age shortly after each other are sealed together."""


class ArchiveSealer:
    """Scans the unsealed messages in the order of their removal, one `BATCH_SPAN` at a time, in every replica.

    Messages of queues with different retentions are far apart in that order, so they do not wait for each other.
    """

    def __init__(self, ports: AdministrationPorts, seal_seconds: float) -> None:
        self._ports = ports
        self._min_age = from_seconds(seal_seconds)
        self._restart()

    def _restart(self) -> None:
        self._since = START
        self._delay = self._min_age

    async def step(self) -> float | None:
        """Seal the messages in the next span once they are old enough; return a delay at the end of the scan."""
        first = await self._ports.store.archive.first_unsealed(self._since)
        if first is None:
            delay = to_seconds(self._delay)
            self._restart()
            return max(delay, MIN_DELAY_SECONDS)
        missing = self._min_age - first.age
        if missing > 0:
            self._delay = min(self._delay, missing)
            self._since = first.remove_at + BATCH_SPAN + 1
        else:
            await self._seal(first)
        return 0.0

    async def _seal(self, first: UnsealedMessage) -> None:
        """Seal a batch and continue at its end, because it may have been full.

        If another process is sealing these messages, continue after the span.
        """
        batch = await self._ports.store.archive.seal(first)
        self._since = batch.remove_at if batch else first.remove_at + BATCH_SPAN + 1
        self._ports.counters.count("messages_sealed", batch.row_count if batch else 0)
