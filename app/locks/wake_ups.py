"""Wake-ups for waiting receivers: rung here, and told to the other processes through Redis.

Any of them may be lost, with Redis or on the way: receivers look again every second, and settings
are remembered for a moment only.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from typing import Annotated

import msgspec

from app.locks.keys import Keys
from app.locks.link import Link
from app.locks.listener import Listener
from app.runtime.bell import Bell
from app.runtime.clock import Clock, Timer
from app.runtime.loop import Report

GATHER_SECONDS = 0.005
"""A burst of sends makes one message per so long; a first ring after silence leaves at once."""

ALONE_SECONDS = 0.05
"""The same while nobody but this process was reached, so that a process without others pays next to nothing."""

QUIET_SECONDS = 30.0
"""How long a process goes on hearing of a line in which it has no receiver; up to twice as long, by the timer."""

MOST_LINES = 1_000
"""Lines of which a process hears at once. Receivers in other lines are served by the look of each second."""

MOST_PASSED = 100
"""Messages of one queue that are named at a time. A search comes to the others on its second walk."""

Count = Annotated[int, msgspec.Meta(gt=0)]


class Notice(msgspec.Struct):
    """What one process tells the others; fields it does not know are passed over.

    `origin` names the process, `rings` counts wake-ups by queue, `passed` names messages by queue that became receivable
    where searches may have been, `queues_changed` says that some queues have new settings.
    """

    origin: str
    rings: dict[int, Count] = {}
    passed: dict[int, list[int]] = {}
    queues_changed: bool = False


class LocalWakeUps:
    """Implements `Bells` for a process on its own.

    `on_schedule_changed`, `on_queues_changed` and `on_passed` are set after this object was made, once there is
    something to wake, something to forget and searches to tell.
    """

    def __init__(self, bell: Bell[int]) -> None:
        self._bell = bell
        self.on_schedule_changed: Callable[[], None] = _nothing
        self.on_queues_changed: Callable[[], None] = _nothing
        self.on_passed: Callable[[int, Sequence[int]], None] = _unheard

    def ring(self, queue_id: int, count: int = 1, passed: Sequence[int] = ()) -> None:
        """Wake the receivers that have waited longest here. The caller has told the searches of this process already."""
        self._bell.ring(queue_id, count)

    def schedule_changed(self) -> None:
        """Let the schedule pass of this process look again; whichever process it is awakens for all."""
        self.on_schedule_changed()

    def queues_changed(self) -> None:
        """Whoever changed the queue has forgotten it already, and there is nobody else."""

    async def close(self) -> None:
        """There is nothing to let go."""


class SharedWakeUps(LocalWakeUps):
    """Implements `Bells` across processes: what finds nobody waiting here is told to the others.

    A ring is told on the channel of its queue, which a process joins when somebody begins to wait there, and leaves
    when it hears a ring for nobody. So a busy queue that nobody has to wait for costs the others nothing. Channels of
    queues that are quiet or gone are left after `QUIET_SECONDS` without a receiver.
    """

    def __init__(self, bell: Bell[int], link: Link, keys: Keys, origin: str, clock: Clock, report: Report) -> None:
        super().__init__(bell)
        self._link = link
        self._keys = keys
        self._origin = origin
        self._clock = clock
        self._report = report
        self._rings = Counter[int]()
        self._passed: defaultdict[int, list[int]] = defaultdict(list)
        self._changed = False
        self._teller: asyncio.Task[None] | None = None
        self._joined: set[int] = set()
        self._quiet: set[int] = set()
        self._tidying: Timer | None = None
        self._listener = Listener(link.client, keys.channel(), self._hear, clock, report)

    def start(self) -> None:
        """Begin to hear the other processes."""
        self._bell.on_line = self._join
        self._listener.start()

    def ring(self, queue_id: int, count: int = 1, passed: Sequence[int] = ()) -> None:
        """Wake receivers here; the rest of `count` is for other processes, and `passed` for all their searches."""
        left = count - self._bell.ring(queue_id, count)
        if left > 0:
            self._rings[queue_id] += left
        if passed:
            named = self._passed[queue_id]
            named += passed[: MOST_PASSED - len(named)]
        if left > 0 or passed:
            self._tell()

    def queues_changed(self) -> None:
        """Let the others forget what they remember of queues."""
        self._changed = True
        self._tell()

    async def close(self) -> None:
        """Stop hearing and telling; what is not told by now is lost. The link belongs to whoever opened it."""
        if self._tidying is not None:
            self._tidying.cancel()
        if self._teller is not None:
            self._teller.cancel()
            await asyncio.wait({self._teller})
        await self._listener.stop()

    def _tell(self) -> None:
        if self._teller is None or self._teller.done():
            # In a context of its own: it outlives the request that happens to start it.
            self._teller = asyncio.get_running_loop().create_task(self._tell_all(), context=Context())

    async def _tell_all(self) -> None:
        while self._rings or self._passed or self._changed:
            lines = dict.fromkeys((*self._rings, *self._passed))
            notices = {self._keys.channel_of(line): self._notice(line) for line in lines}
            if self._changed:
                notices[self._keys.channel()] = Notice(self._origin, queues_changed=True)
            self._rings.clear()
            self._passed.clear()
            self._changed = False
            told = {channel: msgspec.json.encode(notice) for channel, notice in notices.items()}
            reached = await self._link.publish(told)
            has_others = any(count > int(self._listener.hears(channel)) for channel, count in reached.items())
            await self._clock.sleep(GATHER_SECONDS if has_others else ALONE_SECONDS)

    def _notice(self, line: int) -> Notice:
        rings, passed = self._rings.get(line), self._passed.get(line)
        return Notice(self._origin, {line: rings} if rings else {}, {line: passed} if passed else {})

    def _join(self, line: int) -> None:
        self._quiet.discard(line)
        if line in self._joined:
            return
        if len(self._joined) >= MOST_LINES:
            self._leave_those(self._without_receivers())
        if len(self._joined) < MOST_LINES:
            self._joined.add(line)
            self._listener.join(self._keys.channel_of(line))
        if self._tidying is None:
            self._tidying = self._clock.call_later(QUIET_SECONDS, self._tidy)

    def _tidy(self) -> None:
        """Leave the lines that have had no receiver since the last time."""
        self._leave_those({line for line in self._quiet if not self._bell.has_line(line)})
        self._quiet = self._without_receivers()
        self._tidying = self._clock.call_later(QUIET_SECONDS, self._tidy) if self._joined else None

    def _without_receivers(self) -> set[int]:
        return {line for line in self._joined if not self._bell.has_line(line)}

    def _leave_those(self, lines: Iterable[int]) -> None:
        for line in lines:
            self._joined.discard(line)
            self._listener.leave(self._keys.channel_of(line))

    def _hear(self, message: bytes) -> None:
        try:
            notice = msgspec.json.decode(message, type=Notice)
        except msgspec.DecodeError as error:
            self._report("wake-ups", error)
            return
        is_own = notice.origin == self._origin
        if not is_own:
            for queue_id, numbers in notice.passed.items():
                self.on_passed(queue_id, numbers)
        for queue_id, count in notice.rings.items():
            woken = 0 if is_own else self._bell.ring(queue_id, count)
            if not woken and not self._bell.has_line(queue_id):
                self._leave_those([queue_id])
        if notice.queues_changed and not is_own:
            self.on_queues_changed()


def _nothing() -> None:
    """Nobody has asked to hear of it."""


def _unheard(_line: int, _sequence_numbers: Sequence[int]) -> None:
    """There are no searches."""
