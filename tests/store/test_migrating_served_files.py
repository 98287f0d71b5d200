"""A SQLite file that a process serves is not migrated under it."""

import os
from pathlib import Path

import pytest

from app.store.in_use import FileInUse
from app.store.migrate import SchemaStatus, migrate, run_on_connection, schema_status
from app.store.sqlite.file import FileLock
from tests.cli.conftest import run_command
from tests.store.test_migrating_beside_traffic import move_to_older


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A file with the tables of an earlier version."""
    path = tmp_path / "older.sqlite3"
    run_on_connection(f"sqlite:///{path}", move_to_older)
    return path


def test_a_served_file_is_not_migrated(older: Path) -> None:
    url, serving = f"sqlite:///{older}", FileLock(older)
    with pytest.raises(FileInUse, match=rf"{older} is in use by process {os.getpid()}\."):
        migrate(url)
    assert schema_status(url) is SchemaStatus.BEHIND
    done = run_command("migrate", directory=older.parent, database_url=url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{older} is in use by process")
    serving.release()
    migrate(url)
    assert schema_status(url) is SchemaStatus.CURRENT


def test_a_served_file_with_the_newest_tables_has_nothing_to_migrate(older: Path) -> None:
    migrate(f"sqlite:///{older}")
    serving = FileLock(older)
    migrate(f"sqlite:///{older}")
    serving.release()


def test_a_migration_leaves_the_lock_of_a_file_to_its_server(older: Path) -> None:
    FileLock(older).release()
    migrate(f"sqlite:///{older}")
    FileLock(older).release()
