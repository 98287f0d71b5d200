"""The batches of an audit, listed in portions: each as it was before any row was read."""

from __future__ import annotations

from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.batch_portions import KnownBatches

from tests.pipeline.archive import Archive, archived

NUMBERS = range(1, 12)


def removed_in(known: KnownBatches, database: Database, most: int) -> set[int]:
    """The batches that the portions show as removed."""
    portions = known.portions(database, most)
    return {batch.number for portion in portions for batch in portion.known if batch.removed_at is not None}


def test_portions_show_what_was_removed_when_the_batches_were_first_listed(small_archive: Archive) -> None:
    small_archive.seal_all({number: [archived(number)] for number in NUMBERS})
    database = Database.from_url(small_archive.url)
    for number in (1, 2, 3, 5, 8, 9):
        small_archive.remove(number, "trimmed")
    for most in (1, 2, 3, 100):
        known = KnownBatches.of(database, 0, most)
        assert known.removed == [(1, 3), (5, 5), (8, 9)]
        assert removed_in(known, database, most) == {1, 2, 3, 5, 8, 9}
    known = KnownBatches.of(database, 0, 3)
    for number in (4, 10):
        small_archive.remove(number, "trimmed")
    assert removed_in(known, database, 3) == {1, 2, 3, 5, 8, 9}
    assert removed_in(KnownBatches.of(database, 2, 3), database, 3) == {3, 4, 5, 8, 9, 10}
