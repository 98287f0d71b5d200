"""Wake-ups for waiting receivers: rung here, and told to the other processes through Redis.

Any of them may be lost, with Redis or on the way: receivers look again every second, and settings
are remembered for a moment only.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Annotated, Any

import msgspec
from redis.exceptions import RedisError

from app.locks.client import Subscription
from app.locks.link import Link, Report
from app.runtime.bell import Bell
from app.runtime.clock import Clock
from app.runtime.loop import Rests

GATHER_SECONDS = 0.005
"""A burst of sends makes one message per so long; a first ring after silence leaves at once."""

SILENCE_SECONDS = 10.0
"""A subscription that hears nothing for so long asks whether anybody is there; silent again, it is made anew."""

RESTS = Rests(largest_failure_seconds=5.0)


Count = Annotated[int, msgspec.Meta(gt=0)]


class Notice(msgspec.Struct):
    """What one process tells the others; fields it does not know are passed over.

    `origin` names the process, `rings` counts wake-ups by queue, `changed` lists queues with new settings.
    """

    origin: str
    rings: dict[int, Count] = {}
    changed: list[int] = []


class LocalWakeUps:
    """Implements `Bells` for a process on its own.

    `on_schedule_changed` and `on_queue_changed` are set by whoever opens the rooms, once there is
    something to wake and something to forget.
    """

    def __init__(self, bell: Bell[int]) -> None:
        self._bell = bell
        self.on_schedule_changed: Callable[[], None] = _nothing
        self.on_queue_changed: Callable[[int], None] = _nothing

    def ring(self, queue_id: int, count: int = 1) -> None:
        """Wake those who have waited longest here."""
        self._bell.ring(queue_id, count)

    def schedule_changed(self) -> None:
        """Let the schedule pass of this process look again; whichever process it is awakens for all."""
        self.on_schedule_changed()

    def queue_changed(self, queue_id: int) -> None:
        """Whoever changed the queue has forgotten it already, and there is nobody else."""

    async def close(self) -> None:
        """There is nothing to let go."""


class SharedWakeUps(LocalWakeUps):
    """Implements `Bells` across processes: what finds nobody waiting here is told to the others."""

    def __init__(self, bell: Bell[int], link: Link, channel: str, origin: str, clock: Clock, report: Report) -> None:
        super().__init__(bell)
        self._link = link
        self._channel = channel
        self._origin = origin
        self._clock = clock
        self._report = report
        self._rings = Counter[int]()
        self._changed = set[int]()
        self._teller: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to hear the other processes."""
        self._listener = self._spawn(self._listen())

    def ring(self, queue_id: int, count: int = 1) -> None:
        """Wake those who wait here; what is left of `count` is for the others."""
        left = count - self._bell.ring(queue_id, count)
        if left > 0:
            self._rings[queue_id] += left
            self._tell()

    def queue_changed(self, queue_id: int) -> None:
        """Let the others forget what they remember of the queue."""
        self._changed.add(queue_id)
        self._tell()

    async def close(self) -> None:
        """Stop hearing; what has not been told by now is lost. The link belongs to whoever opened it."""
        for task in (self._teller, self._listener):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    def _tell(self) -> None:
        if self._teller is None or self._teller.done():
            self._teller = self._spawn(self._tell_all())

    async def _tell_all(self) -> None:
        while self._rings or self._changed:
            notice = Notice(self._origin, dict(self._rings), list(self._changed))
            self._rings.clear()
            self._changed.clear()
            await self._link.publish(self._channel, msgspec.json.encode(notice))
            await self._clock.sleep(GATHER_SECONDS)

    async def _listen(self) -> None:
        """Subscribe, and again after every loss, resting longer while it keeps failing."""
        failures = 0
        while True:
            try:
                async with self._link.client.pubsub() as subscription:
                    await subscription.subscribe(self._channel)
                    while True:
                        self._hear(await _next(subscription))
                        failures = 0
            except (RedisError, OSError) as error:
                failures += 1
                self._report("wake-ups", error)
                await self._clock.sleep(RESTS.after_failure(failures))

    def _hear(self, message: Mapping[str, Any]) -> None:
        if message["type"] != "message":
            return
        try:
            notice = msgspec.json.decode(message["data"], type=Notice)
        except msgspec.DecodeError as error:
            self._report("wake-ups", error)
            return
        if notice.origin != self._origin:
            for queue_id, count in notice.rings.items():
                self._bell.ring(queue_id, count)
            for queue_id in notice.changed:
                self.on_queue_changed(queue_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of this object's own, apart from the request that happens to start it."""
        task = asyncio.get_running_loop().create_task(work, name="wake-ups", context=Context())
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._report("wake-ups", error)


async def _next(subscription: Subscription) -> Mapping[str, Any]:
    """The next message, or the next sign of life; raises TimeoutError when there is none."""
    message = await subscription.get_message(timeout=SILENCE_SECONDS)
    if message is None:
        await subscription.ping()
        message = await subscription.get_message(timeout=SILENCE_SECONDS)
    if message is None:
        raise TimeoutError("the subscription has fallen silent")
    return message


def _nothing(*_: object) -> None:
    """Nobody has asked to hear of it."""
