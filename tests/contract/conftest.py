"""Every test of the contract runs against every store."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.broker.ports import Store
from app.domain.queue import Queue
from tests.contract.subject import MariaSubject, PostgresSubject, Subject, sqlite_file, sqlite_in_memory
from tests.databases import Run

STORES = ["sqlite", "memory", "postgresql", "mariadb"]


@pytest.fixture(params=STORES)
async def subject(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> AsyncIterator[Subject]:
    """A store with nothing in it."""
    subject: Subject
    match request.param:
        case "sqlite":
            subject = sqlite_file(Path(shutil.copy(run.sqlite_template(), tmp_path)))
        case "memory":
            subject = sqlite_in_memory()
        case "postgresql":
            subject = PostgresSubject(request.getfixturevalue("postgres_url"))
        case _:
            subject = MariaSubject(request.getfixturevalue("mariadb_url"))
    await subject.begin()
    yield subject
    await subject.end()


@pytest.fixture
async def queue(subject: Subject) -> Queue:
    """A queue with nothing in it and the usual settings."""
    return await subject.queue()


@pytest.fixture
async def stores(subject: Subject) -> AsyncIterator[list[Store]]:
    """The store, and the same database opened once more as by another process, where several may have it."""
    other = await subject.open_another()
    yield [subject.store, other]
    if other is not subject.store:
        await other.close()
