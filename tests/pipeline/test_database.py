"""Each engine's archive is read with every column unchanged, and an unreadable database is refused with a sentence."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peeklock_pipeline.database import Database, PendingBatches
from peeklock_pipeline.drivers import merge_batches
from peeklock_pipeline.refusals import BadDatabaseUrl, DatabaseUnavailable
from peeklock_pipeline.table_specs import ACCOUNTS, ARCHIVE, MESSAGE_COLUMNS, MESSAGES, STORED_ROWS

from tests.faults.database_access import execute
from tests.pipeline.archive import DAY, DEAD_LETTERED, NOON, Archive, archived, live
from tests.pipeline.conftest import archive_on
from tests.servers import free_port

FULL = {
    "queue": "billing.eu-1", "lock_token": bytes(range(16)), "receiver_id": "ü" * 128, "group_id": "a'b",
    "headers": '{"subject": "\U0001f680"}', "properties": '{"n": 1}', "body": bytes(range(256)), "body_kind": 2,
    "expires_at": NOON + 1, "first_delivered_at": NOON - 2, "last_delivered_at": NOON - 1, "last_failure": "bo\nom",
    "dead_letter_reason": "poison", "dead_letter_description": "",
}  # fmt: skip


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.nightly), "sqlite"])
def archive(request: pytest.FixtureRequest) -> Archive:
    """An empty archive. Each engine has statements and a driver of its own, so two are read in every run."""
    return archive_on(request.param, request)


def test_an_empty_archive_has_every_column(archive: Archive) -> None:
    database = Database.from_url(archive.url)
    assert database.batches() == []
    assert database.span() is None
    assert database.read(1, 9).schema.equals(ARCHIVE.with_columns(*MESSAGE_COLUMNS).schema)


def test_every_value_is_read_as_stored_also_after_thousands_of_nulls(archive: Archive) -> None:
    archive.seal(1, [archived(number) for number in range(1, 3001)])
    archive.seal(2, [archived(3001, **FULL)])
    rows = Database.from_url(archive.url).read(1, 2).sort_by("sequence_number").to_pylist()
    assert len(rows) == 3001
    assert rows[-1] == {
        **{name: value for name, value in archived(3001, **FULL).items() if name in ARCHIVE.schema.names},
        "lock_token": "3001.000102030405060708090a0b0c0d0e0f", "body_kind": "bytes", "export_batch": 2, "history": None,
        "date": datetime.fromtimestamp(NOON / 1e6, UTC).date(),
        **{
            name: moment(value)
            for name, value in archived(3001, **FULL).items()
            if name.endswith("_at") and name in ARCHIVE.schema.names
        },
    }  # fmt: skip
    assert {name for name, value in rows[0].items() if value is None} == {
        "lock_token", "receiver_id", "expires_at", "first_delivered_at", "last_delivered_at", "last_failure",
        "group_id", "headers", "properties", "dead_letter_reason", "dead_letter_description", "history",
    }  # fmt: skip


def test_only_the_requested_columns_are_read(archive: Archive) -> None:
    archive.seal(1, [archived(1), archived(2)])
    assert Database.from_url(archive.url).read(1, 1, ["queue", "message_id"]).schema.names == ["queue", "message_id"]


def test_messages_in_queues_and_in_the_archive_have_a_standing(archive: Archive) -> None:
    archive.seal(1, [archived(1)])
    archive.seal(2, [archived(2, outcome="expired")])
    archive.fill_archive([archived(3, outcome="purged") | {"export_batch": None}])
    archive.add_to_queue(1, "orders", [live(4), live(5, state=DEAD_LETTERED, dead_letter_reason="poison")])
    database = Database.from_url(archive.url)
    assert database.span() == (1, 5)
    found = pa.concat_tables(database.rows(1, 5)).sort_by("sequence_number")
    assert found["standing"].to_pylist() == ["completed", "expired", "purged", "live", "dead_lettered"]
    assert found["place"].to_pylist() == [*["archive"] * 3, *["queue"] * 2]
    assert found["export_batch"].to_pylist() == [1, 2, None, None, None]
    messages = pa.concat_tables(database.messages(1, 9))
    assert messages["state"].to_pylist() == ["available", "dead_lettered"]
    assert messages.schema.names == [name for name in MESSAGES.schema.names if name != "taken_at"]


def accounts(database: Database, exported: int) -> list[tuple[Any, ...]]:
    rows = pa.concat_tables(database.accounts(exported)).to_pylist()
    return sorted(tuple(row[name] for name in ACCOUNTS.schema.names) for row in rows)


def test_what_older_servers_archived_and_sealed_is_read_alike(archive: Archive) -> None:
    archive.seal(1, [archived(1), archived(2)])
    archive.seal(2, [archived(3)])
    archive.archive_rows([archived(4)])
    database = Database.from_url(archive.url)

    def read() -> tuple[Any, ...]:
        stored = pa.concat_tables(database.rows(1, 9)).sort_by("sequence_number").to_pylist()
        sealed = database.read(1, 2).sort_by("sequence_number").to_pylist()
        return stored, sealed, [accounts(database, exported) for exported in range(3)]

    before = read()
    assert [row["export_batch"] for row in before[0]] == [1, 1, 2, None]
    assert [[held for *_, held in counts] for counts in before[2]] == [[4], [2], [1]]
    archive.write_as_older_servers()
    assert read() == before


def test_bodies_stay_in_the_database_that_can_digest_them(archive: Archive) -> None:
    full = {name: FULL[name] for name in ("group_id", "headers", "body_kind", "body")} | {"message_id": "i'd\u00fc "}
    ended, waiting = archived(1, **full), live(2, **full)
    archive.archive_rows([ended])
    archive.add_to_queue(7, "orders", [waiting])
    rows = pa.concat_tables(Database.from_url(archive.url).rows(1, 2)).sort_by("sequence_number")
    assert rows.schema.names == STORED_ROWS.schema.names
    for row, stored in zip(rows.to_pylist(), (ended, waiting), strict=True):
        assert row["content_digest"] == stored["content_digest"]
        if row["body"] is None:
            assert row["content_found"] == stored["content_digest"].hex()
            assert row["body_sha256"] == sha256(stored["body"]).hexdigest()
        else:
            assert archive.url.startswith("sqlite")
            assert (row["body"], row["content_found"], row["body_sha256"]) == (stored["body"], None, None)


def test_a_shared_body_is_read_like_one_of_its_own(archive: Archive) -> None:
    archive.seal(1, [archived(1, **FULL), archived(2)])
    archive.add_to_queue(7, "orders", [live(3, body=b"live", body_kind=2), live(4)])
    database = Database.from_url(archive.url)

    def read() -> list[list[dict[str, Any]]]:
        tables = (database.read(1, 1), pa.concat_tables(database.messages(1, 9)), pa.concat_tables(database.rows(1, 9)))
        return [table.sort_by("sequence_number").to_pylist() for table in tables]

    before = read()
    archive.share_bodies()
    assert execute(archive.url, "SELECT MAX(LENGTH(body)) FROM archive") == [(0,)]
    assert read() == before


def test_accounts_count_accepted_messages_and_those_in_the_database(archive: Archive) -> None:
    archive.seal(1, [archived(number) for number in (1, 2)])
    archive.seal(2, [archived(number) for number in (3, 4, 5)])
    archive.archive_rows([archived(6), archived(7, enqueued_at=NOON + DAY), archived(8, content_digest=None)])
    archive.add_to_queue(1, "orders", [live(9), live(10, content_digest=None)])
    archive.add_to_queue(2, "empty", [live(11)])
    execute(archive.url, "DELETE FROM message WHERE sequence_number = 11")
    today = date(2026, 9, 21)
    assert accounts(Database.from_url(archive.url), exported=1) == [
        ("empty", today, 1, 0, 0),
        ("orders", today, 7, 0, 5),
        ("orders", today + timedelta(days=1), 1, 0, 1),
    ]


def test_pending_batches_are_counted_with_their_messages(archive: Archive) -> None:
    for number, sealed_at in ((1, NOON), (3, NOON + 9), (4, NOON + 5)):
        archive.seal(number, [archived(number * 10 + n) for n in range(number)], sealed_at)
    database = Database.from_url(archive.url)
    assert database.pending(0) == PendingBatches(batches=3, rows=8, last=4, sealed_at=NOON + 1)
    assert database.pending(1) == PendingBatches(batches=2, rows=7, last=4, sealed_at=NOON + 9)
    assert database.pending(4) == PendingBatches(batches=0, rows=0, last=4, sealed_at=None)


def test_a_result_is_split_into_tables_of_about_a_number_of_bytes() -> None:
    batches = [pa.record_batch({"n": list(range(100))}) for _ in range(5)]
    assert [table.num_rows for table in merge_batches(batches, max_bytes=1600)] == [200, 200, 100]
    assert [table.num_rows for table in merge_batches(batches[:2], max_bytes=1600)] == [200]


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_an_unreachable_server_is_named_without_its_password(scheme: str) -> None:
    port = free_port()
    with pytest.raises(DatabaseUnavailable, match=f"127.0.0.1:{port}/peeklock cannot be read") as refusal:
        Database.from_url(f"{scheme}://anna:geheim@127.0.0.1:{port}/peeklock").batches()
    assert "geheim" not in str(refusal.value)


def test_a_database_without_an_archive_is_refused(
    empty_postgres_url: str, empty_mariadb_url: str, tmp_path: Path
) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    for url in (empty_postgres_url, empty_mariadb_url, f"sqlite:///{tmp_path}/empty.db"):
        with pytest.raises(DatabaseUnavailable, match="has no sealed archive"):
            Database.from_url(url).batches()


def test_a_missing_sqlite_file_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"none\.db cannot be read: no file with this name exists"):
        Database.from_url(f"sqlite:///{tmp_path}/none.db").batches()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["", "peeklock.db", "oracle://host/db", "postgresql://host", "mysql://host:port/db", "sqlite://", "sqlite://f.db"],
)
def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(BadDatabaseUrl):
        Database.from_url(url)


def moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)
