"""Tasks compute the digests that the server seals batches with, row by row, and find any change."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peeklock_pipeline.digests import content_digests, digest_of_lines, event_digests, row_digests
from peeklock_pipeline.files import read, write
from peeklock_pipeline.histories import with_histories
from peeklock_pipeline.jobs.archive_rows import HISTORIES
from peeklock_pipeline.located_rows import events_in_lake, located, located_events, located_in_lake
from peeklock_pipeline.row_checksums import edited_in_lake, with_checksums
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import (
    ARCHIVE,
    EVENT_DIGESTS,
    EVENTS,
    HISTORY,
    HISTORY_FIELDS,
    MISSED,
    ROW_CHECKSUM,
    STORED_ROWS,
    TableSpec,
    to_lake_table,
    with_every_column,
)
from peeklock_pipeline.transforms.audit import BATCH_SCHEMA, batch_of

from app.domain.digest import row_digest
from app.store.shared.digest_columns import DIGESTED_COLUMNS, DIGESTED_EVENT_COLUMNS
from tests.pipeline.archive import DAY, NOON, archived, content_of, happened
from tests.walks import for_each

Row = dict[str, Any]

FULL = {
    "queue": "billing.eu-1", "lock_token": bytes(range(16)), "receiver_id": "ü" * 128, "group_id": "a'b",
    "headers": '{"subject": "\U0001f680"}', "properties": '{ "n": 1}', "body": bytes(range(256)), "body_kind": 2,
    "expires_at": NOON + 1, "first_delivered_at": NOON - 2, "last_delivered_at": 0, "last_failure": "bo\nom",
    "dead_letter_reason": "poison", "dead_letter_description": "",
}  # fmt: skip

ROWS = [archived(2), archived(2**40, **FULL), archived(3, content_digest=None, settled_at=NOON + DAY)]


def lake_rows(rows: list[Row]) -> pa.Table:
    """The rows of an export, without histories."""
    table = pa.Table.from_pylist([row | {"export_batch": 1} for row in rows])
    for name in ("body", "lock_token", "content_digest"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(pa.binary()))
    return with_every_column(to_lake_table(table, ARCHIVE), ARCHIVE).drop_columns([HISTORY])


def stored_rows(rows: list[Row]) -> pa.Table:
    return with_every_column(lake_rows(rows), STORED_ROWS)


def changed(rows: pa.Table, **values: object) -> pa.Table:
    """The same rows with these values of the first one."""
    lines = rows.to_pylist()
    return pa.Table.from_pylist([lines[0] | values, *lines[1:]], schema=rows.schema)


def sealed_digest(row: Row) -> str:
    return row_digest((row | {"body": sha256(row["body"]).hexdigest()})[name] for name in DIGESTED_COLUMNS)


def test_digests_of_rows_are_the_servers() -> None:
    assert row_digests(stored_rows(ROWS)).to_pylist() == [sealed_digest(row) for row in ROWS]


def test_a_row_may_have_the_digest_of_its_body_instead() -> None:
    bodiless = changed(stored_rows(ROWS[1:2]), body=None, body_sha256=sha256(bytes(range(256))).hexdigest())
    assert row_digests(bodiless).to_pylist() == [sealed_digest(ROWS[1])]


@for_each("name", DIGESTED_COLUMNS)
def test_each_column_is_in_the_digest_of_its_row(name: str) -> None:
    row = archived(1, **FULL)
    [told] = row_digests(stored_rows([row])).to_pylist()
    kind = STORED_ROWS.schema.field(name).type
    value: object = b"other" if kind == pa.binary() else "other" if kind == pa.string() else 77
    [other] = row_digests(changed(stored_rows([row]), **{name: value, **day_of(name)})).to_pylist()
    assert other not in (told, None)


def day_of(name: str) -> dict[str, object]:
    return {"date": 0} if name == "settled_at" else {}


@for_each("name", [name for name in DIGESTED_COLUMNS if archived(1)[name] in (None, b"")])
@for_each("value", [None, "", "-"])
def test_a_null_field_has_another_digest_than_any_value(name: str, value: str | None) -> None:
    row = archived(1)
    kind = STORED_ROWS.schema.field(name).type
    given: object = value if value is None or kind == pa.string() else value.encode() if kind == pa.binary() else 0
    [told] = row_digests(stored_rows([row])).to_pylist()
    [other] = row_digests(changed(stored_rows([row]), **{name: given})).to_pylist()
    assert other is not None
    assert (other == told) == (given == row[name])


def test_a_row_in_the_partition_of_another_day_or_of_none_has_no_digest() -> None:
    rows = stored_rows(ROWS)
    for day in (rows["date"][2].as_py(), None):
        [there, *others] = row_digests(changed(rows, date=day)).to_pylist()
        assert (there, others) == (None, [sealed_digest(row) for row in ROWS[1:]])


@pytest.mark.parametrize("token", ["1.{}", "2.0.{}", "{}", ".{}", "2{}", "{:.31}", ""])
def test_only_the_token_of_a_message_is_replaced_by_its_secret(token: str) -> None:
    secret = "2" * 32  # begins as the number of its message
    row = archived(2, lock_token=bytes.fromhex(secret))
    own = stored_rows([row])
    assert own["lock_token"].to_pylist() == [f"2.{secret}"]
    assert row_digests(own).to_pylist() == [sealed_digest(row)]
    [other] = row_digests(changed(own, lock_token=token.format(secret))).to_pylist()
    assert other not in (sealed_digest(row), None)


@pytest.mark.parametrize(("kind", "code"), [("none", "0"), ("json", "1"), ("bytes", "2")])
def test_the_text_of_a_known_code_is_not_its_name(kind: str, code: str) -> None:
    rows = stored_rows([archived(2, body_kind=int(code))])
    assert rows["body_kind"].to_pylist() == [kind]
    other = changed(rows, body_kind=code)
    assert row_digests(other)[0].as_py() not in (row_digests(rows)[0].as_py(), None)
    assert content_digests(other)[0].as_py() not in (content_digests(rows)[0].as_py(), None)


def test_digests_of_contents_are_the_servers() -> None:
    rows = [*ROWS, archived(4, headers="-", group_id=""), archived(5, message_id="3:a-", body=b"1:a")]
    found = content_digests(stored_rows(rows)).to_pylist()
    assert found == [content_of(row).hex() for row in rows]
    assert content_digests(changed(stored_rows(rows), body=None)).to_pylist() == [None, *found[1:]]


def test_a_message_is_covered_by_its_own_digest_and_as_accepted_if_it_has_it() -> None:
    rows = located(stored_rows(ROWS).set_column(*given("standing", 3)).set_column(*given("place", 3)))
    assert rows["is_covered"].to_pylist() == [True, True, False]
    assert rows["is_as_accepted"].to_pylist() == [True, True, None]
    assert rows["row_digest"].to_pylist() == [sealed_digest(row) for row in ROWS]
    other = located_in_lake(changed(lake_rows(ROWS), body=b"other"))
    assert other["is_as_accepted"].to_pylist() == [False, True, None]
    assert (other["place"].to_pylist(), other["standing"].to_pylist()) == (["lake"] * 3, ["completed"] * 3)


def given(name: str, count: int) -> tuple[int, str, pa.Array]:
    return STORED_ROWS.schema.get_field_index(name), name, pa.array(["archive"] * count)


def test_a_digest_that_the_database_computed_is_the_one_that_was_found() -> None:
    found = stored_rows(ROWS[:1]).set_column(*given("standing", 1)).set_column(*given("place", 1))
    own = content_of(ROWS[0]).hex()
    assert located(changed(found, body=None, content_found=own))["is_as_accepted"].to_pylist() == [True]
    assert located(changed(found, content_found=own[::-1]))["is_as_accepted"].to_pylist() == [False]


EVENT_ROWS = [
    happened(1, 7, "sent", state=1),
    happened(3, 7, "settled", outcome="completed", receiver_id="a", reason="", delivery_count=2),
    happened(2, 8, "locked", state=99),
]


def event_rows(rows: list[Row]) -> pa.Table:
    """Events as they are read from a database."""
    names = {"id": "number", "happened_at": "at"}
    given = [{names.get(name, name): row[name] for name in row} | {"export_batch": 1} for row in rows]
    return with_every_column(to_lake_table(pa.Table.from_pylist(given), EVENTS), EVENTS)


def test_digests_of_events_are_the_servers() -> None:
    sealed = [row_digest(row[name] for name in DIGESTED_EVENT_COLUMNS) for row in EVENT_ROWS]
    assert event_digests(event_rows(EVENT_ROWS)).to_pylist() == sealed


def test_events_of_histories_are_those_that_were_read() -> None:
    events = event_rows(EVENT_ROWS).to_pylist()
    fields = [name for name in EVENTS.schema.names if name not in ("sequence_number", "export_batch")]
    histories = [[{name: event[name] for name in fields} for event in events[:2]], None, [], [dict(events[2])]]
    lines = [
        {"sequence_number": number, "export_batch": 1, HISTORY: history}
        for number, history in zip((7, 5, 6, 8), histories, strict=True)
    ]
    schema = pa.schema([ARCHIVE.schema.field(name) for name in ("sequence_number", "export_batch", HISTORY)])
    table = pa.Table.from_pylist(lines, schema=schema)
    found = events_in_lake(table)
    assert (found.column_names, found.to_pylist()) == (EVENTS.schema.names, events)
    assert events_in_lake(table.slice(1)).to_pylist() == events[2:]
    assert events_in_lake(pa.concat_tables([table.slice(1), table.slice(0, 1)])).to_pylist() == events[2:] + events[:2]


def test_a_checksum_is_of_the_digests_of_its_message_and_events() -> None:
    rows = [archived(7), archived(5), archived(8, **FULL)]
    table = with_histories(lake_rows(rows).drop_columns([ROW_CHECKSUM]), event_rows(EVENT_ROWS))
    written = with_checksums(table)
    own = {row["sequence_number"]: int(sealed_digest(row)[:8], 16) for row in rows}
    for event in EVENT_ROWS:
        own[event["sequence_number"]] ^= int(row_digest(event[name] for name in DIGESTED_EVENT_COLUMNS)[:8], 16)
    assert [number % 2**32 for number in written[ROW_CHECKSUM].to_pylist()] == [*own.values()]
    [lost] = changed(written.slice(0, 1), history=None).to_pylist()
    spoiled = [lost, *written.slice(1, 1).to_pylist(), *changed(written.slice(2), date=None).to_pylist()]
    edited = edited_in_lake(pa.Table.from_pylist(spoiled, schema=written.schema))
    assert edited["sequence_number"].to_pylist() == [7, 8]


def test_a_message_without_a_checksum_or_with_other_content_is_not_called_edited() -> None:
    table = with_histories(lake_rows(ROWS).drop_columns([ROW_CHECKSUM]), event_rows([]))
    written = with_checksums(table)
    assert edited_in_lake(written).num_rows == 0
    assert edited_in_lake(changed(written, priority=9)).num_rows == 1
    assert edited_in_lake(changed(written, priority=9, body=b"other")).num_rows == 0
    assert edited_in_lake(changed(written, priority=9, row_checksum=None)).num_rows == 0


def test_a_digest_of_an_event_has_its_batch_place_and_numbers() -> None:
    events = event_rows(EVENT_ROWS)
    assert located_events(events, "archive").to_pylist() == [
        {
            "export_batch": 1,
            "place": "archive",
            "sequence_number": message,
            "event_number": number,
            "event_digest": told,
        }
        for (message, number), told in zip([(7, 1), (7, 3), (8, 2)], event_digests(events).to_pylist(), strict=True)
    ]


def test_a_batch_is_digested_in_the_order_of_its_messages_and_without_null_digests() -> None:
    rows = pa.table(
        {
            "place": ["lake"] * 4,
            "export_batch": [5] * 4,
            "sequence_number": [10, 9, 11, 9],
            "row_digest": ["a", "c", None, "b"],
            "is_as_accepted": [False, None, True, False],
        }
    )
    events = pa.table(
        {"sequence_number": [11, 9, 9, 9], "event_number": [1, 3, 2, 2], "event_digest": ["g", "d", "f", "e"]},
    )
    [batch] = batch_of(rows, events).to_pylist()
    assert batch == {
        "place": "lake",
        "number": 5,
        "messages": 4,
        "numbers": sha256(b"9\n9\n10\n11\n").hexdigest(),
        "rows": sha256(b"b\nc\na\ne\nf\nd\ng\n").hexdigest(),
        "changed": 2,
    }
    assert batch_of(rows.slice(0, 0), events) == BATCH_SCHEMA.empty_table()


@pytest.mark.parametrize("is_as_accepted", [True, None])
def test_a_batch_may_have_no_events_and_no_changed_message(is_as_accepted: bool | None) -> None:
    rows = pa.table(
        {
            "place": ["archive"],
            "export_batch": [5],
            "sequence_number": [9],
            "row_digest": ["a"],
            "is_as_accepted": pa.array([is_as_accepted], pa.bool_()),
        }
    )
    [batch] = batch_of(rows, EVENT_DIGESTS.schema.empty_table()).to_pylist()
    assert (batch["place"], batch["rows"], batch["changed"]) == ("archive", sha256(b"a\n").hexdigest(), 0)


def test_rows_with_every_column_have_them_in_the_order_of_their_table() -> None:
    rows = with_every_column(pa.table({"more": [1], "export_batch": pa.array([5], pa.int64())}), MISSED)
    assert (rows.schema.types, rows.to_pylist()) == (MISSED.schema.types, [{"export_batch": 5, "messages": None}])
    assert with_every_column(rows.select(["messages", "export_batch"]), MISSED).column_names == MISSED.schema.names


def test_lines_of_any_number_of_chunks_have_one_digest() -> None:
    chunks = pa.chunked_array([["a", None], [], ["b"]], pa.string())
    assert digest_of_lines([chunks, pa.chunked_array([["c"]])]) == sha256(b"a\nb\nc\n").hexdigest()


@pytest.mark.parametrize("name", [field.name for field in HISTORY_FIELDS])
@pytest.mark.parametrize("is_absent", [False, True], ids=["null", "absent"])
def test_a_value_that_an_event_lost_changes_its_digest(name: str, is_absent: bool, tmp_path: Path) -> None:
    facts = {"state": 1, "outcome": "completed", "receiver_id": "a", "reason": "b", "delivery_count": 2}
    whole = event_rows([happened(1, 7, "sent", **facts)])
    [event] = whole.to_pylist()
    fields = [field.with_nullable(True) for field in HISTORY_FIELDS if not is_absent or field.name != name]
    history = pa.list_(pa.struct(fields))
    left = {field.name: event[field.name] for field in fields} | ({} if is_absent else {name: None})
    lines = pa.table([[7], [1], pa.array([[left]], history)], names=["sequence_number", "export_batch", HISTORY])
    spec = TableSpec("archive", lines.schema)
    [file] = write(lines, Storage.at(tmp_path), spec)
    [batch] = read(file, Storage.at(tmp_path), HISTORIES.schema)
    found = located_events(events_in_lake(pa.Table.from_batches([batch])), "lake")
    [digest] = found["event_digest"].to_pylist()
    assert digest not in (event_digests(whole).to_pylist()[0], None)
