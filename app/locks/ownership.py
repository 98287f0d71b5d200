"""Keeps the prefix of a broker's keys in Redis for this broker alone.

A broker is the processes of one database, and has that database's identity. Two brokers under one prefix would drop each
other's lock records, which delays redeliveries, and wake each other's receivers. So the prefix belongs to the broker that
took it, until a day after its last process has ended. A process of another broker refuses to start. One that could not
ask when it started, because Redis was away, does without Redis once it can.
"""

from app.locks.keys import Keys
from app.locks.link import Call, Link
from app.locks.lua import OWN
from app.runtime.clock import Clock
from app.runtime.loop import Loop, Report, Rests

OWNED_SECONDS = 86_400
"""How long a prefix stays with a broker that no longer asks: longer than any lock record lives."""

ASK_SECONDS = 5.0
"""How often each process asks, so that it takes the prefix again soon after Redis was emptied."""

CLOSED_SECONDS = 1.0
"""The same while the process does without Redis."""


class PrefixInUse(Exception):
    """Another broker has the prefix; the text is a sentence for the operator."""

    def __init__(self, keys: Keys) -> None:
        super().__init__(
            f"Another broker, with another database, uses Redis under the prefix {keys.prefix!r}. Give each broker a "
            "PEEKLOCK_REDIS_PREFIX of its own. If the other one is gone for good, delete the key "
            f"{keys.owner()!r} in Redis, or wait a day."
        )


async def take(link: Link, keys: Keys, broker: str) -> bool:
    """Take the prefix for a broker; whether Redis has answered. Refuses with `PrefixInUse`."""
    (reply,) = await link.run([Call(OWN, [keys.owner()], [broker, OWNED_SECONDS])])
    if not isinstance(reply, bytes):
        return False
    if reply.decode() != broker:
        raise PrefixInUse(keys)
    return True


class Ownership:
    """Takes the prefix, and keeps it while the process runs.

    It asks over a link of its own. The `gate` is the link of everything else, which carries nothing until the prefix is
    known to be this broker's, nor while it is another one's.
    """

    def __init__(self, link: Link, gate: Link, keys: Keys, broker: str, clock: Clock, report: Report) -> None:
        self._link = link
        self._gate = gate
        self._keys = keys
        self._broker = broker
        self._report = report
        self._is_refused = False
        self._loop = Loop("lock store", self._keep, clock, report=report, rests=Rests(idle_seconds=ASK_SECONDS))
        gate.is_open = False

    async def take(self) -> None:
        """Ask once. Refuses with `PrefixInUse`; where Redis does not answer, nothing changes."""
        try:
            if await take(self._link, self._keys, self._broker):
                self._gate.is_open = True
        except PrefixInUse:
            self._gate.is_open = False
            raise

    def start(self) -> None:
        """Begin to ask again and again."""
        self._loop.start()

    async def stop(self) -> None:
        """Ask no longer. The prefix stays with the broker, whose other processes may go on."""
        await self._loop.stop()

    async def _keep(self) -> float:
        try:
            await self.take()
        except PrefixInUse as error:
            if not self._is_refused:
                self._report("lock store", error)
            self._is_refused = True
        else:
            self._is_refused = False
        return ASK_SECONDS if self._gate.is_open else CLOSED_SECONDS
