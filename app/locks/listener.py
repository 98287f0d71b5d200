"""Receives messages of Redis channels, and subscribes again after each failure."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import Context
from typing import Any

from app.locks.redis_client import RedisSubscription
from app.locks.redis_connection import RedisConnection
from app.runtime.background_loop import ErrorReporter, LoopDelays
from app.runtime.clock import Clock

SILENCE_SECONDS = 10.0
"""After this long without a message the listener sends a PING. After as long without an answer it subscribes again."""

RETRY_DELAYS = LoopDelays()

SUBSCRIBE = "subscribe"
"""The name of a subscription in `RedisConnection.failing`, next to the names of scripts."""


class Listener:
    """Passes every message of its channels to `on_message`, from `start` to `stop`.

    Messages that are published while the subscription is lost are lost too. Each loss is reported, for any cause, and
    the delay before the next try grows. From a loss until the next message of Redis, `failing` of the connection contains
    `SUBSCRIBE`.
    Channels may be added and removed at any time, also before the start.
    """

    def __init__(
        self,
        connection: RedisConnection,
        channel: str,
        on_message: Callable[[bytes], None],
        clock: Clock,
        report: ErrorReporter,
        *,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._wanted = {channel}
        self._subscribed: set[str] = set()
        self._subscription: RedisSubscription | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._sync_failure: Exception | None = None
        self._on_message = on_message
        self._clock = clock
        self._report = report
        self._silence_seconds = silence_seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to listen."""
        self._task = asyncio.create_task(self._listen(), name=f"listener {self._channel}")

    async def stop(self) -> None:
        """Stop listening."""
        tasks = {task for task in (self._sync_task, self._task) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def is_subscribed(self, channel: str) -> bool:
        """Whether the listener wants this channel."""
        return channel in self._wanted

    def subscribe(self, channel: str) -> None:
        """Subscribe to this channel soon; harmless if it is subscribed already."""
        if channel not in self._wanted:
            self._wanted.add(channel)
            self._start_sync()

    def unsubscribe(self, channel: str) -> None:
        """Unsubscribe from this channel soon."""
        self._wanted.discard(channel)
        self._start_sync()

    def _start_sync(self) -> None:
        if self._subscription is not None and (self._sync_task is None or self._sync_task.done()):
            loop = asyncio.get_running_loop()
            # A new context: the caller may be a request that begins to wait.
            self._sync_task = loop.create_task(self._sync_channels(self._subscription), context=Context())

    async def _sync_channels(self, subscription: RedisSubscription) -> None:
        """Subscribe to added channels and leave removed ones. After a failure, the reader reports it and subscribes again."""
        try:
            while subscription is self._subscription and self._subscribed != self._wanted:
                added, removed = self._wanted - self._subscribed, self._subscribed - self._wanted
                self._subscribed = set(self._wanted)
                if added:
                    await subscription.subscribe(*added)
                if removed:
                    await subscription.unsubscribe(*removed)
        except Exception as error:  # noqa: BLE001  # the reader reports it
            if subscription is self._subscription:
                self._sync_failure = error

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with self._connection.client.subscription() as subscription:
                    async for message in self._messages(subscription):
                        failures = 0
                        self._connection.failing.discard(SUBSCRIBE)
                        if message["type"] == "message":
                            self._on_message(message["data"])
            except Exception as error:  # noqa: BLE001  # nothing else would start it again
                failures += 1
                self._connection.failing.add(SUBSCRIBE)
                self._report("wake-ups", error)
                await self._clock.sleep(RETRY_DELAYS.after_failure(failures))

    async def _messages(self, subscription: RedisSubscription) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield incoming messages of any type until the subscription is lost."""
        self._subscription, self._subscribed, self._sync_failure = subscription, set(self._wanted), None
        try:
            await subscription.subscribe(*self._subscribed)
            while self._sync_failure is None:
                yield await self._next_message(subscription)
            raise self._sync_failure
        finally:
            # A subscribe on a lost subscription would reopen it, without a reader.
            self._subscription = None

    async def _next_message(self, subscription: RedisSubscription) -> Mapping[str, Any]:
        """Return the next message or the answer to a PING. Raises `TimeoutError` without either."""
        message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            await subscription.ping()
            message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            raise TimeoutError(f"nothing was received on {self._channel} in {2 * self._silence_seconds} s")
        return message
