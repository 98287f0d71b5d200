"""The consumer directory in Redis, shared by all processes. Times are those of Redis alone."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from app.domain.consumer import (
    MAX_CONSUMERS,
    MAX_CONSUMERS_OF_QUEUE,
    ConsumerReport,
    ConsumerState,
    ConsumersUnknown,
    ListedConsumer,
    TooManyConsumers,
)
from app.domain.instant import Duration
from app.locks.lua_scripts import LIST_CONSUMERS, REPORT_CONSUMER, Script
from app.locks.redis_connection import RedisConnection, ScriptCall
from app.locks.redis_keys import RedisKeys

ENTRY = re.compile(r"(\d{1,19}) (\d{1,17}) (\d{1,17}) (\d{1,17}) [a-z]+ (.*)", re.ASCII)
REMOVED = 0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ConsumerReport).decode


class RedisConsumerDirectory:
    """Implements `ConsumerDirectory`. Each call is one script.

    A Redis that has lost its data lists a consumer again after its next report.
    """

    def __init__(self, connection: RedisConnection, keys: RedisKeys) -> None:
        self._connection = connection
        self._keys = keys.consumers()

    async def report(self, queue_id: int, report: ConsumerReport, ttl: Duration) -> None:
        """See `ConsumerDirectory`."""
        text = _encode(report).decode()
        answer = await self._report(_name(queue_id, report.consumer, report.principal), ttl, report.state, text)
        if answer == "full":
            raise TooManyConsumers

    async def remove(self, queue_id: int, principal: str, consumer: str) -> None:
        """See `ConsumerDirectory`."""
        await self._report(_name(queue_id, consumer, principal), REMOVED, "", "")

    async def of_queue(self, queue_id: int) -> Sequence[ListedConsumer]:
        """See `ConsumerDirectory`."""
        listed = _by_queue(await self._run(LIST_CONSUMERS, str(queue_id), ""))
        return listed.get(queue_id, ())

    async def paused(self) -> Mapping[int, Sequence[ListedConsumer]]:
        """See `ConsumerDirectory`."""
        return _by_queue(await self._run(LIST_CONSUMERS, "", ConsumerState.PAUSED.value))

    async def _report(self, name: str, ttl: Duration, state: str, report: str) -> str:
        return await self._run(
            REPORT_CONSUMER, name, ttl, str(state), report, MAX_CONSUMERS_OF_QUEUE, MAX_CONSUMERS
        )  # fmt: skip

    async def _run(self, script: Script, *arguments: str | int) -> str:
        """Run a script, and return its answer. Raises `ConsumersUnknown` without one."""
        (reply,) = await self._connection.run([ScriptCall(script, self._keys, arguments)])
        if not isinstance(reply, bytes):
            raise ConsumersUnknown
        return reply.decode(errors="replace")


def _name(queue_id: int, consumer: str, principal: str) -> str:
    return f"{queue_id} {consumer} {principal}"


def _by_queue(lines: str) -> Mapping[int, Sequence[ListedConsumer]]:
    found: defaultdict[int, list[ListedConsumer]] = defaultdict(list)
    for queue_id, listed in _entries(lines.split("\n")):
        found[queue_id].append(listed)
    for of_queue in found.values():
        of_queue.sort(key=lambda listed: (listed.report.consumer, listed.report.principal))
    return found


def _entries(lines: Iterable[str]) -> Iterable[tuple[int, ListedConsumer]]:
    """Return the reports of these lines. One that a server of another version has written in another form is left out."""
    for line in lines:
        if (entry := ENTRY.fullmatch(line)) is None:
            continue
        queue_id, *times, text = entry.groups()
        try:
            yield int(queue_id), ListedConsumer(_decode(text), *map(int, times))
        except (msgspec.DecodeError, RecursionError):
            continue
