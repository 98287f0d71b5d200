"""The part of redis-py that this backend uses, with the types that redis-py leaves open."""

from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self


class RedisPipeline(Protocol):
    """Commands that are sent together."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def execute_command(self, *command: str | bytes | int) -> object:
        """Add a command."""
        ...

    async def execute(self, _raise_on_error: bool, /) -> list[Any]:
        """Send all commands and return their replies. With False, an error of Redis is returned as the reply of its command."""
        ...


class RedisSubscription(Protocol):
    """A connection that receives published messages."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def subscribe(self, *_channels: str) -> None:
        """Subscribe to these channels."""
        ...

    async def unsubscribe(self, *_channels: str) -> None:
        """Unsubscribe from these channels."""
        ...

    async def ping(self) -> object:
        """Send a PING; the answer arrives as a message."""
        ...

    def get_message(self, *, timeout: float) -> Awaitable[Mapping[str, Any] | None]:
        """Return the next message of any type, or None after `timeout` seconds without one."""
        ...


class RedisClient(Protocol):
    """A pool of connections to Redis."""

    def pipeline(self, *, transaction: bool) -> RedisPipeline:
        """Return an empty pipeline."""
        ...

    def pubsub(self) -> RedisSubscription:
        """Return a subscription without channels."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
