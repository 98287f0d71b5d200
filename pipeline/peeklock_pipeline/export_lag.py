"""How far an export is behind the server, and how long the archive keeps what it has not copied."""

from collections.abc import Mapping

from peeklock_pipeline.database import Database, PendingBatches

MICROSECONDS = 1_000_000


def export_lag(database: Database, last: int, pending: PendingBatches, now: float) -> Mapping[str, float]:
    """Return the metrics of an export that finds these batches after the last one of its lake, at this second.

    Refuses with `DatabaseUnavailable`.
    """
    until = now if pending.sealed_at is None else min(now, pending.sealed_at / MICROSECONDS)
    retention = database.shortest_retention(last)
    kept = {} if retention is None else {"archive_retention_seconds": retention / MICROSECONDS}
    return {"exported_until_timestamp_seconds": until, **kept}
