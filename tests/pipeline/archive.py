"""A database as servers leave it behind, written by SQL: queues, messages, and an archive with sealed batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from app.domain.digest import content_digest, digest_of_rows, row_digest
from app.store.migrate import run_on_connection
from app.store.shared.digest_columns import DIGESTED_COLUMNS, DIGESTED_EVENT_COLUMNS
from tests.faults.database_access import execute
from tests.server_drivers import run_in_thread

DAY = 86_400_000_000
NOON = 1_790_000_000_000_000 // DAY * DAY + DAY // 2
"""Noon of a day in 2026, in microseconds."""

DEAD_LETTERED = 5

SEAL_COLUMNS = ("sequence_number", "remove_at", "export_batch")

IN_BATCHES = "sequence_number IN (SELECT sequence_number FROM archive_seal WHERE export_batch IN ({}))"


def archived(number: int, **facts: Any) -> dict[str, Any]:
    """A row of the archive with every value that may be absent left out, but for these facts."""
    row = {
        "sequence_number": number, "queue_id": 1, "queue": "orders", "outcome": "completed", "settled_at": NOON,
        "remove_at": NOON + 30 * DAY, "lock_token": None, "receiver_id": None, "priority": 4,
        "enqueued_at": NOON - 2_000_000, "available_at": NOON - 2_000_000, "expires_at": None,
        "first_delivered_at": None, "last_delivered_at": None, "delivery_count": 1, "failure_count": 0,
        "last_failure": None, "message_id": f"id-{number}", "group_id": None, "headers": None, "properties": None,
        "body_kind": 0, "body": b"", "dead_letter_reason": None, "dead_letter_description": None,
    } | facts  # fmt: skip
    return row | {"content_digest": content_of(row)} | facts


def live(number: int, **facts: Any) -> dict[str, Any]:
    """A row of a message that is still in its queue, available unless these facts say otherwise."""
    row = {
        "sequence_number": number, "queue_id": 1, "state": 1, "home_state": 1, "priority": 4, "enqueued_at": NOON,
        "available_at": NOON, "expires_at": None, "delivery_count": 0, "failure_count": 0, "lock_token": None,
        "locked_until": None, "lock_generation": 0, "receiver_id": None, "first_delivered_at": None,
        "last_delivered_at": None, "last_failure": None, "message_id": f"id-{number}", "group_id": None,
        "headers": None, "properties": None, "body_kind": 0, "body": b"", "dead_letter_reason": None,
        "dead_letter_description": None, "dead_lettered_at": None,
    } | facts  # fmt: skip
    return row | {"content_digest": content_of(row)} | facts


def happened(number: int, sequence_number: int, event: str, **facts: Any) -> dict[str, Any]:
    """A row of an event with every value that may be absent left out, but for these facts."""
    return {
        "id": number, "sequence_number": sequence_number, "queue_id": 1, "happened_at": NOON + number, "event": event,
        "state": None, "outcome": None, "receiver_id": None, "reason": None, "delivery_count": None,
        "remove_at": NOON + 30 * DAY,
    } | facts  # fmt: skip


def content_of(row: dict[str, Any]) -> bytes:
    """What the server digests of a message when it accepts it."""
    fields = ("message_id", "group_id", "headers", "body_kind", "body")
    return content_digest(*(row[name] for name in fields))


def digest_of(rows: Iterable[dict[str, Any]], events: Iterable[dict[str, Any]] = ()) -> str:
    """What the server seals a batch of these rows and events with."""
    ascending = sorted(rows, key=lambda row: row["sequence_number"])
    given = [row | {"body": hashlib.sha256(row["body"]).hexdigest()} for row in ascending]
    in_order = sorted(events, key=lambda event: (event["sequence_number"], event["id"]))
    lines = [row_digest(row[name] for name in DIGESTED_COLUMNS) for row in given]
    return digest_of_rows([
        *lines, *(row_digest(event[name] for name in DIGESTED_EVENT_COLUMNS) for event in in_order)
    ])  # fmt: skip


def digest(numbers: Iterable[int]) -> str:
    """What servers sealed a batch with before rows had digests."""
    return hashlib.sha256("".join(f"{number}\n" for number in sorted(numbers)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Archive:
    """The tables of one database."""

    url: str

    @classmethod
    def empty(cls, url: str) -> Archive:
        """The tables of a migrated database, without a row."""
        tables = (
            "archive", "archive_seal", "export_batch", "message", "shared_body", "queue", "accepted_count", "message_event",
            "topic", "subscription", "message_transaction", "state", "state_version",
        )  # fmt: skip
        for table in tables:
            execute(url, f"DELETE FROM {table}")
        return cls(url)

    def seal(self, number: int, rows: Sequence[dict[str, Any]], sealed_at: int = NOON) -> None:
        """Archive these accepted messages as a batch that is sealed."""
        self.seal_all({number: rows}, sealed_at)

    def seal_all(self, batches: Mapping[int, Sequence[dict[str, Any]]], sealed_at: int = NOON) -> None:
        """Archive these accepted messages as batches that are sealed."""
        self.archive_rows([row | {"export_batch": number} for number, rows in batches.items() for row in rows])
        marks = [
            {
                "number": number, "row_count": len(rows), "digest": digest_of(rows), "digest_version": 2,
                "sealed_at": sealed_at + number, "remove_at": sealed_at + 30 * DAY, "removed_at": None, "removal": None,
            }
            for number, rows in batches.items()
        ]  # fmt: skip
        self.fill("export_batch", marks)

    def seal_all_with_events(self, batches: Mapping[int, Sequence[dict[str, Any]]]) -> None:
        """Archive these accepted messages as batches that are sealed, each message with an event."""
        self.seal_all(batches)
        for number, rows in batches.items():
            events = [
                happened(row["sequence_number"], row["sequence_number"], "settled", reason=row["message_id"])
                for row in rows
            ]
            self.fill("message_event", events)
            self._set_digest(number, digest_of(rows, events), 3)

    def seal_with_events(self, number: int, rows: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> None:
        """Archive these accepted messages as a sealed batch, with their histories."""
        self.seal(number, rows)
        self.fill("message_event", events)
        self._set_digest(number, digest_of(rows, events), 3)

    def _set_digest(self, number: int, sealed: str, version: int) -> None:
        execute(
            self.url, "UPDATE export_batch SET digest = :digest, digest_version = :version WHERE number = :number",
            digest=sealed, version=version, number=number,
        )  # fmt: skip

    def seal_numbers(self, number: int, rows: Sequence[dict[str, Any]]) -> None:
        """Archive these messages as a server sealed them before rows had digests."""
        self.seal(number, [{**row, "content_digest": None} for row in rows])
        self._set_digest(number, digest(row["sequence_number"] for row in rows), 1)

    def archive_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Archive these accepted messages, in no batch where they name none."""
        self.count_accepted(rows)
        self.fill_archive([{"export_batch": None} | row for row in rows])

    def fill_archive(self, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows of the archive, each with its batch."""
        self.fill("archive", [row | {"export_batch": 0} for row in rows])
        self.fill("archive_seal", [{name: row[name] for name in SEAL_COLUMNS} for row in rows])

    def share_bodies(self, condition: str = "TRUE") -> None:
        """Move the bodies of the messages for which the SQL condition holds to where messages share one."""
        for table in ("archive", "message"):
            execute(
                self.url, f"INSERT INTO shared_body (id, body) SELECT message_id, body FROM {table} WHERE {condition}"
            )
            execute(
                self.url,
                f"UPDATE {table} SET shared_body_id = message_id, shared_body_bytes = LENGTH(body), body = '' "
                f"WHERE {condition}",
            )

    def write_as_older_servers(self) -> None:
        """Write the batch of each message where servers wrote it before there was a table for it."""
        execute(
            self.url,
            "UPDATE archive SET export_batch = (SELECT s.export_batch FROM archive_seal s "
            "WHERE s.sequence_number = archive.sequence_number)",
        )
        execute(self.url, "DELETE FROM archive_seal")

    def count_accepted(self, rows: Iterable[dict[str, Any]]) -> None:
        """Count messages as accepted by their queue on their day, as the statements do that store them."""
        by_day: dict[tuple[int, str, int], list[int]] = {}
        for row in rows:
            if row["content_digest"] is None:
                continue
            day = (row["queue_id"], row["queue"], row["enqueued_at"] // DAY)
            by_day.setdefault(day, []).append(row["sequence_number"])
        counts = [
            {"queue_id": queue_id, "queue": name, "day": day, "first_number": min(numbers), "accepted": len(numbers)}
            for (queue_id, name, day), numbers in by_day.items()
        ]
        if counts:
            self.fill("accepted_count", counts)

    def end_without_a_row(self, rows: Sequence[dict[str, Any]]) -> None:
        """Let accepted messages end in a new queue that keeps no archive, as the statements do that remove them."""
        self.count_accepted(rows)
        execute(
            self.url, "UPDATE accepted_count SET unarchived = accepted WHERE queue_id = :queue_id",
            queue_id=rows[0]["queue_id"],
        )  # fmt: skip

    def remove(self, numbers: int | Iterable[int], removal: str) -> None:
        """Let batches expire or be trimmed, as the server does it."""
        named = str(numbers) if isinstance(numbers, int) else ", ".join(map(str, numbers))
        execute(self.url, f"DELETE FROM archive WHERE {IN_BATCHES.format(named)}")
        execute(self.url, f"DELETE FROM archive_seal WHERE export_batch IN ({named})")
        execute(
            self.url,
            f"UPDATE export_batch SET removed_at = :at, removal = :removal WHERE number IN ({named})",
            removal=removal, at=NOON + DAY,
        )  # fmt: skip

    def move_back(self, by: int) -> None:
        """Let every archived message have ended that much earlier, and its batch be sealed with it."""
        execute(self.url, "UPDATE archive SET settled_at = settled_at - :by", by=by)
        for (number,) in execute(self.url, "SELECT number FROM export_batch WHERE removed_at IS NULL"):
            rows = self._rows_of_batch("archive", list(DIGESTED_COLUMNS), number)
            events = self._rows_of_batch("message_event", list(DIGESTED_EVENT_COLUMNS), number)
            self._set_digest(number, digest_of(rows, events), 3 if events else 2)

    def _rows_of_batch(self, table: str, columns: Sequence[str], number: int) -> list[dict[str, Any]]:
        found = execute(self.url, f"SELECT {', '.join(columns)} FROM {table} WHERE {IN_BATCHES.format(number)}")
        return [dict(zip(columns, row, strict=True)) for row in found]

    def delete_message(self, sequence_number: int) -> None:
        """Let an archived message vanish, as no server does it."""
        execute(self.url, "DELETE FROM archive WHERE sequence_number = :number", number=sequence_number)

    def add_to_queue(self, queue_id: int, queue: str, rows: Sequence[dict[str, Any]]) -> None:
        """Put accepted messages into a new queue."""
        self.add_to_queues({(queue_id, queue): rows})

    def add_to_queues(self, queues: Mapping[tuple[int, str], Sequence[dict[str, Any]]]) -> None:
        """Put accepted messages into new queues."""
        about = {"settings": "{}", "version": 1, "created_at": 0, "updated_at": 0}
        self.fill("queue", [about | {"id": number, "name": name} for number, name in queues])
        rows = [(name, row | {"queue_id": number}) for (number, name), held in queues.items() for row in held]
        self.count_accepted(row | {"queue": name} for name, row in rows)
        self.fill("message", [row for _, row in rows])

    def fill(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows with these columns."""
        names = list(rows[0])
        statement = text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)})")

        def work(connection: Connection) -> None:
            connection.execute(statement, list(rows))
            connection.commit()

        run_in_thread(lambda: run_on_connection(self.url, work))

    def numbers(self) -> set[int]:
        """The sequence numbers of all that is archived."""
        return {row[0] for row in execute(self.url, "SELECT sequence_number FROM archive")}
