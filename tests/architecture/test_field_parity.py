"""No field is lost or swapped between the domain, the rows and the tables."""

from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UnsetType
from msgspec.structs import replace
from peeklock_client.messages import Message as ClientMessage
from peeklock_client.messages import MessageFields, NewMessage
from peeklock_client.push import attributes
from peeklock_pipeline.table_specs import ARCHIVE_COLUMNS as EXPORTED
from peeklock_pipeline.table_specs import HEADERS as SENT_AGAIN
from peeklock_pipeline.table_specs import HISTORY_FIELDS
from sqlalchemy import Integer, LargeBinary, String

from app.api.endpoints import cloudevents
from app.domain.access import ApiKey, Grant, Right
from app.domain.digest import content_digest
from app.domain.instant import SECOND
from app.domain.message import (
    HEADER_TEXTS,
    SENDER_TEXTS,
    BodyKind,
    Draft,
    Envelope,
    Message,
    MessageHeaders,
    MessageMetadata,
    MessageState,
    Receipt,
)
from app.domain.queue import Queue, QueueSettings, QueueStatus, Redelivery
from app.domain.retry import ExponentialDelay, FixedDelay, LinearDelay, ListedDelays, NoDelay, RetryPolicy
from app.domain.settlement import LockedMessage, LockToken, Outcome, Tombstone
from app.store import tables
from app.store.shared import digest_columns, json_columns, message_rows, rows
from app.wire.message_fields import MessageInQueue, MessageToSend
from app.wire.queue_patch import QueuePatch
from app.wire.queues import JSON_NAMES, QueueSettingsBody

MESSAGE_ID, GROUP_ID, PROPERTIES = "the id", "the group", b'{"p": 1}'
ENVELOPE = Envelope(MESSAGE_ID, MessageHeaders(*(f"the {name}" for name in HEADER_TEXTS)), GROUP_ID, PROPERTIES)
HEADERS = json_columns.write_headers(ENVELOPE.headers)
SECRET = bytes(range(16))
SETTINGS = QueueSettings(
    lock_duration=1 * SECOND,
    max_delivery_count=2,
    default_ttl=3 * SECOND,
    dead_letter_on_expiry=True,
    duplicate_detection_window=4 * SECOND,
    retry=FixedDelay(5 * SECOND),
    archive_retention=6 * SECOND,
    max_message_bytes=7,
    max_messages=8,
    status=QueueStatus.SEND_DISABLED,
    redelivery=Redelivery.ON_REQUEST,
    description="nine",
    group_in_flight=10,
    history=True,
    forward_to="eleven",
    forward_dead_letters_to="twelve",
    default_delay=13 * SECOND,
    default_wait=14 * SECOND,
    labels={"fifteen": "sixteen"},
)
GRANT = Grant(frozenset({Right.SEND, Right.BROWSE}), ("a*", "b"))

POLICIES = [
    NoDelay(),
    FixedDelay(1),
    LinearDelay(2, 3, 4),
    ExponentialDelay(5, 6.5, 7, 0.8),
    ListedDelays((9, 10)),
]
# What one domain field is made of, where it is not a column of the same name and value.
ENCODED_VALUES = {
    "state": (MessageState.LOCKED, 2),
    "home_state": (MessageState.DEFERRED, 4),
    "body_kind": (BodyKind.BYTES, 2),
    "outcome": (Outcome.ABANDONED, "abandoned"),
    "settings": (SETTINGS, json_columns.write_settings(SETTINGS)),
    "properties": (PROPERTIES, PROPERTIES.decode()),
    "secret_hash": (SECRET * 2, SECRET * 2),
    "lock_token": (SECRET, SECRET),
}
ENVELOPE_COLUMNS = {
    "message_id": MESSAGE_ID,
    "group_id": GROUP_ID,
    "headers": HEADERS,
    "properties": PROPERTIES.decode(),
}


def columns_of(table: type[tables.SQLModel]) -> set[str]:
    """The names of a table's columns."""
    return set(tables.SQLModel.metadata.tables[str(table.__tablename__)].columns.keys())


def names_of(kind: type[Any]) -> set[str]:
    """The names of a domain class's fields."""
    return set(kind.__match_args__)


def stored(columns: tuple[str, ...]) -> tuple[Any, ...]:
    """A row in which every column holds something that no other one holds."""
    return tuple(ENCODED_VALUES.get(name, (0, f"<{name}>"))[1] for name in columns)


def expected(kind: type[Any], **made_of_several: Any) -> Any:
    """The domain value of that row: every field holds what the column of its name held."""
    values = {name: ENCODED_VALUES.get(name, (f"<{name}>", 0))[0] for name in names_of(kind) - set(made_of_several)}
    return kind(**values, **made_of_several)


def test_every_column_of_a_message_lands_in_the_field_of_its_name() -> None:
    row = [
        ENVELOPE_COLUMNS.get(name, value)
        for name, value in zip(message_rows.MESSAGE_COLUMNS, stored(message_rows.MESSAGE_COLUMNS), strict=True)
    ]
    assert message_rows.message(row, 7.0) == expected(Message, envelope=ENVELOPE, read_started_at=7.0, is_offered=False)


def test_every_column_of_metadata_lands_in_the_field_of_its_name() -> None:
    row = [
        ENVELOPE_COLUMNS.get(name, value)
        for name, value in zip(message_rows.METADATA_COLUMNS, stored(message_rows.METADATA_COLUMNS), strict=True)
    ]
    assert message_rows.metadata(row) == expected(MessageMetadata, envelope=ENVELOPE)


def test_every_column_of_a_held_row_lands_in_the_field_of_its_name() -> None:
    token = LockToken("<sequence_number>", SECRET)  # type: ignore[arg-type]  # a name is told apart better than a number
    held = rows.locked_message(stored(rows.LOCKED_COLUMNS))
    made = {"is_in_group": True, "is_in_transaction": True, "is_offered": False}
    assert held == expected(LockedMessage, token=token, **made)


def test_every_column_of_a_tombstone_lands_in_the_field_of_its_name() -> None:
    token = LockToken("<sequence_number>", SECRET)  # type: ignore[arg-type]
    assert rows.tombstone(stored(rows.TOMBSTONE_COLUMNS)) == expected(Tombstone, token=token)


def test_every_column_of_a_queue_lands_in_the_field_of_its_name() -> None:
    assert rows.queue(stored(rows.QUEUE_COLUMNS)) == expected(Queue)


def test_every_column_of_an_api_key_lands_in_the_field_of_its_name() -> None:
    row = [
        json_columns.write_rights(GRANT) if name == "rights" else value
        for name, value in zip(rows.API_KEY_COLUMNS, stored(rows.API_KEY_COLUMNS), strict=True)
    ]
    assert rows.api_key(row) == expected(ApiKey, grant=GRANT)


def test_a_draft_keeps_every_field_that_is_stored() -> None:
    draft = Draft(1, ENVELOPE, b"body", BodyKind.BYTES, 7, available_at=11, delay=12, ttl=13, is_in_group=True)
    values = dict(zip(message_rows.DRAFT_COLUMNS, message_rows.draft_row(draft), strict=True))
    asked = {"queue_id": 1, "priority": 7, "available_at": 11, "delay": 12, "ttl": 13, "body_kind": 2, "body": b"body"}
    digest = {"content_digest": content_digest(MESSAGE_ID, GROUP_ID, HEADERS, 2, b"body")}
    group = {"in_group": message_rows.IS_BLOCKED}
    unshared = {"shared_body_id": None, "shared_body_bytes": None}
    assert values == asked | ENVELOPE_COLUMNS | digest | group | unshared
    shared = dict(
        zip(message_rows.DRAFT_COLUMNS, message_rows.draft_row(replace(draft, shared_body_id="id")), strict=True)
    )
    assert shared == values | {"body": b"", "shared_body_id": "id", "shared_body_bytes": len(b"body")}
    # The window is looked at, not stored; everything else of a draft is either a column or in the envelope.
    computed = set(digest) | set(group) | set(unshared)
    columns = (
        names_of(Draft) - {"envelope", "duplicate_window", "is_in_group", "keeps_history", "offer_retention"}
        | set(ENVELOPE_COLUMNS)
        | computed
    )
    assert columns == set(message_rows.DRAFT_COLUMNS)


def test_every_part_of_an_envelope_has_a_column() -> None:
    assert set(ENVELOPE_COLUMNS) == names_of(Envelope)


def test_clients_and_the_pipeline_send_and_receive_every_text_of_a_message() -> None:
    texts = set(SENDER_TEXTS)
    for shape in (MessageToSend, MessageInQueue, NewMessage, MessageFields, ClientMessage):
        assert not texts - shape.__annotations__.keys(), shape
    # A message that is sent again has a trace of its own.
    assert {*SENT_AGAIN, "traceparent"} == set(HEADER_TEXTS)


def test_a_push_accepts_the_forms_of_attributes_that_the_server_accepts() -> None:
    for name in ("URI_REFERENCE", "FORBIDDEN_CHARACTERS"):
        assert getattr(attributes, name).pattern == getattr(cloudevents, name).pattern


def test_a_message_without_headers_has_none_stored() -> None:
    assert json_columns.write_headers(MessageHeaders()) is None


@pytest.mark.parametrize(
    ("read", "table", "left_out"),
    [
        (
            message_rows.MESSAGE_COLUMNS,
            tables.MessageRow,
            {"content_digest", "in_group", "shared_body_id", "shared_body_bytes"},
        ),  # for the archive only; for the groups only; for the body
        # For the sweeper only; for statements, and in the settings; for the schedule only.
        (
            rows.QUEUE_COLUMNS,
            tables.QueueRow,
            {"take_locks_until", "group_in_flight", "admit_after", "history_retention"},
        ),
        (rows.API_KEY_COLUMNS, tables.ApiKeyRow, set()),
        (rows.TOMBSTONE_COLUMNS, tables.SettlementRow, {"remove_at"}),
        (
            message_rows.ARCHIVED_COLUMNS,
            tables.ArchiveRow,
            {"queue", "outcome", "settled_at", "remove_at", "export_batch"},
        ),
        (rows.EVENT_COLUMNS, tables.MessageEventRow, {"sequence_number", "queue_id", "lock_token", "remove_at"}),
        (rows.BATCH_COLUMNS, tables.ExportBatchRow, {"rows_until"}),  # for the removal only
    ],
)
def test_every_column_of_a_table_is_read(
    read: tuple[str, ...], table: type[tables.SQLModel], left_out: set[str]
) -> None:
    assert set(read) - {"read_at"} == columns_of(table) - left_out


def test_what_the_archive_takes_over_a_message_has() -> None:
    assert set(message_rows.ARCHIVED_COLUMNS) <= columns_of(tables.MessageRow)
    assert set(rows.LOCKED_COLUMNS) - {"in_transaction", "read_at"} <= columns_of(tables.MessageRow)


def test_the_digest_of_a_row_covers_every_column_that_is_exported() -> None:
    assert set(digest_columns.DIGESTED_COLUMNS) == columns_of(tables.ArchiveRow) - {
        "queue_id",
        "remove_at",
        "export_batch",
        # The digest covers the body itself.
        "shared_body_id",
        "shared_body_bytes",
    }
    assert set(digest_columns.DIGESTED_COLUMNS) == set(EXPORTED) - {"export_batch", "history"}


def test_the_digest_of_an_event_covers_every_column_that_is_read_and_exported() -> None:
    exported = {"id": "number", "happened_at": "at"}
    assert [exported.get(name, name) for name in rows.EVENT_COLUMNS] == [field.name for field in HISTORY_FIELDS]
    assert set(digest_columns.DIGESTED_EVENT_COLUMNS) == {"sequence_number", *rows.EVENT_COLUMNS}


@pytest.mark.parametrize(
    ("table", "digested"),
    [
        ("archive", digest_columns.DIGESTED_COLUMNS),
        ("message_event", digest_columns.DIGESTED_EVENT_COLUMNS),
    ],
)
def test_the_digest_of_a_row_takes_each_column_as_what_it_is(
    table: str, digested: Mapping[str, digest_columns.DigestKind]
) -> None:
    kinds = {
        Integer: digest_columns.DigestKind.NUMBER,
        String: digest_columns.DigestKind.TEXT,
        LargeBinary: digest_columns.DigestKind.BYTES,
    }
    columns = tables.SQLModel.metadata.tables[table].columns
    for name, taken_as in digested.items():
        stored_as = next(kind for base, kind in kinds.items() if isinstance(columns[name].type, base))
        assert taken_as is (digest_columns.DigestKind.BODY if name == "body" else stored_as), name


def test_settings_come_back_as_they_were_written() -> None:
    assert all(getattr(SETTINGS, name) != getattr(QueueSettings(), name) for name in names_of(QueueSettings))
    assert json_columns.read_settings(json_columns.write_settings(SETTINGS)) == SETTINGS


@pytest.mark.parametrize("policy", POLICIES)
def test_every_retry_policy_comes_back_as_it_was_written(policy: RetryPolicy) -> None:
    settings = QueueSettings(retry=policy)
    assert json_columns.read_settings(json_columns.write_settings(settings)) == settings


def test_every_kind_of_retry_policy_has_a_stored_name() -> None:
    assert {type(policy) for policy in POLICIES} == set(get_args(RetryPolicy)) == set(json_columns.RETRY_KINDS.values())


@pytest.mark.parametrize("newer", ['"of_a_newer_version": 1', '"retry": {"kind": "newer"}', '"status": "newer"'])
def test_settings_of_other_versions_are_understood(newer: str) -> None:
    assert json_columns.read_settings(f'{{"max_delivery_count": 3, {newer}}}') == QueueSettings(max_delivery_count=3)


def test_answers_of_attempts_come_back_as_they_were_written() -> None:
    receipts = [Receipt(1, "a", 2, MessageState.SCHEDULED), Receipt(3, "b", 4, MessageState.AVAILABLE, duplicate=True)]
    assert json_columns.read_receipts(json_columns.write_receipts(receipts)) == receipts
    messages = [message_rows.message(stored_message(number)) for number in (5, 6)]
    assert json_columns.read_tokens(json_columns.write_tokens(messages)) == [LockToken(5, SECRET), LockToken(6, SECRET)]


def stored_message(number: int) -> list[Any]:
    """A row of a message with this number."""
    named = ENVELOPE_COLUMNS | {"sequence_number": number}
    return [
        named.get(name, value)
        for name, value in zip(message_rows.MESSAGE_COLUMNS, stored(message_rows.MESSAGE_COLUMNS), strict=True)
    ]


def types_of_fields(form: type[msgspec.Struct]) -> dict[str, list[Any]]:
    """Return the types of each field, without those of a missing value."""
    return {
        field.name: [member for member in get_args(field.type | NoneType) if member not in (UnsetType, NoneType)]
        for field in msgspec.structs.fields(form)
    }


def test_every_setting_of_a_queue_is_in_its_json_and_in_its_patch() -> None:
    body, patch = types_of_fields(QueueSettingsBody), types_of_fields(QueuePatch)
    assert list(JSON_NAMES.values()) == list(body) == list(patch)
    # A patch may change one field of a retry policy, or one label.
    assert {name for name in body if body[name] != patch[name]} == {"labels", "retry"}
