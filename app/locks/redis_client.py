"""The little of redis-py that this room uses, with the types that redis-py leaves open."""

from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self


class RedisPipeline(Protocol):
    """Commands that leave together."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def execute_command(self, *command: str | bytes | int) -> object:
        """Add a command."""
        ...

    async def execute(self, _raise_on_error: bool, /) -> list[Any]:
        """Send all; their answers, and with False an error of Redis in the place of the answer it is."""
        ...


class RedisSubscription(Protocol):
    """A connection that hears what is published."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def subscribe(self, *_channels: str) -> None:
        """Hear these channels from now on."""
        ...

    async def unsubscribe(self, *_channels: str) -> None:
        """Hear these channels no longer."""
        ...

    async def ping(self) -> object:
        """Ask for a sign of life, which arrives as a message."""
        ...

    def get_message(self, *, timeout: float) -> Awaitable[Mapping[str, Any] | None]:
        """The next message of any type; None after so many seconds without."""
        ...


class RedisClient(Protocol):
    """A pool of connections to Redis."""

    def pipeline(self, *, transaction: bool) -> RedisPipeline:
        """An empty pipeline."""
        ...

    def pubsub(self) -> RedisSubscription:
        """A subscription to nothing yet."""
        ...

    async def aclose(self) -> None:
        """Let the connections go."""
        ...
