"""A cluster and a Sentinel service: locks and wake-ups work there, with passwords and TLS, and after a master is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from app.broker.ports.lock_store import LockRecord, Renewed
from app.broker.ports.server_directory import Server
from app.domain.instant import MINUTE, SECOND
from app.locks.backend import LockBackend, RedisOptions, open_locks
from app.locks.redis_keys import BUCKETS, RedisKeys
from app.runtime.clock import SystemClock
from app.runtime.wait_queue import WaitQueue
from tests.bounds import bounded
from tests.locks.lock_records import DURATION, EDITION, IN_TIME, TIMEOUT_SECONDS, new_token
from tests.locks.redis_topologies import (
    SOON_DOWN_MILLISECONDS,
    Cluster,
    SentinelServer,
    StartServer,
    TlsSentinelServer,
    TlsServer,
    add_user,
    as_lines,
    make_certificate,
)
from tests.servers import RedisServer, free_port

TRIES, TRY_SECONDS = 600, 0.1
SERVER = Server("a", "a.example", 17, "1.0", 0)
FAR_FUTURE = 4_000_000_000 * SECOND
WAIT_KEY = 12


class Process:
    """One process of a broker; `failures` has what it reports."""

    def __init__(self, url: str, keys: RedisKeys) -> None:
        clock = SystemClock()
        self.wait_queue: WaitQueue[int] = WaitQueue(clock)
        self.failures: list[BaseException] = []
        options = RedisOptions(url, "one", TIMEOUT_SECONDS, keys.prefix)
        self.backend: LockBackend = open_locks(options, self.wait_queue, clock, self._report)

    def _report(self, _name: str, error: BaseException) -> None:
        self.failures.append(error)

    async def keeps_locks(self) -> bool:
        """Whether locks in all buckets are renewed."""
        tokens = [new_token(64 * number) for number in range(BUCKETS)]
        record = LockRecord(1, DURATION, FAR_FUTURE, IN_TIME, EDITION)
        await asyncio.gather(*(self.backend.locks.write_record(token, record) for token in tokens))
        renewed = await asyncio.gather(*(self.backend.locks.renew(token, MINUTE, EDITION) for token in tokens))
        return all(isinstance(answer, Renewed) for answer in renewed)


class Processes:
    """Two processes of one broker on this Redis."""

    def __init__(self, keys: RedisKeys) -> None:
        self._keys = keys
        self._opened = AsyncExitStack()

    async def start(self, url: str) -> tuple[Process, Process]:
        processes = Process(url, self._keys), Process(url, self._keys)
        for process in processes:
            await process.backend.start()
            self._opened.push_async_callback(process.backend.close)
        return processes

    async def close(self) -> None:
        await self._opened.aclose()


@pytest.fixture
async def processes(keys: RedisKeys) -> AsyncIterator[Processes]:
    """Opens processes that are closed with the test."""
    opened = Processes(keys)
    yield opened
    await opened.close()


async def until(what: str, is_met: Callable[[], bool]) -> None:
    """Wait until this is true."""
    for _ in bounded(what, TRIES):
        if is_met():
            break
        await asyncio.sleep(TRY_SECONDS)


async def work_together(sender: Process, receiver: Process) -> None:
    """Wait until both renew locks, a wake-up of one reaches the other, and both say so."""
    for process in (sender, receiver):
        for _ in bounded("renewals", TRIES):
            if await process.keeps_locks():
                break
            await asyncio.sleep(TRY_SECONDS)
    with receiver.wait_queue.waiter(WAIT_KEY) as waiter:
        for _ in bounded("a wake-up", TRIES):
            sender.backend.notifier.notify(WAIT_KEY)  # again, because the other may not be listening yet
            if await waiter.woken(TRY_SECONDS):
                break
    await until("both are ok", lambda: has_state("ok", sender, receiver))


def has_state(state: str, *processes: Process) -> bool:
    """Whether all report this state of the lock store."""
    return {process.backend.locks.state for process in processes} == {state}


async def test_processes_of_a_cluster_share_locks_and_wake_each_other(
    private_server: StartServer, processes: Processes
) -> None:
    cluster = Cluster(private_server, RedisServer)
    await cluster.has_formed()
    pair = await processes.start(f"redis+cluster://{cluster.hosts}")
    await work_together(*pair)
    assert [process.failures for process in pair] == [[], []]


async def test_a_cluster_client_follows_a_failover(private_server: StartServer, processes: Processes) -> None:
    cluster = Cluster(private_server, RedisServer)
    await cluster.has_formed()
    replica = cluster.add_replica(cluster.nodes[0])
    await cluster.has_role(replica, "slave")
    # The URL names the lost master alone: the others are learned from it, and remembered.
    pair = await processes.start(f"redis+cluster://127.0.0.1:{cluster.nodes[0].port}")
    await work_together(*pair)
    cluster.nodes[0].kill()
    await cluster.has_role(replica, "master")
    await cluster.has_formed(replica, *cluster.nodes[1:])
    await work_together(*pair)


async def test_a_cluster_that_starts_later_is_used_then(private_server: StartServer, processes: Processes) -> None:
    cluster = Cluster(private_server, RedisServer)
    for node in cluster.nodes:
        node.pause()
    pair = await processes.start(f"redis+cluster://127.0.0.1:{free_port()},{cluster.hosts}")
    assert has_state("degraded", *pair)
    assert all(process.failures for process in pair)
    for node in cluster.nodes:
        node.resume()
    await work_together(*pair)


async def test_a_cluster_with_one_full_master_is_degraded(private_server: StartServer, processes: Processes) -> None:
    cluster = Cluster(private_server, RedisServer)
    await cluster.has_formed()
    pair = await processes.start(f"redis+cluster://{cluster.hosts}")
    await work_together(*pair)
    full = cluster.nodes[1]
    cluster.ask(full, "config", "set", "maxmemory", "1")
    await until("both are degraded", lambda: has_state("degraded", *pair))
    cluster.ask(full, "config", "set", "maxmemory", "0")
    await work_together(*pair)


async def test_a_cluster_with_tls_user_and_password(
    private_server: StartServer, processes: Processes, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path)
    certificate = tmp_path / "certificate.pem"
    cluster = Cluster(private_server, TlsServer, *files, cli=["--tls", "--cacert", str(certificate)])
    await cluster.has_formed()
    for node in cluster.nodes:
        cluster.ask(node, "acl", "setuser", "peek", "on", ">l@ck/", "~*", "&*", "+@all")
        cluster.ask(node, "acl", "setuser", "default", "off")
    pair = await processes.start(f"rediss+cluster://peek:l%40ck%2F@{cluster.hosts}?ssl_ca_certs={certificate}")
    await work_together(*pair)
    (stranger, _) = await processes.start(f"rediss+cluster://peek:l%40ck%2F@{cluster.hosts}")
    assert stranger.backend.locks.state == "degraded"
    assert "certificate" in str(stranger.failures[0]).lower()


async def test_sentinels_with_a_password_of_their_own_follow_a_lost_master(
    private_server: StartServer, processes: Processes
) -> None:
    master = private_server(RedisServer)
    await add_user(master, "peek", "main")
    replica = private_server(RedisServer, "--replicaof", "127.0.0.1", str(master.port))
    await add_user(replica, "peek", "main")
    watch = private_server(
        SentinelServer,
        f"sentinel monitor main 127.0.0.1 {master.port} 1",
        f"sentinel down-after-milliseconds main {SOON_DOWN_MILLISECONDS}",
        "requirepass watch",
    )
    url = f"redis+sentinel://peek:main@127.0.0.1:{free_port()},127.0.0.1:{watch.port}/main/2?sentinel_password=watch"
    pair = await processes.start(url)
    await work_together(*pair)
    async with Redis(port=watch.port, password="watch") as sentinel:
        for _ in bounded("a replica that the sentinel knows", TRIES):
            if await sentinel.sentinel_slaves("main"):
                break
            await asyncio.sleep(TRY_SECONDS)
    master.kill()
    await work_together(*pair)
    async with Redis(port=replica.port, db=2) as third:
        assert await third.dbsize() > 0


async def test_sentinels_with_tls_follow_a_lost_master(
    private_server: StartServer, processes: Processes, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path)
    certificate = tmp_path / "certificate.pem"
    master = private_server(TlsServer, *files)
    replica = private_server(TlsServer, *files, "--replicaof", "127.0.0.1", str(master.port))
    watch = private_server(
        TlsSentinelServer,
        *as_lines(files),
        f"sentinel monitor main 127.0.0.1 {master.port} 1",
        f"sentinel down-after-milliseconds main {SOON_DOWN_MILLISECONDS}",
    )
    url = f"rediss+sentinel://127.0.0.1:{free_port()},127.0.0.1:{watch.port}/main/2"
    pair = await processes.start(f"{url}?ssl_ca_certs={certificate}")
    await work_together(*pair)
    (stranger, _) = await processes.start(url)
    assert stranger.backend.locks.state == "degraded"
    assert "certificate" in "".join(map(str, stranger.failures)).lower()
    with_tls: Any = {"ssl": True, "ssl_ca_certs": str(certificate)}
    async with Redis(port=watch.port, host="127.0.0.1", **with_tls) as sentinel:
        for _ in bounded("a replica that the sentinel knows", TRIES):
            if await sentinel.sentinel_slaves("main"):
                break
            await asyncio.sleep(TRY_SECONDS)
    master.kill()
    await work_together(*pair)
    async with Redis(port=replica.port, host="127.0.0.1", db=2, **with_tls) as third:
        assert await third.dbsize() > 0


async def test_one_server_with_tls(private_server: StartServer, processes: Processes, tmp_path: Path) -> None:
    server = private_server(TlsServer, *make_certificate(tmp_path))
    pair = await processes.start(f"rediss://127.0.0.1:{server.port}/3?ssl_ca_certs={tmp_path / 'certificate.pem'}")
    await work_together(*pair)
    (unchecked, _) = await processes.start(f"rediss://127.0.0.1:{server.port}/3?ssl_cert_reqs=none")
    assert await unchecked.keeps_locks()


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        (["~*", "&*", "+@all", "-zadd"], "can't run this command"),
        (["~*", "&*", "+@all", "-hset"], "can't run this command"),
        (["~*", "&*", "+@all", "-@scripting"], "evalsha"),
        (["~*", "resetchannels", "+@all"], "channel"),
        (["~elsewhere:*", "&*", "+@all"], "key"),
    ],
)
async def test_a_missing_right_degrades_the_lock_store(
    private_server: StartServer, processes: Processes, rights: list[str], missing: str
) -> None:
    server = private_server(RedisServer)
    async with Redis.from_url(server.url) as redis:
        await redis.execute_command("ACL", "SETUSER", "peek", "on", ">secret", *rights)
    (process, _) = await processes.start(f"redis://peek:secret@127.0.0.1:{server.port}")
    await process.backend.servers.report(SERVER, {WAIT_KEY: {"sent": 1}})
    await until("it is degraded", lambda: has_state("degraded", process) and bool(process.failures))
    assert missing in "".join(map(str, process.failures)).lower()


async def test_the_rights_that_the_guide_names_are_enough(
    private_server: StartServer, processes: Processes, keys: RedisKeys
) -> None:
    server = private_server(RedisServer)
    async with Redis.from_url(server.url) as redis:
        rights = [f"~{keys.prefix}*", f"&{keys.prefix}*", "+@all"]
        await redis.execute_command("ACL", "SETUSER", "peek", "on", ">secret", *rights)
    pair = await processes.start(f"redis://peek:secret@127.0.0.1:{server.port}")
    await pair[0].backend.servers.report(SERVER, {WAIT_KEY: {"sent": 1}})
    await work_together(*pair)
    assert [process.failures for process in pair] == [[], []]
