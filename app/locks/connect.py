"""Opens a client for a Redis URL, with timeouts that keep requests from waiting long for Redis."""

import ssl
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.locks.cluster_client import open_cluster
from app.locks.redis_client import RedisClient, RedisCommand, RedisSubscription
from app.locks.redis_url import CLUSTER, SENTINEL, BadLockUrl, RedisUrl
from app.locks.sentinels import Sentinels

__all__ = ["BadLockUrl", "connect"]


def connect(url: str, *, timeout_seconds: float) -> RedisClient:
    """Return a client that connects on first use, and fails when an answer or a connection takes longer than this.

    One server: `redis://[user:password@]host[:port][/db]`, or `unix://path`.
    The master of a Sentinel service: `redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/db]`.
    A cluster: `redis+cluster://[user:password@]host[:port][,host[:port]...]`, any of its nodes.
    With TLS: `rediss://`, `rediss+sentinel://` and `rediss+cluster://`.
    User and password are those of the servers. Those of sentinels are in the options `sentinel_username` and
    `sentinel_password`. Refuses with `BadLockUrl` any other URL, an unknown option, and TLS files that cannot be read.
    """
    parsed = RedisUrl.parse(url)
    _check_files(parsed.tls)
    limits = _limits(timeout_seconds)
    if parsed.kind == CLUSTER:
        return open_cluster(parsed.hosts, timeout_seconds, {**parsed.credentials, **parsed.tls, **limits})
    if parsed.kind == SENTINEL:
        return _open_sentinel(parsed, limits)
    redis: Any = Redis  # its options have no types
    options = {"db": parsed.database, **parsed.credentials, **parsed.tls, **limits}
    if not parsed.hosts:
        return _PooledClient(redis(unix_socket_path=parsed.socket, **options))
    ((host, port),) = parsed.hosts
    return _PooledClient(redis(host=host, port=port, **options))


def _limits(timeout_seconds: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        # A second try would double the wait; callers continue without Redis instead.
        "retry": Retry(NoBackoff(), retries=0),
        # With RESP2 and no driver info, a new connection costs no round trip before its first command.
        "protocol": 2,
        "driver_info": None,
    }


def _check_files(tls: dict[str, Any]) -> None:
    """Load the certificates and the key now, and not at the first connection."""
    context = ssl.create_default_context()
    try:
        if certificates := tls.get("ssl_ca_certs"):
            context.load_verify_locations(certificates)
        if (certificate := tls.get("ssl_certfile")) or tls.get("ssl_keyfile"):
            context.load_cert_chain(certificate or "", tls.get("ssl_keyfile"), password="")
    except OSError as error:
        reason = error.strerror or "it has no valid certificate or key"
        raise BadLockUrl(
            f"A file of its options ssl_ca_certs, ssl_certfile and ssl_keyfile cannot be used: {reason}."
        ) from None


class _PooledClient:
    """The client of one server. `others` are closed with it."""

    counts_all_subscribers = True

    def __init__(self, redis: Any, others: Sequence[Any] = ()) -> None:
        self._redis = redis
        self._others = others

    async def execute(self, commands: Sequence[RedisCommand]) -> list[Any]:
        """See `RedisClient`."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute(False)

    def subscription(self) -> AbstractAsyncContextManager[RedisSubscription]:
        """See `RedisClient`."""
        return self._redis.pubsub()

    async def aclose(self) -> None:
        """See `RedisClient`."""
        for client in (self._redis, *self._others):
            await client.aclose()


def _open_sentinel(parsed: RedisUrl, limits: dict[str, Any]) -> RedisClient:
    """Return a client of a service's master, which asks the sentinels for the master at each new connection."""
    ours = {**parsed.tls, **limits}
    sentinel: Any = Sentinels(parsed.hosts, sentinel_kwargs={**parsed.sentinel_credentials, **ours}, **ours)
    master = sentinel.master_for(parsed.service, db=parsed.database, **parsed.credentials)
    return _PooledClient(master, sentinel.sentinels)
