"""The migrations make exactly the tables that the models describe, on every engine, also when two run at once."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from app.store import schema_check
from app.store.migrate import (
    ALEMBIC_LOCK,
    DatabaseIsNewer,
    SchemaStatus,
    configuration,
    migrate,
    run_on_connection,
    schema_status,
)
from app.store.revisions import revisions
from app.store.tables import SQLModel
from tests.databases import RunResources

ENGINES = ["sqlite", "postgresql", "mariadb"]
REPEATING = [pytest.param(name, marks=pytest.mark.nightly) for name in ENGINES[1:]]
"""A migration that has landed is never edited. So most tests of them need a database server only at night."""

ON_EVERY_ENGINE = pytest.mark.parametrize("empty", ENGINES, indirect=True)
ON_POSTGRESQL_TOO = pytest.mark.parametrize("empty", [*ENGINES[:2], REPEATING[1]], indirect=True)
# SQLAlchemy reads no DESC back from these two, so Alembic believes this index to be another one; what the engine
# itself says of it is compared below.
DESCENDING = {"message_next"}


@pytest.fixture(params=["sqlite", *REPEATING])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database without tables."""
    yield from empty_database(request, tmp_path / "migrated.sqlite3")


@pytest.fixture
def modelled(request: pytest.FixtureRequest, empty: str, tmp_path: Path) -> Iterator[str]:
    """The address of a database on the same engine with the tables as the models describe them."""
    for url in empty_database(request, tmp_path / "modelled.sqlite3"):
        run_on_connection(url, create_from_models)
        yield url


def empty_database(request: pytest.FixtureRequest, file: Path) -> Iterator[str]:
    """Lend an empty database of the engine that the test runs on."""
    kind = request.node.callspec.params["empty"]
    if kind == "sqlite":
        yield f"sqlite:///{file}"
        return
    run: RunResources = request.getfixturevalue("run_resources")
    with run.empty_database(request.getfixturevalue("require_server")(kind)) as url:
        yield url


def create_from_models(connection: Connection) -> None:
    """Make the tables without any migration."""
    if connection.dialect.name in ("mysql", "mariadb"):
        # The migrations say so for each table, because the origin of a given database is unknown.
        connection.execute(text("ALTER DATABASE CHARACTER SET utf8mb4"))
    SQLModel.metadata.create_all(connection)
    connection.commit()


def differences(connection: Connection) -> list[Any]:
    """What Alembic would still change."""
    blind = connection.dialect.name != "postgresql"

    def is_included(_thing: object, name: str | None, *_: object) -> bool:
        return not (blind and name in DESCENDING)

    context = MigrationContext.configure(connection, opts={"include_object": is_included})
    return compare_metadata(context, SQLModel.metadata)


def description(connection: Connection) -> list[Any]:
    """Every table and index in the engine's own words, however they came about."""
    match connection.dialect.name:
        case "sqlite":
            question = "SELECT sql FROM sqlite_master WHERE name <> 'alembic_version' AND tbl_name <> 'alembic_version'"
            # A column that was added later stands on the line of the one before it.
            return sorted("".join(row[0].split()) for row in connection.execute(text(question)) if row[0])
        case "postgresql":
            columns = (
                "SELECT table_name, ordinal_position, column_name, data_type, character_maximum_length, is_nullable,"
                " column_default, collation_name FROM information_schema.columns WHERE table_schema = 'public'"
            )
            indexes = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
            found = [tuple(row) for question in (columns, indexes) for row in connection.execute(text(question))]
            return sorted((row for row in found if row[0] != "alembic_version"), key=repr)
        case _:
            names = sorted(set(inspect(connection).get_table_names()) - {"alembic_version"})
            made = [connection.execute(text(f"SHOW CREATE TABLE `{name}`")).one()[1] for name in names]
            # Keys are listed in the order in which they were made.
            return [sorted(line.rstrip(",") for line in table.splitlines()) for table in made]


def is_current(url: str) -> bool:
    """What a server asks when it starts."""
    return asyncio.run(schema_check.is_current(url))


def test_the_newest_migration_is_known_by_its_name_as_alembic_knows_it() -> None:
    assert ScriptDirectory.from_config(configuration()).get_heads() == revisions()[-1:]


@ON_EVERY_ENGINE
def test_the_tables_are_those_of_the_models(empty: str, modelled: str) -> None:
    migrate(empty)
    assert run_on_connection(empty, differences) == []
    assert run_on_connection(empty, description) == run_on_connection(modelled, description)


def test_a_database_is_current_once_it_was_migrated_and_stays_so(empty: str) -> None:
    assert schema_status(empty) is SchemaStatus.BEHIND
    assert not is_current(empty)
    migrate(empty)
    assert schema_status(empty) is SchemaStatus.CURRENT
    assert is_current(empty)
    migrate(empty)
    assert schema_status(empty) is SchemaStatus.CURRENT


@ON_POSTGRESQL_TOO
def test_several_who_migrate_at_once_take_turns(empty: str) -> None:
    with ProcessPoolExecutor(3, get_context("spawn")) as several:
        for done in [several.submit(migrate, empty) for _ in range(3)]:
            done.result()
    assert schema_status(empty) is SchemaStatus.CURRENT
    assert run_on_connection(empty, differences) == []


def test_a_migration_that_was_cut_off_is_made_good_by_the_next_one(empty: str) -> None:
    migrate(empty)

    def delete_the_record_of_its_end(connection: Connection) -> None:
        connection.execute(text("DELETE FROM alembic_version"))
        connection.execute(text("DROP TABLE api_key"))
        connection.commit()

    run_on_connection(empty, delete_the_record_of_its_end)
    assert schema_status(empty) is SchemaStatus.BEHIND
    migrate(empty)
    assert run_on_connection(empty, differences) == []


INSERT_ARCHIVED = """
INSERT INTO archive (
    sequence_number, queue_id, queue, outcome, settled_at, remove_at, priority, enqueued_at, available_at,
    delivery_count, failure_count, message_id, body_kind, body
)
VALUES (7, 1, 'orders', 'completed', 5, 9, 4, 1, 1, 1, 0, 'id', 1, '{}')
"""


def move_to(revision: str) -> Callable[[Connection], None]:
    """Upgrade or downgrade to a revision, as `alembic` does from its command line."""

    def move(connection: Connection) -> None:
        with ALEMBIC_LOCK:
            step = command.upgrade if revision_of(connection) < revision else command.downgrade
            step(configuration(connection), revision)
        connection.commit()

    return move


def revision_of(connection: Connection) -> str:
    """The revision of the tables, before all others where there are none."""
    return MigrationContext.configure(connection).get_current_revision() or ""


@ON_POSTGRESQL_TOO
def test_what_the_first_release_has_archived_is_unsealed(empty: str) -> None:
    run_on_connection(empty, move_to("0001"))
    first = run_on_connection(empty, description)

    def fill(connection: Connection) -> None:
        connection.execute(text(INSERT_ARCHIVED))
        connection.commit()

    def archived(connection: Connection) -> list[tuple[Any, ...]]:
        found = connection.execute(text("SELECT sequence_number, message_id, export_batch FROM archive"))
        return [tuple(row) for row in found]

    run_on_connection(empty, fill)
    migrate(empty)
    assert run_on_connection(empty, differences) == []
    assert run_on_connection(empty, archived) == [(7, "id", None)]
    run_on_connection(empty, move_to("0001"))
    assert run_on_connection(empty, description) == first
    migrate(empty)
    assert run_on_connection(empty, archived) == [(7, "id", None)]


OLD_SERVER_STATEMENTS = (
    """
    INSERT INTO message (
        sequence_number, queue_id, state, home_state, priority, enqueued_at, available_at, delivery_count,
        failure_count, lock_generation, message_id, body_kind, body
    )
    VALUES (8, 1, 1, 1, 4, 1, 1, 0, 0, 0, 'id', 1, '{}')
    """,
    INSERT_ARCHIVED,
    "UPDATE archive SET export_batch = 1 WHERE sequence_number = 7",
    """
    INSERT INTO export_batch (number, row_count, digest, sealed_at, remove_at, removed_at, removal)
    VALUES (1, 1, 'of numbers', 5, 9, NULL, NULL)
    """,
)
"""How a server stores, archives and seals that knows the tables as they were before there were digests."""


def test_a_server_that_knows_no_digests_goes_on_after_their_migration(empty: str) -> None:
    run_on_connection(empty, move_to("0003"))
    before = run_on_connection(empty, description)
    migrate(empty)
    run_on_connection(empty, move_to("0003"))
    assert run_on_connection(empty, description) == before
    migrate(empty)

    def work_as_before(connection: Connection) -> None:
        for statement in OLD_SERVER_STATEMENTS:
            connection.execute(text(statement))
        connection.commit()

    def marks(connection: Connection) -> list[Any]:
        questions = ("content_digest FROM message", "content_digest FROM archive", "digest_version FROM export_batch")
        return [connection.execute(text(f"SELECT {question}")).scalar_one() for question in questions]

    run_on_connection(empty, work_as_before)
    assert run_on_connection(empty, marks) == [None, None, 1]


SEALED_APART = (
    INSERT_ARCHIVED,
    INSERT_ARCHIVED.replace("(7,", "(8,"),
    "UPDATE archive SET export_batch = 0",
    "INSERT INTO archive_seal (sequence_number, remove_at, export_batch) VALUES (7, 9, 1), (8, 9, NULL)",
    """
    INSERT INTO export_batch (number, row_count, digest, sealed_at, remove_at, digest_version, rows_until)
    VALUES (1, 1, 'of rows', 5, 9, 2, 9)
    """,
)
"""One sealed message and one unsealed, as a server leaves them that knows `archive_seal`."""


def test_a_downgrade_returns_the_batches_to_the_archived_rows(empty: str) -> None:
    run_on_connection(empty, move_to("0007"))
    before = run_on_connection(empty, description)
    migrate(empty)

    def fill(connection: Connection) -> None:
        for statement in SEALED_APART:
            connection.execute(text(statement))
        connection.commit()

    def archived(connection: Connection) -> list[tuple[Any, ...]]:
        found = connection.execute(text("SELECT sequence_number, export_batch FROM archive ORDER BY sequence_number"))
        return [tuple(row) for row in found]

    run_on_connection(empty, fill)
    run_on_connection(empty, move_to("0007"))
    assert run_on_connection(empty, description) == before
    assert run_on_connection(empty, archived) == [(7, 1), (8, None)]


SHARING = (
    "INSERT INTO shared_body (id, body) VALUES ('b', 'shared')",
    INSERT_ARCHIVED,
    INSERT_ARCHIVED.replace("(7,", "(8,"),
    "UPDATE archive SET body = '', shared_body_id = 'b', shared_body_bytes = 6 WHERE sequence_number = 8",
)
"""One archived message with its own body and one with a shared body."""


def test_a_downgrade_puts_shared_bodies_back_into_their_rows(empty: str) -> None:
    run_on_connection(empty, move_to("0016"))
    before = run_on_connection(empty, description)
    migrate(empty)

    def fill(connection: Connection) -> None:
        for statement in SHARING:
            connection.execute(text(statement))
        connection.commit()

    def bodies(connection: Connection) -> list[bytes]:
        found = connection.execute(text("SELECT body FROM archive ORDER BY sequence_number")).scalars()
        return [body.encode() if isinstance(body, str) else bytes(body) for body in found]

    run_on_connection(empty, fill)
    own = run_on_connection(empty, bodies)[0]
    run_on_connection(empty, move_to("0016"))
    assert run_on_connection(empty, description) == before
    assert run_on_connection(empty, bodies) == [own, b"shared"]


def test_sends_that_wait_when_their_counting_begins_are_counted(empty: str) -> None:
    run_on_connection(empty, move_to("0017"))
    columns = "transaction_id, place, queue, message_id, sequence_number, member_bytes, content"

    def fill(connection: Connection) -> None:
        queue = (
            "INSERT INTO queue (id, name, settings, version, created_at, updated_at) VALUES (3, 'orders', '', 1, 1, 1)"
        )
        connection.execute(text(queue))
        for values in ("0, 'orders', 'm', NULL", "1, 'orders', NULL, 9", "2, 'gone', 'n', NULL"):
            connection.execute(text(f"INSERT INTO transaction_member ({columns}) VALUES ('t', {values}, 1, '')"))
        connection.commit()

    def queue_ids(connection: Connection) -> list[int | None]:
        return list(connection.execute(text("SELECT queue_id FROM transaction_member ORDER BY place")).scalars())

    run_on_connection(empty, fill)
    migrate(empty)
    assert run_on_connection(empty, queue_ids) == [3, None, None]


def add_unknown_objects(connection: Connection) -> None:
    """What a newer version's migration may do while this one still serves: add."""
    connection.execute(text("CREATE TABLE later_table (id INTEGER)"))
    connection.execute(text("ALTER TABLE queue ADD COLUMN colour INTEGER"))
    connection.execute(text("UPDATE alembic_version SET version_num = 'ffff'"))
    connection.commit()


def test_a_database_that_a_newer_version_migrated_is_served_and_left_alone(empty: str) -> None:
    migrate(empty)
    run_on_connection(empty, add_unknown_objects)
    before = run_on_connection(empty, description)
    assert schema_status(empty) is SchemaStatus.AHEAD
    with pytest.raises(DatabaseIsNewer):
        migrate(empty)
    assert run_on_connection(empty, description) == before
    assert schema_status(empty) is SchemaStatus.AHEAD
