"""What the server counted as accepted, and what lies between this count and the messages that an audit finds."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from peeklock_pipeline.jobs.ledger_lines import LedgerSums


@dataclass(frozen=True, slots=True)
class ServerCount:
    """The messages that the server has `accepted`, of all time, and those of them that an audit cannot find.

    - `unarchived`: left a queue that keeps no archive, without a row. How they ended is unknown.
    - `removed`: were removed from the lake by its retention; `removed_in_all` also counts those without a digest.
    - `gone`: were gone, or exported without a digest, before this lake began to count. Below zero, more were held then
      than the server had counted.
    """

    accepted: int
    unarchived: int
    removed: int
    removed_in_all: int
    gone: int

    @classmethod
    def of(cls, accounts: DataFrame, removed: DataFrame, opening: DataFrame) -> "ServerCount":
        """Add up the server's accounts (`ACCOUNTS`), what the lake's retention removed, and the lake's opening."""
        [account] = accounts.agg(_sum("accepted"), _sum("unarchived")).collect()
        [gone] = opening.agg(_sum("messages")).collect()
        [left] = removed.agg(_sum("covered"), _sum("messages")).collect()
        return cls(account.accepted, account.unarchived, left.covered, left.messages, gone.messages)

    def terms(self, sums: LedgerSums) -> list[str]:
        """Return what lies between this count and the messages of a ledger, each with its sign and reason.

        A server goes on while an audit reads, so what it accepted or removed meanwhile is the last of them.
        """
        before = "gone before the lake began to count" if self.gone > 0 else "held then, but never counted"
        between = (
            (self.unarchived, "of queues without an archive"),
            (self.removed, "removed by the lake's retention"),
            (self.gone, before),
            (-sums.uncounted, "that no server counted"),
        )
        meanwhile = self.accepted - sums.accepted - sum(count for count, _ in between)
        found = (*between, (meanwhile, "accepted or ended during the audit"))
        return [f"{'-' if count < 0 else '+'} {abs(count)} {reason}" for count, reason in found if count]

    def without_ids(self, missed: int) -> int:
        """Return how many messages of a senders' log may be in no place without being lost. Their ids are unknown.

        The archive removed `missed` messages before an export.
        """
        return self.unarchived + self.removed_in_all + max(self.gone, 0) + missed


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)
