"""A database as servers leave it behind, written by SQL: queues, messages, and an archive with sealed batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from app.store.migrate import on_connection
from tests.engines import apart
from tests.faults.outside import execute

DAY = 86_400_000_000
NOON = 1_790_000_000_000_000 // DAY * DAY + DAY // 2
"""Noon of a day in 2026, in microseconds."""

DEAD_LETTERED = 5


def archived(number: int, **facts: Any) -> dict[str, Any]:
    """A row of the archive with every value that may be absent left out, but for these facts."""
    return {
        "sequence_number": number, "queue_id": 1, "queue": "orders", "outcome": "completed", "settled_at": NOON,
        "remove_at": NOON + 30 * DAY, "lock_token": None, "receiver_id": None, "priority": 4,
        "enqueued_at": NOON - 2_000_000, "available_at": NOON - 2_000_000, "expires_at": None,
        "first_delivered_at": None, "last_delivered_at": None, "delivery_count": 1, "failure_count": 0,
        "last_failure": None, "message_id": f"id-{number}", "group_id": None, "headers": None, "properties": None,
        "body_kind": 0, "body": b"", "dead_letter_reason": None, "dead_letter_description": None,
    } | facts  # fmt: skip


def live(number: int, **facts: Any) -> dict[str, Any]:
    """A row of a message that is still in its queue, available unless these facts say otherwise."""
    return {
        "sequence_number": number, "queue_id": 1, "state": 1, "home_state": 1, "priority": 4, "enqueued_at": NOON,
        "available_at": NOON, "expires_at": None, "delivery_count": 0, "failure_count": 0, "lock_token": None,
        "locked_until": None, "lock_generation": 0, "receiver_id": None, "first_delivered_at": None,
        "last_delivered_at": None, "last_failure": None, "message_id": f"id-{number}", "group_id": None,
        "headers": None, "properties": None, "body_kind": 0, "body": b"", "dead_letter_reason": None,
        "dead_letter_description": None, "dead_lettered_at": None,
    } | facts  # fmt: skip


def digest(numbers: Iterable[int]) -> str:
    """What the server seals a batch with."""
    return hashlib.sha256("".join(f"{number}\n" for number in sorted(numbers)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Archive:
    """The tables of one database."""

    url: str

    @classmethod
    def empty(cls, url: str) -> Archive:
        """The tables of a migrated database, without a row."""
        for table in ("archive", "export_batch", "message", "queue"):
            execute(url, f"DELETE FROM {table}")
        return cls(url)

    def seal(self, number: int, rows: Sequence[dict[str, Any]], sealed_at: int = NOON) -> None:
        """Archive these messages as a batch that is sealed."""
        self.fill("archive", [{**row, "export_batch": number} for row in rows])
        mark = {
            "number": number, "row_count": len(rows), "digest": digest(row["sequence_number"] for row in rows),
            "sealed_at": sealed_at + number, "remove_at": sealed_at + 30 * DAY, "removed_at": None, "removal": None,
        }  # fmt: skip
        self.fill("export_batch", [mark])

    def remove(self, number: int, removal: str) -> None:
        """Let a batch expire or be trimmed, as the server does it."""
        execute(self.url, "DELETE FROM archive WHERE export_batch = :number", number=number)
        execute(
            self.url,
            "UPDATE export_batch SET removed_at = :at, removal = :removal WHERE number = :number",
            number=number, removal=removal, at=NOON + DAY,
        )  # fmt: skip

    def lose(self, sequence_number: int) -> None:
        """Let an archived message vanish, as no server does it."""
        execute(self.url, "DELETE FROM archive WHERE sequence_number = :number", number=sequence_number)

    def hold(self, queue_id: int, queue: str, rows: Sequence[dict[str, Any]]) -> None:
        """Put messages into a queue."""
        about = {"id": queue_id, "name": queue, "settings": "{}", "version": 1, "created_at": 0, "updated_at": 0}
        self.fill("queue", [about])
        self.fill("message", [{**row, "queue_id": queue_id} for row in rows])

    def fill(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows with these columns."""
        names = list(rows[0])
        statement = text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)})")

        def work(connection: Connection) -> None:
            connection.execute(statement, list(rows))
            connection.commit()

        apart(lambda: on_connection(self.url, work))

    def numbers(self) -> set[int]:
        """The sequence numbers of all that is archived."""
        return {row[0] for row in execute(self.url, "SELECT sequence_number FROM archive")}
