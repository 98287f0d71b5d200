"""SQLite files that a process cannot use are named with the reason."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.domain.refusals import StoreUnavailable
from app.store.migrate import migrate
from app.store.open import open_store
from tests.databases import RunResources
from tests.virtual_clock import VirtualClock

OTHER_ACCOUNT = 65534
READ_ONLY = 0o444


@pytest.fixture
def path(run_resources: RunResources) -> Path:
    """A file with tables, in a folder that every account may use."""
    folder = run_resources.new_directory()
    folder.chmod(0o777)
    path = Path(shutil.copy(run_resources.sqlite_template(), folder / "peeklock.sqlite3"))
    path.chmod(0o666)
    return path


@contextmanager
def without_privileges() -> Iterator[None]:
    """Act as an account to which permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(OTHER_ACCOUNT)
    try:
        yield
    finally:
        os.seteuid(0)


def reason(path: Path) -> str:
    """Return why the file cannot be opened, for the operator."""
    with pytest.raises(StoreUnavailable) as refused:
        asyncio.run(open_store(f"sqlite:///{path}", VirtualClock()))
    assert str(path.parent) not in str(refused.value), "clients get this text"
    return str(refused.value.__cause__)


@pytest.mark.parametrize("mode", [0o000, READ_ONLY])
def test_a_file_without_permission_is_named(path: Path, mode: int) -> None:
    path.chmod(mode)
    with without_privileges():
        assert reason(path) == f"[Errno 13] Permission denied: '{path}'"


def test_a_folder_in_which_no_file_may_be_made_is_named(path: Path) -> None:
    lock = path.with_name(f"{path.name}.lock")
    lock.touch()
    lock.chmod(0o666)
    path.parent.chmod(0o555)
    with without_privileges():
        assert reason(path) == f"[Errno 13] Permission denied: '{path.parent}'"
    path.parent.chmod(0o755)


def test_a_folder_in_the_place_of_the_write_ahead_log_is_named(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    log.mkdir()
    assert reason(path) == f"[Errno 21] Is a directory: '{log}'"


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(b"?" * 8192)
    assert reason(path) == f"{path}: file is not a database"


def test_a_migration_names_the_file_and_the_reason(path: Path) -> None:
    path.chmod(0o000)
    with without_privileges(), pytest.raises(StoreUnavailable) as refused:
        migrate(f"sqlite:///{path}")
    assert str(refused.value.__cause__) == f"[Errno 13] Permission denied: '{path}'"
