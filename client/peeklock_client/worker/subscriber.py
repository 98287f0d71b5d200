"""The worker of one queue: loops that receive messages, send their settlements, and renew their locks (S2.15 to S2.23).

    fetch ──▶ waiting messages ──▶ handlers ──▶ settlements ──▶ the next fetch, or a flush

A message is held from its fetch until the answer to its settlement. Meanwhile its lock is renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import UNSET

from peeklock_client.client import receive_context
from peeklock_client.connection import Connection
from peeklock_client.errors import PeeklockError, QueueNotFound
from peeklock_client.generated import answers, requests
from peeklock_client.settling import DirectSettler
from peeklock_client.worker.dispatcher import Dispatcher, cancel
from peeklock_client.worker.earlier_messages import EarlierMessages
from peeklock_client.worker.handlers import CallsHandler
from peeklock_client.worker.lock_keeper import LockKeeper
from peeklock_client.worker.missed_messages import MissedMessages
from peeklock_client.worker.options import SubscriberOptions
from peeklock_client.worker.processing import Processing
from peeklock_client.worker.report import WorkerReport
from peeklock_client.worker.retry import max_attempts_of
from peeklock_client.worker.room import Room
from peeklock_client.worker.settlement_buffer import MAX_SETTLEMENTS, SettlementBuffer, entries_of
from peeklock_client.worker.slots import HandlerSlots

log = logging.getLogger("peeklock.worker")

THREADS = "peeklock-worker-"
"""The prefix of the names of the threads that run plain functions."""

FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
"""How long a loop waits after an error. The wait doubles after each further error."""

MISSING_QUEUE_SECONDS = 2.0
"""How long a worker waits before it checks again whether its queue exists."""


class Subscriber:
    """Receives the messages of one queue, and calls one handler with each."""

    def __init__(
        self,
        api: Connection,
        queue: str,
        handler: CallsHandler,
        options: SubscriberOptions,
        slots: HandlerSlots,
        receiver_id: str | None = None,
    ) -> None:
        self.queue = queue
        self.report = WorkerReport()
        self._api = api
        self._options = options
        self._settlements = SettlementBuffer(DirectSettler(api, queue))
        self._threads = ThreadPoolExecutor(options.max_workers, thread_name_prefix=THREADS + queue)
        self._processing = Processing(queue, handler, options, self._threads, self.report)
        self._dispatcher = Dispatcher(queue, self._processing, slots, self.report, sequential=options.sequential_groups)
        self._locks = LockKeeper(api, queue, options.lock_seconds, self._dispatcher.locked, self._dispatcher.drop)
        self._missed = MissedMessages(api, queue, self.report, receiver_id)
        self._earlier = EarlierMessages(api, queue, receiver_id, options.fetch_batch_size)
        self._room = Room(options)
        self._flow_control = handler.flow_control
        self._flow_control.on_change(self._dispatcher.wake)
        self._queue_exists = True
        self._fetch_pause = 0.0
        self._loops: list[asyncio.Task[None]] = []

    # ---- start and stop ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start receiving, or start to wait for a queue that does not exist yet. Raises the refusal of the first receive, such as
        `Unauthenticated`.
        """
        try:
            if not await self._receive_earlier():
                await self._fetch(self._options.fetch_batch_size, wait_seconds=0.0)
        except QueueNotFound:
            self._note_queue(exists=False)
        else:
            await self._check_attempts()
        self._loops = [
            asyncio.create_task(self._keep_on(loop), name=f"peeklock {self.queue} {loop.__name__}")
            for loop in (self._fetch_loop, self._flush_loop, self._locks.renew_loop, self._locks.expiry_loop)
        ]

    async def _check_attempts(self) -> None:
        """Warn about a retry strategy with more attempts than the queue allows failures."""
        attempts = max_attempts_of(self._options.retry)
        if attempts is None:
            return
        try:
            limit = (await self._api.get_queue(self.queue)).max_delivery_count
        except PeeklockError as error:  # such as a key that may only receive
            log.debug("queue %s: the limit of failures is unknown: %s", self.queue, error)
            return
        if attempts > limit:
            log.warning(
                "queue %s dead-letters a message at its failure number %d (max_delivery_count), "
                "so the retry strategy never makes its %d attempts",
                self.queue, limit, attempts,
            )  # fmt: skip

    def start_no_more(self) -> None:
        """Start no further handlers, because the worker stops."""
        self._dispatcher.start_no_more()

    async def stop(self, grace_seconds: float) -> WorkerReport:
        """Stop receiving, release messages that no handler has started, wait for the handlers, and settle their messages (S2.21,
        S2.22). After `grace_seconds`, cancel the handlers that still run, and abandon their messages, uncounted.
        """
        fetch, flush, locks = self._loops[:1], self._loops[1:2], self._loops[2:]
        self.start_no_more()
        await cancel(fetch)
        self._dispatcher.release_waiting()
        await self._dispatcher.wait_for_handlers(grace_seconds)
        await cancel(flush)
        await self._flush_all()
        await cancel(locks)
        await self._release_missed()
        await self._dispatcher.cancel_running()
        self._threads.shutdown(wait=False, cancel_futures=True)
        return self.report

    async def _flush_all(self) -> None:
        """Send settlements until every held message is settled, or until that fails."""
        while self._dispatcher.is_processing or len(self._settlements):
            await asyncio.sleep(0)
            if len(self._settlements):
                await self._flush()
            elif self._dispatcher.is_processing:
                await self._dispatcher.wait_for_settlements()

    # ---- loops -------------------------------------------------------------------------------------------------------

    async def _keep_on(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a loop, and restart it if it fails, so a running worker keeps working."""
        time = asyncio.get_running_loop().time
        pause = FIRST_PAUSE_SECONDS
        while True:
            started = time()
            try:
                await loop()
            except Exception:
                if time() - started > MAX_PAUSE_SECONDS:
                    pause = FIRST_PAUSE_SECONDS
                log.exception(
                    "%s of the worker of queue %s failed and restarts in %g s", loop.__name__, self.queue, pause
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _fetch_loop(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(self._fetch_pause)
            try:
                await self._recover()
                await self._fetch(await self._wait_for_room(), self._options.wait_seconds)
            except QueueNotFound:
                self._note_queue(exists=False)
                self._fetch_pause = max(MISSING_QUEUE_SECONDS, self._options.max_fetch_interval)
            except PeeklockError as error:
                log.warning("queue %s: the receive failed: %s", self.queue, error)
                self._fetch_pause = max(pause, self._options.max_fetch_interval)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            else:
                pause = FIRST_PAUSE_SECONDS
                self._note_queue(exists=True)

    async def _recover(self) -> None:
        """Recover messages of an earlier run and of lost answers."""
        while self._earlier.may_be_left and await self._wait_until_idle():
            await self._receive_earlier()
        await self._release_missed()

    async def _release_missed(self) -> None:
        if not self._missed.needs_idle_worker or await self._wait_until_idle():
            await self._missed.release()

    async def _receive_earlier(self) -> int:
        """Receive what an earlier run held under the same `receiver_id`. Return the number of messages."""
        messages = await self._earlier.next()
        if messages:
            log.info("queue %s: %d messages of an earlier run are received again", self.queue, len(messages))
            self._accept(messages)
        return len(messages)

    async def _wait_until_idle(self) -> bool:
        """Wait until each message is settled, or its lock is lost. Return False if a handler has left a message to its program.

        A recovery would take such a message from the program. Without a recovery, missed messages stay locked until their locks
        end, or until a worker starts with the `receiver_id`.
        """
        while not self._processing.has_left_messages and self._dispatcher.has_messages:
            await self._dispatcher.changed()
        return not self._processing.has_left_messages

    def _note_queue(self, *, exists: bool) -> None:
        """Log that the queue does not exist, and later that it does."""
        if exists is self._queue_exists:
            return
        self._queue_exists = exists
        if exists:
            log.info("queue %s exists now: the worker receives its messages", self.queue)
        else:
            log.warning("queue %s does not exist: the worker waits until it is created", self.queue)

    async def _wait_for_room(self) -> int:
        """Return how many messages to fetch, once there is room and the handler allows it."""
        while not (limit := self._limit()):
            await self._dispatcher.changed()
        return limit

    def _limit(self) -> int:
        room = self._room.limit(self._dispatcher.waiting, self._dispatcher.held())
        return self._flow_control.limit(room, self._dispatcher.in_hand)

    async def _fetch(self, limit: int, wait_seconds: float) -> None:
        """Receive messages, send the waiting settlements, and note the pause until the next receive (S2.16).

        With settlements it does not wait for messages, because their results come with the answer. What is processed during the
        pause may be settled by the next receive.
        """
        options, taken = self._options, self._settlements.take()
        wait_seconds = 0.0 if taken else wait_seconds
        body = requests.ReceiveMessages(
            limit,
            wait_seconds,
            UNSET if options.lock_seconds is None else options.lock_seconds,
            source=options.source,
            receiver_id=self._missed.receiver_id,
            filter=UNSET if options.filter is None else options.filter,
            settlements=entries_of(taken) if taken else UNSET,
        )
        try:
            received = await self._api.receive_messages(self.queue, body)
        except BaseException as error:
            # The settlements may have taken effect; repeating them is harmless.
            self._settlements.requeue(taken)
            self._missed.note_error(error, wait_seconds)
            raise
        self._missed.note_answer(len(received.messages))
        if taken:
            self._settlements.finish(taken, received.settled if received.settled is not UNSET else [])
        is_full = len(received.messages) >= limit
        self._fetch_pause = self._options.min_fetch_interval if is_full else self._options.max_fetch_interval
        self._accept(received.messages)

    async def _flush_loop(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._settlements.wait()
            if len(self._settlements) < MAX_SETTLEMENTS:
                await asyncio.sleep(self._options.flush_seconds)
            if await self._flush():
                pause = FIRST_PAUSE_SECONDS
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _flush(self) -> bool:
        """Send the waiting settlements, and return whether the server answered."""
        taken = self._settlements.take()
        if not taken:
            return True
        try:
            answer = await self._api.settle_messages(self.queue, requests.SettleMessages(entries_of(taken)))
        except PeeklockError as error:
            log.warning("queue %s: %d settlements failed: %s", self.queue, len(taken), error)
            self._settlements.fail(taken, error)
            return False
        except Exception as error:  # each settlement needs an outcome
            log.exception("queue %s: %d settlements failed", self.queue, len(taken))
            self._settlements.fail(taken, error)
            return False
        except asyncio.CancelledError:
            self._settlements.requeue(taken)
            raise
        self._settlements.finish(taken, answer.results)
        return True

    def _accept(self, views: list[answers.ReceivedMessage]) -> None:
        self.report.received += len(views)
        received = [receive_context(view, self._settlements) for view in views]
        self._room.note_received(received)
        self._dispatcher.accept(received)
        self._locks.wake()
