"""The part of redis-py that this backend uses, with the types and the failures that redis-py does not declare."""

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from redis.exceptions import RedisClusterException, RedisError

RedisCommand = Sequence[str | bytes | int]

REDIS_FAILURES = (RedisError, RedisClusterException, OSError)
"""What redis-py raises if Redis fails. Its errors for a cluster without nodes or slots are not a `RedisError`."""


class RedisSubscription(Protocol):
    """A connection that receives published messages."""

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
    """The connections to one server, to the master of a service, or to the nodes of a cluster."""

    @property
    def counts_all_subscribers(self) -> bool:
        """Whether the reply to PUBLISH counts the subscribers of all nodes."""
        ...

    async def execute(self, commands: Sequence[RedisCommand]) -> list[Any]:
        """Send commands together and return their replies. An error of Redis is the reply to its command.

        Raises one of `REDIS_FAILURES` if Redis does not answer.
        """
        ...

    def subscription(self) -> AbstractAsyncContextManager[RedisSubscription]:
        """Return a subscription without channels. Using it raises one of `REDIS_FAILURES` once it is lost."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
