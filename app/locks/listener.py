"""Hears what is published on a channel, and subscribes again whenever the subscription is lost."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import RedisError

from app.locks.client import Client, Subscription
from app.runtime.clock import Clock
from app.runtime.loop import Report, Rests

SILENCE_SECONDS = 10.0
"""A subscription that hears nothing for so long asks whether anybody is there; silent again, it is made anew."""

RESTS = Rests(largest_failure_seconds=5.0)


class Listener:
    """Hands every message of a channel to `hear`, from `start` to `stop`; what comes in between losses is lost.

    Each loss is reported, and the rest before the next try grows.
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
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with self._client.pubsub() as subscription:
                    await subscription.subscribe(self._channel)
                    while True:
                        message = await self._next(subscription)
                        failures = 0
                        if message["type"] == "message":
                            self._hear(message["data"])
            except (RedisError, OSError) as error:
                failures += 1
                self._report("wake-ups", error)
                await self._clock.sleep(RESTS.after_failure(failures))

    async def _next(self, subscription: Subscription) -> Mapping[str, Any]:
        """The next message or sign of life; raises TimeoutError when there is none."""
        message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            await subscription.ping()
            message = await subscription.get_message(timeout=self._silence_seconds)
        if message is None:
            raise TimeoutError(f"nothing was heard on {self._channel} in {2 * self._silence_seconds} s")
        return message
