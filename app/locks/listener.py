"""Hears what is published on some channels, and subscribes again whenever the subscription is lost."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any

from redis.exceptions import RedisError

from app.locks.redis_client import RedisClient, RedisSubscription
from app.runtime.background_loop import ErrorReporter, LoopDelays
from app.runtime.clock import Clock

SILENCE_SECONDS = 10.0
"""A subscription that hears nothing for so long asks whether anybody is there; silent again, it is made anew."""

RETRY_DELAYS = LoopDelays()


class Listener:
    """Hands every message of a channel to `hear`, from `start` to `stop`; what comes in between losses is lost.

    More channels may be joined and left at any time, before the start as well. Each loss is reported, and the rest
    before the next try grows.
    """

    def __init__(
        self,
        client: RedisClient,
        channel: str,
        on_message: Callable[[bytes], None],
        clock: Clock,
        report: ErrorReporter,
        *,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._client = client
        self._channel = channel
        self._wanted = {channel}
        self._subscribed: set[str] = set()
        self._subscription: RedisSubscription | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._on_message = on_message
        self._clock = clock
        self._report = report
        self._silence_seconds = silence_seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._listen(), name=f"listener {self._channel}")

    async def stop(self) -> None:
        """Stop listening; raises what ended the listening before its time, which would be a bug."""
        tasks = {task for task in (self._sync_task, self._task) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    def is_subscribed(self, channel: str) -> bool:
        """Whether this channel is joined."""
        return channel in self._wanted

    def subscribe(self, channel: str) -> None:
        """Hear this channel too, from some moments after now; harmless when it is heard already."""
        if channel not in self._wanted:
            self._wanted.add(channel)
            self._start_sync()

    def unsubscribe(self, channel: str) -> None:
        """Hear this channel no longer."""
        self._wanted.discard(channel)
        self._start_sync()

    def _start_sync(self) -> None:
        if self._subscription is not None and (self._sync_task is None or self._sync_task.done()):
            loop = asyncio.get_running_loop()
            # In a context of its own: it may be a request that has somebody wait.
            self._sync_task = loop.create_task(self._sync_channels(self._subscription), context=Context())

    async def _sync_channels(self, subscription: RedisSubscription) -> None:
        """Bring what is heard to what is wanted. Whoever reads the subscription reports when it is lost."""
        with suppress(RedisError, OSError):
            while subscription is self._subscription and self._subscribed != self._wanted:
                added, removed = self._wanted - self._subscribed, self._subscribed - self._wanted
                self._subscribed = set(self._wanted)
                if added:
                    await subscription.subscribe(*added)
                if removed:
                    await subscription.unsubscribe(*removed)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with self._client.pubsub() as subscription:
                    async for message in self._messages(subscription):
                        failures = 0
                        if message["type"] == "message":
                            self._on_message(message["data"])
            except (RedisError, OSError) as error:
                failures += 1
                self._report("wake-ups", error)
                await self._clock.sleep(RETRY_DELAYS.after_failure(failures))

    async def _messages(self, subscription: RedisSubscription) -> AsyncGenerator[Mapping[str, Any]]:
        """What comes in, of any type, until the subscription is lost."""
        self._subscription, self._subscribed = subscription, set(self._wanted)
        try:
            await subscription.subscribe(*self._subscribed)
            while True:
                yield await self._next_message(subscription)
        finally:
            # Joining on what is lost would open it again, for nobody.
            self._subscription = None

    async def _next_message(self, subscription: RedisSubscription) -> Mapping[str, Any]:
        """The next message or sign of life; raises TimeoutError when there is none."""
        message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            await subscription.ping()
            message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            raise TimeoutError(f"nothing was heard on {self._channel} in {2 * self._silence_seconds} s")
        return message
