"""The check of whether a database accepts writes: what it finds, and what it logs."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from app.store.shared.database import NotWritable
from app.store.shared.write_check import TRIAL_BYTES, WriteCheck


class Database:
    """Records the statements that it runs, and refuses them while it has an error."""

    def __init__(self) -> None:
        self.error: NotWritable | None = None
        self.changed: list[str] = []
        self.written: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def fetch(self, _name: str, /, **_values: Any) -> Sequence[Sequence[Any]]:
        raise NotImplementedError

    async def change(self, name: str, /, **values: Any) -> int:
        self.changed.append(name)
        self.meanwhile()
        if self.error is not None:
            raise self.error
        self.written += [len(values["content"])] if "content" in values else []
        return 1


@pytest.fixture
def database() -> Database:
    """A database that accepts writes."""
    return Database()


@pytest.fixture
def check(database: Database) -> WriteCheck:
    """The check of this database."""
    return WriteCheck(database)


async def test_the_first_check_writes_and_later_ones_change_nothing(database: Database, check: WriteCheck) -> None:
    for _ in range(3):
        await check.run()
    assert database.changed == ["add_trial", "delete_trial", "delete_trial", "delete_trial"]
    assert database.written == [TRIAL_BYTES]


async def test_the_check_after_a_refused_write_writes_again(database: Database, check: WriteCheck) -> None:
    await check.run()
    check.on_refused(NotWritable("The disk of the database is full."))
    database.changed.clear()
    await check.run()
    await check.run()
    assert database.changed == ["add_trial", "delete_trial", "delete_trial"]


async def test_a_write_that_is_refused_during_a_check_requires_another_trial(
    database: Database, check: WriteCheck
) -> None:
    database.meanwhile = lambda: check.on_refused(NotWritable("The disk of the database is full."))
    await check.run()
    database.meanwhile = lambda: None
    database.changed.clear()
    await check.run()
    assert database.changed == ["add_trial", "delete_trial"]


async def test_a_refused_check_says_why(database: Database, check: WriteCheck) -> None:
    database.error = NotWritable("The database accepts no writes at present.")
    for _ in range(2):
        with pytest.raises(NotWritable, match="no writes"):
            await check.run()
    assert database.changed == ["add_trial", "add_trial"]


async def test_several_failures_are_logged_once_and_so_is_the_end(check: WriteCheck) -> None:
    structlog.reset_defaults()
    with capture_logs() as logs:
        for _ in range(3):
            check.on_refused(NotWritable("The disk of the database is full."))
        await check.run()
        await check.run()
    assert [(entry["log_level"], entry["event"]) for entry in logs] == [
        ("error", "the database accepts no writes"),
        ("info", "the database accepts writes again"),
    ]
    assert logs[0]["reason"] == "The disk of the database is full."
