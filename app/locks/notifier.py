"""Wake-ups for waiting receivers of this process and, through Redis, of other processes.

A wake-up may be lost, with Redis or on the way. That is harmless: receivers poll every second, and queue settings are
cached for a moment only.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from typing import Annotated

import msgspec

from app.locks.listener import Listener
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import RedisKeys
from app.runtime.background_loop import ErrorReporter
from app.runtime.clock import Clock, Timer
from app.runtime.wait_queue import WaitQueue

PUBLISH_INTERVAL_SECONDS = 0.005
"""A burst of sends publishes once in this interval. The first wake-up after a pause is published at once."""

ALONE_INTERVAL_SECONDS = 0.05
"""The same interval while no other process subscribes, so that a single process pays next to nothing."""

IDLE_CHANNEL_SECONDS = 30.0
"""How long a process stays subscribed to a wait key without a receiver of its own. The timer may double this."""

MAX_CHANNELS = 1_000
"""Wait keys that a process subscribes to at a time. Receivers under other keys rely on their poll each second."""

MAX_NAMED_MESSAGES = 100
"""Messages of one queue that one notice names. A search finds the others on its second scan."""

PositiveCount = Annotated[int, msgspec.Meta(gt=0)]


class Notice(msgspec.Struct, rename={"wake_ups": "rings"}):
    """What one process publishes to the others. Unknown fields are ignored.

    `origin` names the process, `wake_ups` counts wake-ups by queue, `passed` lists by queue the messages that became
    receivable at positions that searches may have passed. `queues_changed` means that some queues have new settings.
    """

    origin: str
    wake_ups: dict[int, PositiveCount] = {}
    passed: dict[int, list[int]] = {}
    queues_changed: bool = False


class LocalNotifier:
    """Implements `Notifier` for a single process.

    `on_schedule_changed`, `on_queues_changed` and `on_messages_available` are set later, when the schedule loop, the queue
    cache and the searches exist.
    """

    def __init__(self, wait_queue: WaitQueue[int]) -> None:
        self._wait_queue = wait_queue
        self.on_schedule_changed: Callable[[], None] = _do_nothing
        self.on_queues_changed: Callable[[], None] = _do_nothing
        self.on_messages_available: Callable[[int, Sequence[int]], None] = _ignore_messages

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        """Wake the receivers that have waited longest. The caller has already notified the searches of this process."""
        self._wait_queue.wake(queue_id, count)

    def schedule_changed(self) -> None:
        """Run the schedule pass of this process. It promotes messages for all processes."""
        self.on_schedule_changed()

    def queues_changed(self) -> None:
        """Do nothing: the caller has cleared the cache of this process, and no other process exists."""

    async def close(self) -> None:
        """Nothing is open."""


class SharedNotifier(LocalNotifier):
    """Implements `Notifier` across processes: wake-ups that find no receiver here are published to the others.

    A wake-up is published on the channel of its queue. A process subscribes to that channel when its first receiver waits
    there, and unsubscribes when it gets a wake-up without a receiver. So a busy queue without waiting receivers costs the
    other processes nothing. Channels of quiet or deleted queues are left after `IDLE_CHANNEL_SECONDS` without a receiver.
    """

    def __init__(
        self,
        wait_queue: WaitQueue[int],
        connection: RedisConnection,
        keys: RedisKeys,
        origin: str,
        clock: Clock,
        report: ErrorReporter,
    ) -> None:
        super().__init__(wait_queue)
        self._connection = connection
        self._keys = keys
        self._origin = origin
        self._clock = clock
        self._report = report
        self._wake_ups = Counter[int]()
        self._available_messages: defaultdict[int, list[int]] = defaultdict(list)
        self._queues_changed = False
        self._publish_task: asyncio.Task[None] | None = None
        self._subscribed: set[int] = set()
        self._idle: set[int] = set()
        self._cleanup_timer: Timer | None = None
        self._listener = Listener(connection, keys.broadcast_channel(), self._receive, clock, report)

    def start(self) -> None:
        """Start to receive notices of other processes."""
        self._wait_queue.on_first_waiter = self._subscribe
        self._listener.start()

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        """Wake receivers here. Publish the rest of `count`, and `passed_numbers` for the searches of all other processes."""
        left = count - self._wait_queue.wake(queue_id, count)
        if left > 0:
            self._wake_ups[queue_id] += left
        if passed_numbers:
            named_messages = self._available_messages[queue_id]
            named_messages += passed_numbers[: MAX_NAMED_MESSAGES - len(named_messages)]
        if left > 0 or passed_numbers:
            self._start_publishing()

    def queues_changed(self) -> None:
        """Make the other processes clear their queue caches."""
        self._queues_changed = True
        self._start_publishing()

    async def close(self) -> None:
        """Stop receiving and publishing. Unpublished notices are lost. The caller closes the connection that it passed in."""
        if self._cleanup_timer is not None:
            self._cleanup_timer.cancel()
        if self._publish_task is not None:
            self._publish_task.cancel()
            await asyncio.wait({self._publish_task})
        await self._listener.stop()

    def _start_publishing(self) -> None:
        if self._publish_task is None or self._publish_task.done():
            # A new context: the task outlives the request that starts it.
            self._publish_task = asyncio.get_running_loop().create_task(self._publish_pending(), context=Context())

    async def _publish_pending(self) -> None:
        while self._wake_ups or self._available_messages or self._queues_changed:
            wait_keys = dict.fromkeys((*self._wake_ups, *self._available_messages))
            notices = {self._keys.channel_of(wait_key): self._notice(wait_key) for wait_key in wait_keys}
            if self._queues_changed:
                notices[self._keys.broadcast_channel()] = Notice(self._origin, queues_changed=True)
            self._wake_ups.clear()
            self._available_messages.clear()
            self._queues_changed = False
            payloads = {channel: msgspec.json.encode(notice) for channel, notice in notices.items()}
            reached = await self._connection.publish(payloads)
            has_others = not self._connection.client.counts_all_subscribers or any(
                count > int(self._listener.is_subscribed(channel)) for channel, count in reached.items()
            )
            await self._clock.sleep(PUBLISH_INTERVAL_SECONDS if has_others else ALONE_INTERVAL_SECONDS)

    def _notice(self, wait_key: int) -> Notice:
        wake_ups, passed = self._wake_ups.get(wait_key), self._available_messages.get(wait_key)
        return Notice(self._origin, {wait_key: wake_ups} if wake_ups else {}, {wait_key: passed} if passed else {})

    def _subscribe(self, wait_key: int) -> None:
        self._idle.discard(wait_key)
        if wait_key in self._subscribed:
            return
        if len(self._subscribed) >= MAX_CHANNELS:
            self._unsubscribe(self._without_waiters())
        if len(self._subscribed) < MAX_CHANNELS:
            self._subscribed.add(wait_key)
            self._listener.subscribe(self._keys.channel_of(wait_key))
        if self._cleanup_timer is None:
            self._cleanup_timer = self._clock.call_later(IDLE_CHANNEL_SECONDS, self._unsubscribe_idle)

    def _unsubscribe_idle(self) -> None:
        """Unsubscribe from wait keys that have had no receiver since the last run."""
        self._unsubscribe({wait_key for wait_key in self._idle if not self._wait_queue.has_waiters(wait_key)})
        self._idle = self._without_waiters()
        self._cleanup_timer = (
            self._clock.call_later(IDLE_CHANNEL_SECONDS, self._unsubscribe_idle) if self._subscribed else None
        )

    def _without_waiters(self) -> set[int]:
        return {wait_key for wait_key in self._subscribed if not self._wait_queue.has_waiters(wait_key)}

    def _unsubscribe(self, wait_keys: Iterable[int]) -> None:
        for wait_key in wait_keys:
            self._subscribed.discard(wait_key)
            self._listener.unsubscribe(self._keys.channel_of(wait_key))

    def _receive(self, message: bytes) -> None:
        try:
            notice = msgspec.json.decode(message, type=Notice)
        except msgspec.DecodeError as error:
            self._report("wake-ups", error)
            return
        is_own = notice.origin == self._origin
        if not is_own:
            for queue_id, numbers in notice.passed.items():
                self.on_messages_available(queue_id, numbers)
        for queue_id, count in notice.wake_ups.items():
            woken = 0 if is_own else self._wait_queue.wake(queue_id, count)
            if not woken and not self._wait_queue.has_waiters(queue_id):
                self._unsubscribe([queue_id])
        if notice.queues_changed and not is_own:
            self.on_queues_changed()


def _do_nothing() -> None:
    """The default of callbacks."""


def _ignore_messages(_wait_key: int, _sequence_numbers: Sequence[int]) -> None:
    """The default of `on_messages_available`."""
