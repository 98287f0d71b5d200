"""Every form of Redis URL opens a working lock store: one server, sentinels, a cluster."""

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from app.broker.ports.lock_store import LockRecord, Renewed
from app.broker.ports.server_directory import Server
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EXPIRED_GENERATION
from app.locks.connect import BadLockUrl, connect
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import BUCKETS, RedisKeys
from app.locks.redis_lock_store import RedisLockStore
from app.locks.redis_server_directory import RedisServerDirectory
from app.runtime.clock import SystemClock
from tests.locks.conftest import NewToken
from tests.locks.lock_records import EDITION, IN_TIME, TIMEOUT_SECONDS
from tests.locks.redis_topologies import Cluster, SentinelServer
from tests.servers import RedisServer, free_port

DURATION = 30 * SECOND
FAR_FUTURE = 4_000_000_000 * SECOND
SERVER = Server("a", "a.example", 17, "1.0", 0)


async def check_lock_store(url: str, new_token: NewToken) -> None:
    """Call every operation with records in every bucket."""
    failures: list[BaseException] = []
    connection = RedisConnection(
        connect(url, timeout_seconds=TIMEOUT_SECONDS), SystemClock(), lambda _, error: failures.append(error)
    )
    locks = RedisLockStore(connection, RedisKeys())
    tokens = [new_token(64 * number) for number in range(2 * BUCKETS)]
    await asyncio.gather(
        *(locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, IN_TIME, EDITION)) for token in tokens)
    )
    answers = await asyncio.gather(*(locks.renew(token, MINUTE, EDITION) for token in tokens))
    assert all(isinstance(answer, Renewed) for answer in answers)
    assert await locks.expired_generations(tokens) == [NO_EXPIRED_GENERATION] * len(tokens)
    assert await locks.expired_records(100) == []
    await locks.delete_records([(token, 9) for token in tokens[:1]])
    assert not isinstance(await locks.renew(tokens[0], DURATION, EDITION), Renewed)
    reports = await RedisServerDirectory(connection, RedisKeys(), 0).report(SERVER, {7: {"sent": 1}})
    assert reports is not None
    assert [listed.server for listed in reports.servers] == [SERVER]
    await locks.close()
    await connection.close()
    assert failures == []


async def test_a_server_with_user_password_and_database(
    private_server: Callable[..., RedisServer], new_token: NewToken
) -> None:
    server = private_server(RedisServer)
    async with Redis.from_url(server.url) as redis:
        await redis.acl_setuser("peek", enabled=True, passwords=["+l@ck/"], keys=["*"], categories=["+@all"])
    await check_lock_store(f"redis://peek:l%40ck%2F@127.0.0.1:{server.port}/3", new_token)
    async with Redis(port=server.port, db=3) as third, Redis(port=server.port) as first:
        assert await third.dbsize() > 0
        assert await first.dbsize() == 0


async def test_the_master_of_a_sentinel_service(
    private_server: Callable[..., RedisServer], new_token: NewToken
) -> None:
    server = private_server(RedisServer)
    async with Redis.from_url(server.url) as redis:
        await redis.config_set("requirepass", "secret")
    watch = private_server(
        SentinelServer, f"sentinel monitor main 127.0.0.1 {server.port} 1", "sentinel auth-pass main secret"
    )
    unused_port = free_port()
    await check_lock_store(f"redis+sentinel://:secret@127.0.0.1:{unused_port},127.0.0.1:{watch.port}/main/2", new_token)


async def test_each_sentinel_that_names_no_master_is_reported_with_its_reason(
    private_server: Callable[..., RedisServer],
) -> None:
    watch = private_server(SentinelServer, f"sentinel monitor main 127.0.0.1 {free_port()} 1")
    absent = free_port()
    url = f"redis+sentinel://127.0.0.1:{absent},127.0.0.1:{watch.port}/other"
    client = connect(url, timeout_seconds=TIMEOUT_SECONDS)
    with pytest.raises(RedisError) as lost:
        await client.execute([("PING",)])
    await client.aclose()
    text = str(lost.value)
    assert text.startswith(f"No sentinel names a master of other. (127.0.0.1:{absent}: Error 111 connecting to")
    assert text.endswith(f"; 127.0.0.1:{watch.port}: it does not know the service)")


async def test_a_lock_store_works_on_a_cluster(private_server: Callable[..., RedisServer], new_token: NewToken) -> None:
    cluster = Cluster(private_server, RedisServer)
    await cluster.has_formed()
    await check_lock_store(f"redis+cluster://{cluster.hosts}", new_token)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        "redis+sentinel://localhost:26379",
        "redis+sentinel:///main",
        "redis+cluster://",
        "redis+cluster://localhost,",
        "redis+cluster://localhost:many",
        "redis://:many/x@localhost",
        "redis://[::1",
        "redis://localhost?socket_timeout=many",
        "redis://localhost?many=1",
        "redis://localhost?db=1&db=many",
        "redis://localhost/1?db=2",
        "redis://localhost/many",
        "redis://localhost/1/2",
        "redis://user:many#word@localhost",
        "redis://user:many?word=1@localhost",
        "redis://localhost?ssl_ca_certs=many",
        "redis://one,two",
        "rediss://localhost?ssl_cert_reqs=many",
        "rediss://localhost?ssl_check_hostname=many",
        "rediss://localhost?ssl_ca_certs=/does/not/exist/many",
        "redis+sentinel://localhost/main/many",
        "redis+sentinel://localhost/main?many=1",
        "redis+cluster://localhost?many=1",
        "redis+cluster://localhost?sentinel_password=many",
        "redis+cluster://localhost/1",
        "redis+sentinel://::1/many",
        "unix://localhost/many",
        "unix://",
    ],
)
def test_a_url_that_names_no_redis_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(BadLockUrl) as refused:
        connect(url, timeout_seconds=TIMEOUT_SECONDS)
    assert "many" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
