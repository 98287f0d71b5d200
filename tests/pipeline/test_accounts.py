"""Messages that were accepted but are in no place are missing from the sum of their queue and day."""

from __future__ import annotations

from datetime import date
from typing import Any

from peeklock_pipeline.database import AcceptedCount
from peeklock_pipeline.jobs.ledger_lines import LedgerInputs, LedgerLine, unbalanced_findings

MONDAY, TUESDAY = date(2026, 9, 21), date(2026, 9, 22)
ACCOUNTS = [
    AcceptedCount("orders", MONDAY, 10, 4),
    AcceptedCount("orders", TUESDAY, 5, 5),
    AcceptedCount("billing", MONDAY, 3, 0),
]


def line(queue: str, day: date, missing: int) -> LedgerLine:
    parts: dict[str, Any] = dict.fromkeys(
        ("live", "dead_lettered", "completed", "received", "expired", "purged", "cancelled", "surplus"), 0
    )
    return LedgerLine(queue, day, accepted=max(missing, 0), **parts, missing=missing)


def test_what_is_neither_held_nor_in_the_lake_nor_removed_is_missing() -> None:
    in_lake = {("orders", MONDAY): 4, ("billing", MONDAY): 1}
    books = LedgerInputs(ACCOUNTS, removed={("orders", MONDAY): 1}, opening={("billing", MONDAY): 2})
    assert books.missing(in_lake) == {("orders", MONDAY): 1}


def test_what_was_never_accepted_is_missing_below_zero() -> None:
    books = LedgerInputs(ACCOUNTS[1:2], removed={}, opening={})
    assert books.missing({("orders", TUESDAY): 1, ("unknown", MONDAY): 2}) == {
        ("orders", TUESDAY): -1,
        ("unknown", MONDAY): -2,
    }


def test_a_lake_that_has_not_counted_yet_misses_nothing() -> None:
    assert LedgerInputs(ACCOUNTS, removed={}, opening=None).missing({}) == {}


def test_a_queue_and_day_that_do_not_add_up_are_named() -> None:
    lines = [line("orders", MONDAY, 2), line("orders", TUESDAY, 0), line("billing", MONDAY, -1)]
    assert [str(finding) for finding in unbalanced_findings(lines, missed=0)] == [
        "Queue orders, messages of 2026-09-21: 2 accepted, 2 missing.",
        "Queue billing, messages of 2026-09-21: 0 accepted, 1 more found.",
    ]


def test_what_the_archive_removed_before_an_export_is_named_by_its_batch_alone() -> None:
    lines = [line("orders", MONDAY, 2), line("orders", TUESDAY, 3)]
    assert list(unbalanced_findings(lines, missed=5)) == []
    assert [finding.what for finding in unbalanced_findings(lines, missed=4)] == [
        f"{count} accepted, {count} missing, of which up to 4 were removed from the archive before an export"
        for count in (2, 3)
    ]
