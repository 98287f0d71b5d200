"""The consumers of one broker, as they report themselves to any of its servers."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.domain.consumer import ConsumerReport, ListedConsumer
from app.domain.instant import Duration


class ConsumerDirectory(Protocol):
    """Keeps the last report of each consumer while it is valid. All methods raise `ConsumersUnknown` if Redis does not answer."""

    async def report(self, queue_id: int, report: ConsumerReport, ttl: Duration) -> None:
        """Keep a report for `ttl`, in place of an earlier one of this consumer. Refuses with `TooManyConsumers`.

        Crash window: if the answer is lost, the report may be kept. It ends after `ttl` in any case.
        """
        ...

    async def remove(self, queue_id: int, principal: str, consumer: str) -> None:
        """Remove the report of a consumer, if there is one."""
        ...

    async def of_queue(self, queue_id: int) -> Sequence[ListedConsumer]:
        """Return the consumers of a queue by name and principal."""
        ...

    async def paused(self) -> Mapping[int, Sequence[ListedConsumer]]:
        """Return the consumers that are paused, by the id of their queue, each by name and principal."""
        ...
