"""The record of audits in the lake: the batches that they have found sound, and counts of their messages.

One commit replaces the counts, and records the last of these batches and the removals by the lake's retention that the
counts are without. So a crash leaves either the earlier record or the new one. Later removals are subtracted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.jobs.findings import Finding
from peeklock_pipeline.lake import REMOVAL_KEY_PREFIX, Lake
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.refusals import LakeUnavailable, TasksFailed
from peeklock_pipeline.results import write_files
from peeklock_pipeline.table_specs import AUDITED
from peeklock_pipeline.tables import Change, export_position_of, transaction_version
from peeklock_pipeline.task_refusals import task_refusals
from peeklock_pipeline.transforms import audit as ask

AUDITED_KEY_PREFIX = "peeklock-audited-"
"""The prefix of the application whose transaction version is the last audited batch. The id of the archive's table
follows, because the record is of that table alone."""


@dataclass(frozen=True, slots=True)
class Audited:
    """What earlier audits have found sound: the batches up to `last_batch`, 0 for none.

    `counts` are of their messages, `left` without those that the lake's retention has removed since. `found` messages
    of them are therefore expected in the lake. `since` are the removals that are not in the record yet.
    """

    lake: Lake
    archive: DeltaTable
    record: DeltaTable | None
    last_batch: int
    left: DataFrame
    found: int
    since: Sequence[str]

    @classmethod
    def of(
        cls, spark: SparkSession, lake: Lake, record: DeltaTable | None, archive: DeltaTable, *, from_scratch: bool
    ) -> "Audited":
        """Read the record of a lake, for the opened version of its archive; none if it is `from_scratch`.

        The record is opened before the archive, which then has every removal that the record has.
        """
        removed = lake.removed(spark, archive)
        removals = [row.removal for row in removed.select("removal").distinct().collect()]
        last = 0 if from_scratch else transaction_version(record, _key(archive))
        if not 0 < last <= export_position_of(archive).number:
            return cls(lake, archive, record, 0, lake.read_files(spark, [], AUDITED), 0, removals)
        since = [name for name in removals if not transaction_version(record, REMOVAL_KEY_PREFIX + name)]
        counts = lake.read_version(spark, record, AUDITED)
        gone = removed.where(F.col("removal").isin(since) & (F.col("export_batch") <= last))
        left = ask.left_of(counts, gone).cache()
        return cls(lake, archive, record, last, left, _sum(counts) - _sum(gone), since)

    def difference(self, rows: int) -> Finding | None:
        """Return a finding if the lake has another number of messages of these batches than expected."""
        if rows == self.found:
            return None
        what = (
            f"and earlier ones have {messages(rows)} in the lake, but audits counted {self.found}; "
            "an audit with --from-scratch names them"
        )
        return Finding(what, self.last_batch)

    def add(self, placed: DataFrame) -> bool:
        """Record that every exported batch is sound, with the messages that this audit has read.

        Returns False if another audit has recorded something meanwhile, or the lake cannot be written.
        """
        last = export_position_of(self.archive).number
        if last == self.last_batch and not self.since:
            return True
        counts = ask.added(self.left, ask.counts(placed, last))
        known = (Transaction(REMOVAL_KEY_PREFIX + name, 1) for name in self.since)
        try:
            with task_refusals():
                files = write_files(self.lake, AUDITED, counts)
            change, version = Change(files, mode="overwrite"), -1 if self.record is None else self.record.version()
            return self.lake.commit_at_version(AUDITED, change, version, Transaction(_key(self.archive), last), *known)
        except (LakeUnavailable, TasksFailed, OSError):
            return False


def _key(archive: DeltaTable) -> str:
    return f"{AUDITED_KEY_PREFIX}{archive.metadata().id}"


def _sum(counts: DataFrame) -> int:
    return counts.agg(F.sum("messages").alias("messages")).collect()[0].messages or 0
