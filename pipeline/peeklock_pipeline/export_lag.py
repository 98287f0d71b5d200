"""How far an export is behind the server, and how long the archive keeps what it has not copied."""

from collections.abc import Mapping, Sequence

from peeklock_pipeline.database import Batch, Database

MICROSECONDS = 1_000_000


def export_lag(database: Database, last: int, pending: Sequence[Batch], now: float) -> Mapping[str, float]:
    """Return the metrics of an export that finds these batches after the last one of its lake, at this second.

    Refuses with `DatabaseUnavailable`.
    """
    until = min([now, *(batch.sealed_at / MICROSECONDS for batch in pending)])
    retention = database.shortest_retention(last)
    kept = {} if retention is None else {"archive_retention_seconds": retention / MICROSECONDS}
    return {"exported_until_timestamp_seconds": until, **kept}
