"""Recovers messages that a receive may have locked for a worker, but whose answer was lost, and releases them."""

from __future__ import annotations

import asyncio
import logging
from uuid import uuid4

from peeklock_client.connection import Connection
from peeklock_client.errors import NotConnected, PeeklockError, Refusal, UnexpectedAnswer
from peeklock_client.generated import answers, requests
from peeklock_client.worker.report import WorkerReport

log = logging.getLogger("peeklock.worker")

RECOVERY_SECONDS = 5.0
"""How long the worker tries to recover messages before it continues."""

LATE_SECONDS = 10.0
"""How long after its `wait_seconds` a receive may still lock messages, although its connection is lost."""


class MissedMessages:
    """Names the receives of a worker, and recovers the messages of those whose answer was lost.

    A recovery takes all messages of one `receiver_id`. So no two receives share an id if one of them has answered messages. With
    a `fixed_id`, all receives share it, and a recovery may begin only while the worker holds no messages.
    """

    def __init__(self, api: Connection, queue: str, report: WorkerReport, fixed_id: str | None = None) -> None:
        self._api = api
        self._queue = queue
        self._report = report
        self._fixed_id = fixed_id
        self._worker_id = uuid4().hex
        self._number = 0
        self._doubtful: dict[str, float] = {}

    @property
    def receiver_id(self) -> str:
        """The id for the next receive."""
        return self._fixed_id or f"{self._worker_id}-{self._number}"

    @property
    def needs_idle_worker(self) -> bool:
        """Whether the next recovery would also take the messages that the worker holds."""
        return self._fixed_id is not None and bool(self._doubtful)

    def note_answer(self, messages: int) -> None:
        """Record that the receive with the current id was answered with this number of messages."""
        if messages:
            self._number += 1

    def note_error(self, error: BaseException, wait_seconds: float) -> None:
        """Record how the receive with the current id has failed. It may have locked messages, or may do so until it ends."""
        if not isinstance(error, Refusal | NotConnected):
            self._doubtful[self.receiver_id] = asyncio.get_running_loop().time() + wait_seconds + LATE_SECONDS
            self._number += 1

    async def release(self) -> None:
        """Return the messages of lost answers to the queue, without counting their deliveries.

        Ids are kept until their receives must have ended. If the recovery fails, it is logged, and the next call tries again.
        """
        try:
            async with asyncio.timeout(RECOVERY_SECONDS if self._doubtful else None):
                for receiver_id, ends_at in [*self._doubtful.items()]:
                    await self._recover(receiver_id, ends_at)
        except (PeeklockError, TimeoutError) as error:
            log.warning("queue %s: messages of a lost answer are not recovered yet: %r", self._queue, error)

    async def _recover(self, receiver_id: str, ends_at: float) -> None:
        has_ended = asyncio.get_running_loop().time() >= ends_at
        try:
            while await self._release_page(receiver_id):
                pass
        except (Refusal, UnexpectedAnswer) as error:
            if isinstance(error, Refusal) and error.retryable:
                raise
            log.warning("queue %s: messages of a lost answer stay locked until their locks end: %s", self._queue, error)
            has_ended = True
        if has_ended:
            del self._doubtful[receiver_id]

    async def _release_page(self, receiver_id: str) -> bool:
        """Recover and release messages of this receiver, as many as one answer has. Return whether there were any."""
        recovery = requests.RecoverMessages(receiver_id, count=False)
        recovered = await self._api.recover_messages(self._queue, recovery)
        tokens = [view.lock_token for view in recovered.messages if isinstance(view.lock_token, str)]
        if not tokens:
            return False
        self._report.received += len(tokens)
        settlements = [requests.ReleaseSettlement(token) for token in tokens]
        try:
            settled = await self._api.settle_messages(self._queue, requests.SettleMessages([*settlements]))
        except BaseException:
            self._report.in_doubt += len(tokens)
            raise
        returned = sum(isinstance(result, answers.SettledResult) for result in settled.results)
        self._report.handed_back += returned
        self._report.lock_lost += len(tokens) - returned
        log.info("queue %s: %d messages of a lost answer are returned", self._queue, returned)
        return True
