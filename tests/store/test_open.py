"""A URL opens a store, or the refusal explains in one sentence how to write a better one."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Connection, inspect, text

from app.domain.queue import QueueSettings
from app.domain.refusals import StoreUnavailable
from app.store.migrate import (
    DatabaseIsNewer,
    SchemaStatus,
    migrate,
    migrate_sqlite,
    run_on_connection,
    schema_status,
)
from app.store.open import BadStoreUrl, open_store
from app.store.revisions import MigrationsMissing, revisions
from app.store.schema_check import is_current
from app.store.url import is_in_memory
from tests.servers import free_port
from tests.virtual_clock import VirtualClock


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_a_database_in_memory_is_ready_and_separate(url: str) -> None:
    one, two = await open_store(url, VirtualClock()), await open_store(url, VirtualClock())
    await one.queues.create("queue", QueueSettings())
    assert await one.queues.by_name("queue") is not None
    assert await two.queues.by_name("queue") is None
    await one.close()
    await two.close()


async def test_a_file_path_may_be_relative_or_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder").mkdir()
    for url, file in [
        ("sqlite:///here.sqlite3", tmp_path / "here.sqlite3"),
        (f"sqlite:////{tmp_path.relative_to('/')}/there.sqlite3", tmp_path / "there.sqlite3"),
        ("sqlite:///a%20folder/blank.sqlite3", tmp_path / "a folder" / "blank.sqlite3"),
    ]:
        store = await open_store(url, VirtualClock())
        await store.close()
        assert file.exists()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite://", True),
        ("sqlite:///:memory:", True),
        ("sqlite:///file.sqlite3", False),
        ("postgresql://host/database", False),
        ("mariadb://host/database", False),
    ],
)
def test_only_sqlite_without_a_file_is_in_memory(url: str, expected: bool) -> None:
    assert is_in_memory(url) is expected


def test_a_schema_check_does_not_create_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/with%20a%20blank.sqlite3"
    assert schema_status(url) is SchemaStatus.BEHIND
    assert not asyncio.run(is_current(url))
    assert list(tmp_path.iterdir()) == []
    migrate(url)
    assert schema_status(url) is SchemaStatus.CURRENT
    assert asyncio.run(is_current(url))
    assert (tmp_path / "with a blank.sqlite3").exists()


async def test_a_database_in_memory_is_behind_until_it_is_opened() -> None:
    assert schema_status("sqlite://") is SchemaStatus.BEHIND
    assert not await is_current("sqlite://")


async def test_a_schema_check_does_not_lock_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/file.sqlite3"
    await asyncio.to_thread(migrate, url)
    assert await is_current(url)
    store = await open_store(url, VirtualClock())
    await store.close()


def test_a_failed_migration_is_undone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/file.sqlite3"

    def fail(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (id INTEGER)"))
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        run_on_connection(url, fail)
    assert run_on_connection(url, lambda connection: inspect(connection).get_table_names()) == []


def test_tables_of_a_newer_version_are_left_alone() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
        connection.commit()
        with pytest.raises(DatabaseIsNewer):
            migrate_sqlite(connection)
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("alembic_version",)]


def test_missing_migrations_are_reported(tmp_path: Path) -> None:
    with pytest.raises(MigrationsMissing, match="there are no migrations in"):
        revisions(tmp_path / "absent")


@pytest.mark.parametrize("scheme", ["postgresql://", "mysql://", "mariadb://"])
@pytest.mark.parametrize("action", [migrate, schema_status])
def test_an_unreachable_server_cannot_be_migrated(action: Callable[[str], object], scheme: str) -> None:
    with pytest.raises(StoreUnavailable) as refusal:
        action(f"{scheme}user:secret@127.0.0.1:{free_port()}/database")
    assert "secret" not in str(refusal.value)


async def test_one_of_several_postgresql_hosts_with_ports_is_used(postgres_url: str) -> None:
    reachable = urlsplit(postgres_url).netloc.rpartition("@")[2]
    url = postgres_url.replace(reachable, f"127.0.0.1:{free_port()},{reachable}")
    store = await open_store(url, VirtualClock())
    assert await store.schema_revision() is not None
    await store.close()
    assert await asyncio.to_thread(schema_status, url) is SchemaStatus.CURRENT


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "is not a database URL; write one like sqlite:///"),
        ("peeklock.sqlite3", "peeklock.sqlite3 is not a database URL"),
        ("oracle://host/database", "Peeklock has no store for oracle; write a URL like"),
        ("postgresql+asyncpg://host/database", "write postgresql:// instead of postgresql\\+asyncpg://"),
        ("sqlite+aiosqlite:///file", "write sqlite:// instead"),
        ("sqlite://file.sqlite3", "has no host; write sqlite:///file.sqlite3"),
        ("sqlite:///file.sqlite3?mode=ro", "has options; a SQLite file takes none"),
        ("sqlite:////no/such/folder/file.sqlite3", "There is no folder /no/such/folder"),
        ("sqlite:////tmp", "is a folder; name a file in it"),
        ("postgresql://host", "names no database"),
        ("mysql://host/", "names no database"),
        ("mariadb://user:secret@host/", r"mariadb://\.\.\.@host/ names no database"),
        ("postgres:///", "names no database"),
        ("postgresql://user:secret@host:port/database", r"\.\.\.@host:port/database cannot be read: its port"),
        ("postgresql://user:secret@one:5432,two:port/database", "cannot be read: its port"),
        ("mysql://user:secret@one:3306,two:3306/database", "cannot be read: its port"),
        ("postgresql://user:secret@host/database?statement_cache_size=7", "may only be 0"),
        (
            "postgresql://user:secret@host/database?sslmode=unheard_of",
            "an unknown option, or an option has an invalid value",
        ),
        ("mysql://user:secret@host/database?unheard_of=1", "has an unknown option: unheard_of"),
    ],
)
async def test_a_bad_url_is_refused_with_an_explanation(url: str, sentence: str) -> None:
    with pytest.raises(BadStoreUrl, match=sentence) as refusal:
        await open_store(url, VirtualClock())
    assert "secret" not in str(refusal.value)
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    "url",
    ["oracle://host/database", "postgresql://host", "sqlite:///file?mode=ro", "mysql://host/database?unheard_of=1"],
)
@pytest.mark.parametrize("action", [migrate, schema_status])
def test_the_migrations_refuse_the_same_urls(action: Callable[[str], object], url: str) -> None:
    with pytest.raises(BadStoreUrl):
        action(url)


@pytest.mark.parametrize("scheme", ["postgresql://", "mysql://", "mariadb://"])
async def test_an_unreachable_server_is_unavailable(scheme: str) -> None:
    with pytest.raises(StoreUnavailable):
        await open_store(f"{scheme}user:secret@127.0.0.1:{free_port()}/database", VirtualClock())
