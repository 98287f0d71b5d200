"""Opens a client for a Redis URL, with timeouts that keep requests from waiting long for Redis."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from app.locks.redis_client import RedisClient, RedisPipeline, RedisSubscription

SENTINEL = "redis+sentinel"
CLUSTER = "redis+cluster"
DEFAULT_PORTS = {SENTINEL: 26379, CLUSTER: 6379}
EXAMPLES = (
    "redis://user:password@host:6379/0, rediss:// the same with TLS, unix:///path/to/socket, "
    "redis+sentinel://host:26379,host:26379/service or redis+cluster://host:6379,host:6379"
)


class BadLockUrl(ValueError):
    """The URL names no usable Redis. The text never quotes the URL, which may contain a password."""


def connect(url: str, *, timeout_seconds: float) -> RedisClient:
    """Return a client that connects on first use, and fails when an answer or a connection takes longer than this.

    One server: `redis://[user:password@]host[:port][/db]`, with TLS `rediss://...`, or `unix://path`.
    The master of a Sentinel service: `redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/db]`.
    A cluster: `redis+cluster://[user:password@]host[:port][,host[:port]...]`, any of its nodes.
    User and password are for the servers, not for the sentinels. Refuses with `BadLockUrl` any other URL.
    """
    try:
        return _client(url, _limits(timeout_seconds))
    except BadLockUrl:
        raise
    except (ValueError, TypeError):
        raise BadLockUrl(f"This names no Redis; write a URL like {EXAMPLES}.") from None


def _client(url: str, limits: dict[str, Any]) -> RedisClient:
    scheme = urlsplit(url).scheme
    if scheme == SENTINEL:
        return _SentinelClient(_Addresses.read(url), limits)
    if scheme == CLUSTER:
        return _cluster(_Addresses.read(url), limits)
    redis: Any = Redis  # its options have no types
    client = redis.from_url(url, **limits)
    # This finds an unknown option now, and not at the first connection.
    client.connection_pool.make_connection()
    return client


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


@dataclass(frozen=True, slots=True)
class _Addresses:
    """The parts of a URL that names several hosts."""

    hosts: list[tuple[str, int]]
    credentials: dict[str, str]
    path: list[str]

    @classmethod
    def read(cls, url: str) -> "_Addresses":
        parts = urlsplit(url)
        user_info, _, hosts = parts.netloc.rpartition("@")
        username, _, password = map(unquote, user_info.partition(":"))
        credentials = {"username": username, "password": password}
        return cls(
            [_address(host, DEFAULT_PORTS[parts.scheme]) for host in hosts.split(",")],
            {name: value for name, value in credentials.items() if value},
            [step for step in parts.path.split("/") if step],
        )


def _address(host: str, default_port: int) -> tuple[str, int]:
    name, _, port = host.partition(":")
    if not name:
        raise BadLockUrl("A Redis URL names an empty host.")
    return name, int(port or default_port)


class _SentinelClient:
    """A client of a service's master. It looks the master up for each connection, and closes the sentinels too."""

    def __init__(self, addresses: _Addresses, limits: dict[str, Any]) -> None:
        if not addresses.path:
            raise BadLockUrl(f"A URL {SENTINEL}://host:port,host:port/service[/db] names its service.")
        service, *database = addresses.path
        self._sentinel: Any = Sentinel(addresses.hosts, sentinel_kwargs=limits, **limits)
        self._redis: RedisClient = self._sentinel.master_for(
            service, db=int(database[0]) if database else 0, **addresses.credentials
        )

    def pipeline(self, *, transaction: bool) -> RedisPipeline:
        return self._redis.pipeline(transaction=transaction)

    def pubsub(self) -> RedisSubscription:
        return self._redis.pubsub()

    async def aclose(self) -> None:
        for client in (self._redis, *self._sentinel.sentinels):
            await client.aclose()


def _cluster(addresses: _Addresses, limits: dict[str, Any]) -> RedisClient:
    nodes = [ClusterNode(name, port) for name, port in addresses.hosts]
    cluster: Any = RedisCluster
    return cluster(startup_nodes=nodes, **addresses.credentials, **limits)
