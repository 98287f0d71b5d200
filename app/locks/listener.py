"""Hears what is published on some channels, and subscribes again whenever the subscription is lost."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any

from redis.exceptions import RedisError

from app.locks.client import Client, Subscription
from app.runtime.clock import Clock
from app.runtime.loop import Report, Rests

SILENCE_SECONDS = 10.0
"""A subscription that hears nothing for so long asks whether anybody is there; silent again, it is made anew."""

RESTS = Rests()


class Listener:
    """Hands every message of a channel to `hear`, from `start` to `stop`; what comes in between losses is lost.

    More channels may be joined and left at any time, before the start as well. Each loss is reported, and the rest
    before the next try grows.
    """

    def __init__(
        self,
        client: Client,
        channel: str,
        hear: Callable[[bytes], None],
        clock: Clock,
        report: Report,
        *,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._client = client
        self._channel = channel
        self._wanted = {channel}
        self._heard: set[str] = set()
        self._subscription: Subscription | None = None
        self._tuner: asyncio.Task[None] | None = None
        self._hear = hear
        self._clock = clock
        self._report = report
        self._silence_seconds = silence_seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._listen(), name=f"listener {self._channel}")

    async def stop(self) -> None:
        """Stop listening; raises what ended the listening before its time, which would be a bug."""
        tasks = {task for task in (self._tuner, self._task) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    def hears(self, channel: str) -> bool:
        """Whether this channel is joined."""
        return channel in self._wanted

    def join(self, channel: str) -> None:
        """Hear this channel too, from some moments after now; harmless when it is heard already."""
        if channel not in self._wanted:
            self._wanted.add(channel)
            self._tune()

    def leave(self, channel: str) -> None:
        """Hear this channel no longer."""
        self._wanted.discard(channel)
        self._tune()

    def _tune(self) -> None:
        if self._subscription is not None and (self._tuner is None or self._tuner.done()):
            loop = asyncio.get_running_loop()
            # In a context of its own: it may be a request that has somebody wait.
            self._tuner = loop.create_task(self._follow(self._subscription), context=Context())

    async def _follow(self, subscription: Subscription) -> None:
        """Bring what is heard to what is wanted. Whoever reads the subscription reports when it is lost."""
        with suppress(RedisError, OSError):
            while subscription is self._subscription and self._heard != self._wanted:
                more, fewer = self._wanted - self._heard, self._heard - self._wanted
                self._heard = set(self._wanted)
                if more:
                    await subscription.subscribe(*more)
                if fewer:
                    await subscription.unsubscribe(*fewer)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with self._client.pubsub() as subscription:
                    async for message in self._messages(subscription):
                        failures = 0
                        if message["type"] == "message":
                            self._hear(message["data"])
            except (RedisError, OSError) as error:
                failures += 1
                self._report("wake-ups", error)
                await self._clock.sleep(RESTS.after_failure(failures))

    async def _messages(self, subscription: Subscription) -> AsyncGenerator[Mapping[str, Any]]:
        """What comes in, of any type, until the subscription is lost."""
        self._subscription, self._heard = subscription, set(self._wanted)
        try:
            await subscription.subscribe(*self._heard)
            while True:
                yield await self._next(subscription)
        finally:
            # Joining on what is lost would open it again, for nobody.
            self._subscription = None

    async def _next(self, subscription: Subscription) -> Mapping[str, Any]:
        """The next message or sign of life; raises TimeoutError when there is none."""
        message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            await subscription.ping()
            message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            raise TimeoutError(f"nothing was heard on {self._channel} in {2 * self._silence_seconds} s")
        return message
