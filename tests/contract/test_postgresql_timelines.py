"""PostgreSQL servers of one system after a promotion: the former primary is no longer used."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.domain.queue import QueueSettings
from app.domain.refusals import StoreUnavailable
from app.locks.backend import RedisOptions, acquire_prefix
from app.runtime.clock import SystemClock
from app.store.migrate import migrate
from app.store.open import open_store
from app.store.postgresql.connect import Connector, parse_address
from app.store.postgresql.store import PostgresqlStore
from app.store.postgresql.timelines import read_timeline
from tests.bounds import bounded
from tests.contract.store_fixture import draft
from tests.peeklock_process import run_peeklock
from tests.servers import PostgresServer, ServerProcess


@pytest.fixture
def copy_of() -> Iterator[Callable[[ServerProcess], ServerProcess]]:
    """Make standbys that have what their primary has now. The primary is stopped meanwhile; the standbys are not started."""
    made: list[ServerProcess] = []

    def make(primary: ServerProcess) -> ServerProcess:
        primary.stop()
        standby = PostgresServer(primary.directory.with_name(f"{primary.directory.name}-copy"))
        made.append(standby)
        standby.directory.mkdir()
        data = standby.directory / "data"
        standby._own_directory(data)
        primary.run("cp", "-a", f"{primary.directory}/data/.", str(data))
        primary.run("touch", str(data / "standby.signal"))
        primary.start()
        return standby

    yield make
    for standby in made:
        standby.kill()
        shutil.rmtree(standby.directory)


async def promote(standby: ServerProcess) -> None:
    """Start a standby and make it a primary."""
    standby.start()
    connection = await asyncpg.connect(standby.url)
    await connection.execute("SELECT pg_promote()")
    await connection.close()


@pytest.fixture
async def copies(
    private_server: Callable[..., ServerProcess], copy_of: Callable[[ServerProcess], ServerProcess]
) -> tuple[ServerProcess, ServerProcess]:
    """A primary that was never told of the promotion of its copy, and that copy."""
    former = private_server(PostgresServer)
    await asyncio.to_thread(migrate, former.url)
    promoted = copy_of(former)
    await promote(promoted)
    return former, promoted


@pytest.fixture
async def store(copies: tuple[ServerProcess, ServerProcess]) -> AsyncIterator[PostgresqlStore]:
    """A store whose URL names the former primary first."""
    former, promoted = copies
    opened = await open_store(both(former, promoted), SystemClock())
    assert isinstance(opened, PostgresqlStore)
    yield opened
    await opened.close()


def both(one: ServerProcess, other: ServerProcess) -> str:
    """Return a URL of two hosts."""
    first, second = urlsplit(one.url), urlsplit(other.url)
    return first._replace(netloc=f"{first.netloc},{second.netloc.rpartition('@')[2]}").geturl()


async def messages(server: ServerProcess) -> int:
    """Return how many messages a server stores."""
    connection = await asyncpg.connect(server.url)
    count: int = await connection.fetchval("SELECT count(*) FROM message")
    await connection.close()
    return count


async def test_of_two_servers_that_accept_writes_the_one_promoted_last_is_used(
    copies: tuple[ServerProcess, ServerProcess], store: PostgresqlStore
) -> None:
    former, promoted = copies
    queue, _ = await store.queues.create("queue", QueueSettings())
    await store.send([draft(queue)])
    assert (await messages(former), await messages(promoted)) == (0, 1)
    promoted.kill()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.send([draft(queue)])
    with pytest.raises(StoreUnavailable, match="former primary"):
        await store.check_writable()
    assert await messages(former) == 0


async def test_a_primary_that_comes_back_after_a_promotion_is_not_used_again(
    private_server: Callable[..., ServerProcess], copy_of: Callable[[ServerProcess], ServerProcess]
) -> None:
    former = private_server(PostgresServer)
    await asyncio.to_thread(migrate, former.url)
    standby = copy_of(former)
    store = await open_store(both(former, standby), SystemClock())
    former.kill()
    await promote(standby)
    former.start()
    for _ in bounded("the store notices that its connections have ended"):
        with contextlib.suppress(StoreUnavailable):
            queue, _ = await store.queues.create("queue", QueueSettings())
            await store.send([draft(queue)])
            break
    await store.close()
    assert (await messages(former), await messages(standby)) == (0, 1)


async def test_a_process_leaves_a_former_primary_that_another_process_knows_of(
    copies: tuple[ServerProcess, ServerProcess], store: PostgresqlStore
) -> None:
    former, _ = copies
    isolated = await open_store(former.url, SystemClock())
    await isolated.acquire_shared()
    queue, _ = await isolated.queues.create("queue", QueueSettings())
    isolated.learn(isolated.seen())
    await isolated.send([draft(queue)])
    isolated.learn(store.seen())
    with pytest.raises(StoreUnavailable, match="former primary"):
        await isolated.send([draft(queue)])
    assert await messages(former) == 1
    await isolated.close()


async def test_a_start_that_reaches_only_a_former_primary_is_refused_and_stores_nothing(
    copies: tuple[ServerProcess, ServerProcess], store: PostgresqlStore, redis_url: str, tmp_path: Path
) -> None:
    former, _ = copies
    settings = {"redis_url": redis_url, "redis_prefix": "former:", "redis_timeout_seconds": 10}
    shared = RedisOptions(redis_url, await store.database_id(), 10, "former:")
    await acquire_prefix(shared, store.seen(), SystemClock(), lambda _name, error: pytest.fail(str(error)))
    done = await asyncio.to_thread(
        run_peeklock,
        "serve", "--port", "0", directory=tmp_path, database_url=former.url, bootstrap_key="k" * 32, **settings,
    )  # fmt: skip
    error = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, "")
    assert error == (
        "The database server that accepts writes is a former primary: another one has been promoted since. "
        f"({urlsplit(former.url).netloc.rpartition('@')[2]}: it is a former primary)"
    )
    connection = await asyncpg.connect(former.url)
    assert await connection.fetchval("SELECT count(*) FROM api_key") == 0
    await connection.close()


async def test_a_role_without_rights_may_read_the_timeline(postgres_url: str) -> None:
    owner = await asyncpg.connect(postgres_url)
    await owner.execute("CREATE ROLE ordinary LOGIN")
    url = urlsplit(postgres_url)
    ordinary = url._replace(netloc=f"ordinary@{url.netloc.rpartition('@')[2]}").geturl()
    try:
        connection = await Connector(parse_address(ordinary))()
        timeline = await read_timeline(connection)
        await connection.close()
    finally:
        await owner.execute("DROP ROLE ordinary")
        system = await owner.fetchval("SELECT system_identifier FROM pg_control_system()")
        await owner.close()
    assert timeline == (system, 1)
