"""The operations of a test run on each kind of server: check it, and create, copy and drop databases."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, ClassVar
from urllib.parse import unquote, urlsplit

import asyncpg
import pymysql
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


class ServerUnusable(Exception):
    """The server does not answer, refuses the login, or does not let us create a database."""


class ServerDriver(ABC):
    """One kind of server, by its address."""

    url_variable: ClassVar[str]  # the environment variable that may name one
    default_urls: ClassVar[tuple[str, ...]]  # where a server answers after a default installation

    @abstractmethod
    def version(self, server: str) -> str:
        """Return its name and version."""

    @abstractmethod
    def create(self, server: str, name: str) -> str:
        """Create an empty database and return its address."""

    @abstractmethod
    def copy(self, template: str, name: str) -> str:
        """Copy a database that has no connections, and return the address of the copy."""

    @abstractmethod
    def drop(self, database: str) -> None:
        """Drop a database, even if it has connections."""

    def check_usable(self, server: str) -> None:
        """Refuse a server on which we may not create a database."""
        self.drop(self.create(server, f"peeklock_probe_{os.getpid()}"))


class PostgresDriver(ServerDriver):
    """PostgreSQL."""

    url_variable = "PEEKLOCK_TEST_POSTGRES_URL"
    default_urls = (
        "postgresql://postgres@127.0.0.1:5432/postgres",
        "postgresql://postgres:postgres@127.0.0.1:5432/postgres",
    )

    def version(self, server: str) -> str:
        return f"PostgreSQL {_postgres(server, 'SHOW server_version').split()[0]}"

    def create(self, server: str, name: str) -> str:
        _postgres(server, f"CREATE DATABASE {name}")
        return _renamed(server, name)

    def copy(self, template: str, name: str) -> str:
        _postgres(_renamed(template, "postgres"), f"CREATE DATABASE {name} TEMPLATE {_name(template)}")
        return _renamed(template, name)

    def drop(self, database: str) -> None:
        _postgres(_renamed(database, "postgres"), f"DROP DATABASE IF EXISTS {_name(database)} WITH (FORCE)")


class MariaDriver(ServerDriver):
    """MariaDB or MySQL."""

    url_variable = "PEEKLOCK_TEST_MYSQL_URL"
    default_urls = ("mysql://root@127.0.0.1:3306/", "mysql://root:root@127.0.0.1:3306/")

    def version(self, server: str) -> str:
        with _mysql(server) as cursor:
            cursor.execute("SELECT version()")
            version = str(cursor.fetchall()[0][0])
        return f"MariaDB {version.partition('-')[0]}" if "MariaDB" in version else f"MySQL {version}"

    def create(self, server: str, name: str) -> str:
        with _mysql(server) as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return _renamed(server, name)

    def copy(self, template: str, name: str) -> str:
        with _mysql(template) as cursor:
            cursor.execute("SHOW FULL TABLES WHERE table_type = 'BASE TABLE'")
            tables = [row[0] for row in cursor.fetchall()]
            cursor.execute("SELECT @@character_set_database, @@collation_database")
            letters, order = cursor.fetchall()[0]
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET {letters} COLLATE {order}")
            cursor.execute("SET foreign_key_checks = 0")
            for table in tables:
                cursor.execute(f"SHOW CREATE TABLE `{table}`")
                statement = cursor.fetchall()[0][1]
                cursor.execute(f"USE {name}")
                cursor.execute(statement)
                cursor.execute(f"INSERT INTO `{table}` SELECT * FROM {_name(template)}.`{table}`")
                cursor.execute(f"USE {_name(template)}")
        return _renamed(template, name)

    def drop(self, database: str) -> None:
        with _mysql(_renamed(database, "")) as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {_name(database)}")


class RedisDriver(ServerDriver):
    """Redis or Valkey. Its databases are numbered and always exist: we use empty ones that no other run holds."""

    url_variable = "PEEKLOCK_TEST_REDIS_URL"
    default_urls = ("redis://127.0.0.1:6379/0",)

    def __init__(self) -> None:
        self._reserved: dict[str, IO[str]] = {}

    def version(self, server: str) -> str:
        with _redis(server) as client:
            facts: dict[str, Any] = client.info("server")
        return f"Valkey {facts['valkey_version']}" if "valkey_version" in facts else f"Redis {facts['redis_version']}"

    def create(self, server: str, name: str) -> str:
        with _redis(server) as client:
            numbers = range(int(client.config_get("databases")["databases"]) - 1, -1, -1)
        for database in (_renamed(server, str(number)) for number in numbers):
            if self._reserve(database):
                with _redis(database) as client:
                    if client.dbsize() == 0:
                        return database
                self._reserved.pop(database).close()
        raise ServerUnusable(f"{server} has no empty database left for {name}")

    def copy(self, template: str, name: str) -> str:
        raise NotImplementedError(f"Redis needs no tables, so {name} needs no template")

    def drop(self, database: str) -> None:
        with _redis(database) as client:
            client.flushdb()
        _claim(database).unlink()
        self._reserved.pop(database).close()

    def _reserve(self, database: str) -> bool:
        """Reserve a number among all test runs of this machine while this process lives."""
        file = _claim(database).open("w")
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _claim(database).stat().st_ino == os.fstat(file.fileno()).st_ino:  # not one just removed by its owner
                self._reserved[database] = file
                return True
        file.close()
        return False


DRIVERS: dict[str, ServerDriver] = {"postgresql": PostgresDriver(), "mariadb": MariaDriver(), "redis": RedisDriver()}


def run_in_thread(work: Any) -> Any:
    """Run a function in a new thread, so that it may use an event loop in any context."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(work).result()


def _postgres(url: str, statement: str) -> Any:
    async def execute() -> Any:
        connection = await asyncpg.connect(url, timeout=10, statement_cache_size=0)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    try:
        return run_in_thread(lambda: asyncio.run(execute()))
    except (OSError, TimeoutError, asyncpg.PostgresError) as failure:
        raise ServerUnusable(f"{url}: {failure}") from failure


@contextlib.contextmanager
def _mysql(url: str) -> Iterator[Any]:
    address = urlsplit(url)
    try:
        with pymysql.connect(
            host=address.hostname,
            port=address.port or 3306,
            user=unquote(address.username or "root"),
            password=unquote(address.password or ""),
            database=_name(url) or None,
            connect_timeout=10,
            autocommit=True,
        ) as connection:
            yield connection.cursor()
    except pymysql.err.Error as failure:
        raise ServerUnusable(f"{url}: {failure}") from failure


@contextlib.contextmanager
def _redis(url: str) -> Iterator[Any]:
    once = Retry(NoBackoff(), retries=0)
    try:
        with redis.Redis.from_url(url, retry=once, socket_timeout=10, socket_connect_timeout=10) as client:
            yield client
    except redis.RedisError as failure:
        raise ServerUnusable(f"{url}: {failure}") from failure


def _claim(database: str) -> Path:
    address = urlsplit(database)
    return Path(tempfile.gettempdir()) / f"peeklock-redis-{address.hostname}-{address.port or 6379}-{_name(database)}"


def _name(url: str) -> str:
    return urlsplit(url).path.strip("/")


def _renamed(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()
