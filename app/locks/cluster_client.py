"""A client of a Redis Cluster. It reads the nodes again after each failure, and so finds the new master after a failover."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis import exceptions
from redis.asyncio.cluster import ClusterNode, RedisCluster

from app.locks.redis_client import REDIS_FAILURES, RedisClient, RedisCommand, RedisSubscription

TOPOLOGY_ERRORS = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ClusterDownError)
"""Replies after which another node may have the slots. redis-py itself follows a MOVED reply."""


def open_cluster(hosts: list[tuple[str, int]], timeout_seconds: float, options: dict[str, Any]) -> RedisClient:
    """Return a client of the cluster that some of these nodes belong to. `options` are those of redis-py."""
    cluster: Any = RedisCluster
    nodes = [ClusterNode(host, port) for host, port in hosts]
    return _ClusterClient(cluster(startup_nodes=nodes, **options), hosts, timeout_seconds)


class _ClusterClient:
    """Reads the nodes before a command, if they are not known. redis-py does this only when it repeats a command, and this
    client repeats none.

    A caller waits at most `timeout_seconds` for the nodes. The read continues, for the next caller.
    """

    counts_all_subscribers = False

    def __init__(self, cluster: Any, hosts: list[tuple[str, int]], timeout_seconds: float) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._timeout_seconds = timeout_seconds
        self._reading: asyncio.Task[None] | None = None
        """The task that reads the nodes, or has read them. None if they must be read again."""

    async def execute(self, commands: Sequence[RedisCommand]) -> list[Any]:
        """See `RedisClient`."""
        await self._ensure_nodes()
        try:
            async with self._cluster.pipeline() as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies = await pipeline.execute(False)
        except REDIS_FAILURES:
            self._forget_nodes()
            raise
        if any(isinstance(reply, TOPOLOGY_ERRORS) for reply in replies):
            self._forget_nodes()
        return replies

    @asynccontextmanager
    async def subscription(self) -> AsyncGenerator[RedisSubscription]:
        """See `RedisClient`. Any node gets what is published at any other, so one is chosen at random."""
        await self._ensure_nodes()
        try:
            async with self._cluster.pubsub(node=random.choice(self._cluster.get_primaries())) as subscription:
                yield subscription
        except REDIS_FAILURES:
            self._forget_nodes()
            raise

    async def aclose(self) -> None:
        """See `RedisClient`."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait({reading})
        await self._cluster.aclose()

    def _forget_nodes(self) -> None:
        if self._reading is not None and self._reading.done():
            self._reading = None

    async def _ensure_nodes(self) -> None:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_nodes(), name="nodes of the Redis cluster")
        try:
            await asyncio.wait_for(asyncio.shield(self._reading), self._timeout_seconds)
        except Exception:
            # Also an error that is not one of redis-py: the next caller reads again.
            self._forget_nodes()
            raise

    async def _read_nodes(self) -> None:
        """Read the nodes from any known node, or from any that the URL names, because all known nodes may have moved."""
        await self._cluster.initialize(additional_startup_nodes_info=self._hosts)
        await self._cluster.nodes_manager.initialize(additional_startup_nodes_info=self._hosts)
