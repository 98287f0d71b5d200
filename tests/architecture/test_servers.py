"""The servers that tests rely on do what their names say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import psutil
import pymysql
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.store.migrate import SchemaStatus, schema_status
from tests.databases import RunResources
from tests.server_drivers import DRIVERS
from tests.servers import MariaServer, PostgresServer, RedisServer, ServerProcess

EVERY_SERVER = pytest.mark.parametrize(
    "make", [PostgresServer, RedisServer, pytest.param(MariaServer, marks=pytest.mark.nightly)]
)


@EVERY_SERVER
def test_a_killed_server_is_gone_and_starts_again_where_it_was(
    private_server: Callable[..., ServerProcess], make: type[ServerProcess]
) -> None:
    server = private_server(make)
    url, pid = server.url, server.pid
    server.kill()
    assert not server.is_ready()
    assert not psutil.pid_exists(pid)
    server.start()
    assert server.is_ready()
    assert server.url == url


@EVERY_SERVER
def test_a_stopped_server_leaves_no_process(
    private_server: Callable[..., ServerProcess], make: type[ServerProcess]
) -> None:
    server = private_server(make)
    tree = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    server.stop()
    assert [process for process in tree if process.is_running()] == []


def test_a_paused_server_is_silent_until_it_is_resumed(private_server: Callable[..., ServerProcess]) -> None:
    server = private_server(RedisServer)
    client = redis.Redis(port=server.port, socket_timeout=1, retry=Retry(NoBackoff(), retries=0))
    server.pause()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    server.resume()
    assert client.ping()
    client.close()


def test_a_killed_postgresql_keeps_what_was_committed(private_server: Callable[..., ServerProcess]) -> None:
    server = private_server(PostgresServer)
    asyncio.run(_value(server.url, "CREATE TABLE kept AS SELECT 42 AS answer"))
    server.kill()
    server.start()
    assert asyncio.run(_value(server.url, "SELECT answer FROM kept")) == 42


def test_servers_are_as_durable_as_their_makers_ship_them(private_server: Callable[..., ServerProcess]) -> None:
    postgres, maria = private_server(PostgresServer), private_server(MariaServer)
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert asyncio.run(_value(postgres.url, f"SHOW {name}")) == "on"
    with pymysql.connect(host="127.0.0.1", port=maria.port, user="root") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@innodb_flush_log_at_trx_commit")
        assert cursor.fetchall() == ((1,),)


@pytest.mark.parametrize("kind", list(DRIVERS))
def test_databases_are_lent_empty_and_apart_and_taken_back(
    run_resources: RunResources, require_server: Callable[[str], str], kind: str
) -> None:
    with run_resources.empty_database(require_server(kind)) as one, run_resources.empty_database(kind) as other:
        assert one != other
    again = DRIVERS[kind].create(run_resources.server(kind).url, "peeklock_test_again")
    DRIVERS[kind].drop(again)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_copied_database_has_the_tables_and_rows_of_its_template(
    run_resources: RunResources, require_server: Callable[[str], str], kind: str
) -> None:
    with run_resources.empty_database(require_server(kind)) as template:
        _execute(template, "CREATE TABLE kept (answer int PRIMARY KEY)", "INSERT INTO kept VALUES (42)")
        if kind == "mariadb":
            _execute(template, "ALTER DATABASE CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        copy = DRIVERS[kind].copy(template, "peeklock_test_copy")
        try:
            assert _execute(copy, "SELECT answer FROM kept") == 42
            if kind == "mariadb":
                assert _execute(copy, "SELECT @@collation_database") == "utf8mb4_bin"
        finally:
            DRIVERS[kind].drop(copy)


def test_migrated_databases_have_the_tables_of_today(
    postgres_url: str, mariadb_url: str, sqlite_url: str, empty_postgres_url: str, empty_mariadb_url: str
) -> None:
    assert all(schema_status(url) is SchemaStatus.CURRENT for url in (postgres_url, mariadb_url, sqlite_url))
    assert all(schema_status(url) is SchemaStatus.BEHIND for url in (empty_postgres_url, empty_mariadb_url))


def _execute(url: str, *statements: str) -> Any:
    if url.startswith("postgresql"):
        return [asyncio.run(_value(url, statement)) for statement in statements][-1]
    _, _, address = url.partition("@127.0.0.1:")
    port, _, database = address.partition("/")
    with pymysql.connect(host="127.0.0.1", port=int(port), user="root", database=database) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
        rows = cursor.fetchall()
    return rows[0][0] if rows else None


async def _value(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
