"""Reports to the server whether this worker receives, so that its operators see why it does not."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import asynccontextmanager, suppress

from msgspec import UNSET

from peeklock_client.connection import Connection
from peeklock_client.errors import PeeklockError, QueueNotFound, Refusal
from peeklock_client.generated.requests import ReportConsumer
from peeklock_client.push.circuit import Circuit

log = logging.getLogger("peeklock.worker")

TTL_SECONDS = 60.0
"""How long the server lists a worker that was killed."""

REPEAT_SECONDS = TTL_SECONDS / 3
"""Two reports in a row may be lost before the server stops listing the worker."""

LIMIT_SECONDS = 5.0
"""How long a report may take. A stop of the worker waits for the last ones."""

MAX_REASON_LENGTH = MAX_TARGET_LENGTH = 500
"""The longest texts that the server accepts."""

MAX_HOST_LENGTH = 100
UNKNOWN_OPERATION = (404, 405)
"""The answers of an older server, which has no operations on consumers, and of a proxy that blocks them."""


def consumer_name(host: str) -> str:
    """Return a name for a process: its host and random digits, because the containers of a pod share their host name."""
    allowed = re.sub(r"[^A-Za-z0-9.-]", "-", host)[:MAX_HOST_LENGTH].strip(".-")
    return f"{allowed or 'worker'}-{secrets.token_hex(4)}"


class Reports:
    """The reports of one worker about each of its queues.

    A report is sent when the circuit opens or closes, and repeated as long as the worker runs. No failure of a report
    changes what the worker does. The first one of a queue is logged, and the next one only after a report that succeeds.
    """

    def __init__(self, api: Connection, queues: Iterable[str], target: str, circuit: Circuit, consumer: str) -> None:
        self._api = api
        self._queues = tuple(queues)
        self._target = target[:MAX_TARGET_LENGTH]
        self._circuit = circuit
        self._consumer = consumer
        self._is_supported = True
        self._reported: set[str] = set()
        self._failing: set[str] = set()

    @asynccontextmanager
    async def repeated(self) -> AsyncGenerator[None]:
        """Report until the end of the block, and remove the reports there."""
        switched = asyncio.Event()
        self._circuit.on_switch(switched.set)
        task = asyncio.create_task(self._repeat(switched), name="peeklock reports of a push")
        try:
            yield
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(ended, Exception):
                log.error("reports to the server ended early", exc_info=ended)
            await asyncio.gather(*map(self._remove, self._reported))

    async def _repeat(self, switched: asyncio.Event) -> None:
        while self._is_supported:
            switched.clear()
            await asyncio.gather(*map(self._report, self._queues))
            with suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_SECONDS):
                    await switched.wait()

    async def _report(self, queue: str) -> None:
        if await self._has_succeeded(queue, self._api.report_consumer(queue, self._consumer, self._body())):
            self._reported.add(queue)

    async def _remove(self, queue: str) -> None:
        await self._has_succeeded(queue, self._api.remove_consumer(queue, self._consumer))

    async def _has_succeeded(self, queue: str, request: Awaitable[None]) -> bool:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await request
        except (PeeklockError, TimeoutError) as error:
            self._note_failure(queue, error)
            return False
        self._failing.discard(queue)
        return True

    def _note_failure(self, queue: str, error: PeeklockError | TimeoutError) -> None:
        if _means_unsupported(error):
            if self._is_supported:
                log.warning("the server does not know consumers: it does not show whether this worker receives")
            self._is_supported = False
        elif queue not in self._failing:
            self._failing.add(queue)
            reason = str(error) or f"no answer within {LIMIT_SECONDS:g} s"
            log.warning("the server does not show whether this worker receives from %s: %s", queue, reason)

    def _body(self) -> ReportConsumer:
        if not self._circuit.is_open:
            return ReportConsumer("receiving", UNSET, self._target, TTL_SECONDS)
        return ReportConsumer("paused", _printable(self._circuit.reason)[:MAX_REASON_LENGTH], self._target, TTL_SECONDS)


def _means_unsupported(error: Exception) -> bool:
    return (
        isinstance(error, Refusal)
        and error.problem.status in UNKNOWN_OPERATION
        and not isinstance(error, QueueNotFound)
    )


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
