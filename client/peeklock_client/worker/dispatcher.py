"""Starts the handler of a queue with its messages, and holds each message until it is settled (S2.17, S2.21 to S2.23).

    waiting ──▶ in the lane of its group, while another message of the group is processed ──▶ running, in a slot ──▶ settling

A message that waits for nothing starts at once. A stop hands back what waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from peeklock_client.errors import InDoubt, PeeklockError, Refusal
from peeklock_client.messages import NewMessage
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.worker.handlers import InvalidBody
from peeklock_client.worker.invalid_body_backoff import InvalidBodyBackoff
from peeklock_client.worker.processing import Processing
from peeklock_client.worker.report import WorkerReport
from peeklock_client.worker.slots import HandlerSlots

log = logging.getLogger("peeklock.worker")

POLL_SECONDS = 0.01
"""How often a stopping worker checks which handlers have ended."""

CANCEL_SECONDS = 5.0
"""How long a stopping worker waits for handlers that it has cancelled."""


class Dispatcher:
    """The messages of one queue that a worker has in hand, from their receive until the answer to their settlement.

    With `sequential`, messages of a group are processed one after the other.
    """

    def __init__(
        self, queue: str, processing: Processing, slots: HandlerSlots, report: WorkerReport, *, sequential: bool
    ) -> None:
        self._queue = queue
        self._processing = processing
        self._slots = slots
        self._report = report
        self._sequential = sequential
        self._waiting: deque[ReceiveContext[Any]] = deque()
        self._lanes: dict[str, deque[ReceiveContext[Any]]] = {}
        self._running: dict[ReceiveContext[Any], asyncio.Task[None]] = {}
        self._settling: set[ReceiveContext[Any]] = set()
        self._invalid_bodies = InvalidBodyBackoff()
        self._changed = asyncio.Event()
        self._is_stopping = False
        slots.offer_to(self._start_waiting)

    def accept(self, received: Sequence[ReceiveContext[Any]]) -> None:
        """Take received messages in hand, and start handlers for as many as there are free slots."""
        self._waiting.extend(received)
        self._start_waiting()

    @property
    def waiting(self) -> int:
        """The number of messages that wait for a handler."""
        return len(self._waiting) + sum(map(len, self._lanes.values()))

    @property
    def has_messages(self) -> bool:
        """Whether there is a message in hand."""
        return bool(self.waiting or self._running)

    @property
    def is_processing(self) -> bool:
        """Whether a message is processed, settled or handed back."""
        return bool(self._running)

    def held(self) -> Iterator[ReceiveContext[Any]]:
        """Return the receives in hand. Some may have ended a moment ago."""
        return chain(self._waiting, *self._lanes.values(), self._running)

    @property
    def in_hand(self) -> int:
        """The number of messages that wait, are processed or are settled."""
        return self.waiting + len(self._running)

    def wake(self) -> None:
        """Let `changed` return, because something else than what is in hand has changed."""
        self._changed.set()

    async def changed(self) -> None:
        """Return at the next change of what is in hand, or after `wake`."""
        self._changed.clear()
        await self._changed.wait()

    def locked(self) -> list[ReceiveContext[Any]]:
        """Return the receives in hand that have not ended."""
        return [context for context in self.held() if not context.has_ended]

    def drop(self, context: ReceiveContext[Any], error: Refusal) -> None:
        """Fault the receive of a message whose lock is lost, and cancel its handler."""
        log.warning("message %d of %s: %s", context.message.sequence_number, self._queue, error)
        context.fault(error)
        if context in self._running:
            # After the first step of the task, because a task that is cancelled before that does not run its `finally`.
            asyncio.get_running_loop().call_soon(self._running[context].cancel, "The lock is lost.")

    # ---- stop --------------------------------------------------------------------------------------------------------

    def start_no_more(self) -> None:
        """Start no further handlers, because the worker stops."""
        self._is_stopping = True

    def release_waiting(self) -> None:
        """Release the messages that no handler has started."""
        waiting = [*self._waiting, *(context for lane in self._lanes.values() for context in lane)]
        self._waiting.clear()
        self._lanes.clear()
        for context in waiting:
            self._start_settling(context, context.release)

    def _start_settling(self, context: ReceiveContext[Any], settle: Callable[[], Awaitable[None]]) -> None:
        self._settling.add(context)
        self._run(context, self._settle(context, settle))

    async def _settle(self, context: ReceiveContext[Any], settle: Callable[[], Awaitable[None]]) -> None:
        try:
            await settle()
            self._report.handed_back += 1
        except PeeklockError as error:
            log.warning(
                "message %d of queue %s could not be returned: %s", context.message.sequence_number, self._queue, error
            )
            self._processing.count(context)
        except asyncio.CancelledError:
            self._processing.count(context)
            raise

    async def wait_for_handlers(self, grace_seconds: float) -> None:
        """Wait until each handler has returned. Cancel handlers that take longer, and abandon their messages, uncounted."""
        deadline = asyncio.get_running_loop().time() + grace_seconds
        while running := [task for context, task in self._running.items() if context not in self._settling]:
            remaining = deadline - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait(running, timeout=max(0.0, min(remaining, POLL_SECONDS)))
            if remaining <= 0 and not done:
                break
        cancelled = {context: task for context, task in self._running.items() if context not in self._settling}
        for task in cancelled.values():
            task.cancel()
        if cancelled:
            await asyncio.wait(cancelled.values(), timeout=CANCEL_SECONDS)
        for context, task in cancelled.items():
            if not task.done():
                log.error(
                    "the handler of message %d did not end after it was cancelled", context.message.sequence_number
                )
            if context.is_active:
                # Its handler has begun, so the delivery counts, and a message that hangs its handlers has a limit.
                self._start_settling(context, partial(context.abandon, count=False))
            elif not task.done():
                del self._running[context]
                self._processing.count(context)

    async def wait_for_settlements(self) -> None:
        """Return when every message in hand is settled, or after `POLL_SECONDS`."""
        await asyncio.wait(self._running.values(), timeout=POLL_SECONDS)

    async def cancel_running(self) -> None:
        """Cancel what still runs."""
        await cancel([*self._running.values()])

    # ---- handlers ----------------------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        """Start handlers for waiting messages, while there are free slots and the worker does not pause."""
        self._changed.set()
        if self._invalid_bodies.seconds_left(asyncio.get_running_loop().time()):
            return
        while self._slots.has_free and self._waiting and not self._is_stopping:
            context = self._waiting.popleft()
            if not context.is_active or context.lock_seconds <= 0:
                context.fault(InDoubt("The lock ended before the message was processed."))
                self._processing.count(context)
                continue
            if (lane := self._lane(context)) is not None:
                lane.append(context)
                continue
            self._slots.take()
            self._run(context, self._process(context))

    def _lane(self, context: ReceiveContext[Any]) -> deque[ReceiveContext[Any]] | None:
        """Return the messages that wait for another of their group; None if none is processed, and then this one is next."""
        group = context.message.group_id
        if group is None or not self._sequential:
            return None
        if group in self._lanes:
            return self._lanes[group]
        self._lanes[group] = deque()
        return None

    def _leave_lane(self, context: ReceiveContext[Any]) -> None:
        lane = self._lanes.get(context.message.group_id or "")
        if lane is None:
            return
        del self._lanes[context.message.group_id or ""]
        self._waiting.extendleft(reversed(lane))

    def _run(self, context: ReceiveContext[Any], processing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(processing)
        self._running[context] = task
        task.add_done_callback(lambda _: self._forget(context, task))

    def _forget(self, context: ReceiveContext[Any], task: asyncio.Task[None]) -> None:
        if self._running.get(context) is task:
            del self._running[context]
            self._settling.discard(context)
        self._changed.set()

    async def _process(self, context: ReceiveContext[Any]) -> None:
        """Call the handler, settle the message, and free the handler for the next message.

        The next message does not wait for a settlement, because settlements share requests. If the handler returned messages,
        the next message waits until they are stored. Otherwise handlers could run ahead of the server and lose the locks of
        their messages, and the results of a group could be stored in any order.
        """
        returned: ReceiveContext[Any] | None = None
        try:
            if context.has_ended:
                self._processing.count(context)
                return
            result = await self._processing.handle(context)
            if self._running.get(context) is not asyncio.current_task():
                return  # a stop has given up waiting for this handler
            if self._must_wait(context, result):
                returned = context
                return
            self._settling.add(context)
            if isinstance(result, list) and result:
                await self._processing.settle(context, result)
                return
        except asyncio.CancelledError:
            if context.is_active:
                raise  # a stop gives the message back
            self._processing.count(context)
            return
        finally:
            self._leave_lane(context)
            if returned is not None:
                self._keep_waiting(returned)
            self._slots.release()
        await self._processing.settle(context, result)

    def _keep_waiting(self, context: ReceiveContext[Any]) -> None:
        """Let a message that its handler has not seen wait again, or release it if the worker stops."""
        del self._running[context]
        if self._is_stopping:
            self._start_settling(context, context.release)
        else:
            self._waiting.appendleft(context)

    def _must_wait(self, context: ReceiveContext[Any], result: BaseException | list[NewMessage]) -> bool:
        """Return whether a message waits for the end of a pause, because its body does not fit and another one has begun it."""
        if not isinstance(result, InvalidBody):
            self._invalid_bodies.record_valid()
            return False
        loop = asyncio.get_running_loop()
        begins = self._invalid_bodies.record_invalid(loop.time())
        if not begins and context.is_active:
            return True
        pause = self._invalid_bodies.seconds_left(loop.time())
        log.error(
            "message %d: %s does not accept its body, and no other handler starts for %.0f s. If the queue holds messages of "
            "several kinds, use a filter or a wider type. %s",
            context.message.sequence_number, self._processing.handler_name, pause, result,
        )  # fmt: skip
        if begins:
            loop.call_later(pause, self._start_waiting)
        return False


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and return once they have ended. Log what they raised."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of a worker failed", exc_info=error)
