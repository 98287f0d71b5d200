"""A migration beside sessions that use the tables: servers wait for at most one try, and the session is named."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, event, text

from app.domain.refusals import StoreUnavailable
from app.store.migrate import ALEMBIC_LOCK, SchemaStatus, configuration, migrate, run_on_connection, schema_status
from tests.databases import RunResources

OLDER = "0016"
"""The next migration adds a column to `message` and an index of it."""

POOLED = "?statement_cache_size=0"
SECONDS = 60

WAITING = {
    "postgresql": "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'message'::regclass",
    "mysql": "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock'",
}
CHANGE = "UPDATE message SET priority = 4 WHERE sequence_number = 1"

INDEX_CUT_OFF = (
    "CREATE INDEX message_shared_body ON message (queue_id)",
    "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'message_shared_body'::regclass",
)


@pytest.fixture(params=["postgresql", "mariadb"])
def older(request: pytest.FixtureRequest, run_resources: RunResources) -> Iterator[str]:
    """The address of a database with the tables of an earlier version."""
    yield from older_database(request, run_resources, request.param)


@pytest.fixture
def older_postgresql(request: pytest.FixtureRequest, run_resources: RunResources) -> Iterator[str]:
    """The same on PostgreSQL."""
    yield from older_database(request, run_resources, "postgresql")


def older_database(request: pytest.FixtureRequest, run: RunResources, kind: str) -> Iterator[str]:
    """Lend a database that is migrated to `OLDER`."""
    with run.empty_database(request.getfixturevalue("require_server")(kind)) as url:
        run_on_connection(url, move_to_older)
        yield url


def move_to_older(connection: Connection) -> None:
    """Migrate to `OLDER`, as its own version has done."""
    with ALEMBIC_LOCK:
        command.upgrade(configuration(connection), OLDER)
    connection.commit()


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Keep a transaction open that has read `message`, as a report or a backup does."""
    has_read, is_over = Event(), Event()

    def read(connection: Connection) -> None:
        connection.execute(text("SELECT COUNT(*) FROM message"))
        has_read.set()
        assert is_over.wait(SECONDS)

    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(run_on_connection, url, read)
        assert has_read.wait(SECONDS)
        try:
            yield
        finally:
            is_over.set()
            reader.result()


def run(*statements: str) -> Callable[[Connection], None]:
    """Return work that runs the statements and commits."""

    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))
        connection.commit()

    return work


def until_a_step_waits(connection: Connection) -> None:
    """Return as soon as a step of a migration waits for `message`."""
    question = text(WAITING[connection.dialect.name.replace("mariadb", "mysql")])
    while not connection.scalar(question):
        connection.rollback()


@pytest.mark.parametrize("options", ["", POOLED])
def test_a_migration_beside_a_reader_names_it_and_is_finished_by_the_next_one(older: str, options: str) -> None:
    url = older if older.startswith("mysql") else older + options
    with (
        reading(older),
        pytest.raises(
            StoreUnavailable, match=r"session \d+ \(user .*\) has a transaction open since .*End that session"
        ),
    ):
        migrate(url, give_up_seconds=0)
    assert schema_status(older) is SchemaStatus.BEHIND
    migrate(url)
    assert schema_status(older) is SchemaStatus.CURRENT


def test_servers_write_while_a_migration_waits_for_a_reader(older: str) -> None:
    reports: list[str] = []
    with ThreadPoolExecutor(1) as threads:
        with reading(older):
            migration = threads.submit(migrate, older, reports.append)
            run_on_connection(older, until_a_step_waits)
            run_on_connection(older, run(CHANGE))
            assert not migration.done()
        migration.result()
    assert schema_status(older) is SchemaStatus.CURRENT
    assert [report.partition(":")[0] for report in reports] == ["The migration waits and tries again"]


def test_a_migration_of_a_file_does_not_wait_for_its_readers(tmp_path: Path) -> None:
    file = tmp_path / "file.sqlite3"
    url = f"sqlite:///{file}"
    run_on_connection(url, move_to_older)
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode = WAL")  # as every served file has it
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM message").fetchall()
        migrate(url)
        assert schema_status(url) is SchemaStatus.CURRENT


def test_only_indexes_of_tables_in_use_are_built_beside_writes(older_postgresql: str) -> None:
    statements: list[str] = []

    def record(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("CREATE INDEX"):
            statements.append(" ".join(statement.split()[:4]))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        migrate(older_postgresql)
    finally:
        event.remove(Engine, "before_cursor_execute", record)
    assert {"CREATE INDEX CONCURRENTLY message_shared_body", "CREATE INDEX CONCURRENTLY archive_shared_body"} <= set(
        statements
    )
    assert "CREATE INDEX session_expires_at ON" in statements


def test_an_index_whose_construction_was_interrupted_is_built_again(older_postgresql: str) -> None:
    run_on_connection(older_postgresql, run(*INDEX_CUT_OFF))
    migrate(older_postgresql)

    def definition(connection: Connection) -> Any:
        return connection.scalar(text("SELECT indexdef FROM pg_indexes WHERE indexname = 'message_shared_body'"))

    assert "(shared_body_id)" in run_on_connection(older_postgresql, definition)
