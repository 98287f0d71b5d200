"""The messages that the server counted as accepted, and why an audit does not find all of them."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from peeklock_pipeline.jobs.ledger_lines import LedgerSums


@dataclass(frozen=True, slots=True)
class ServerCount:
    """The messages that the server has ever `accepted`, and those of them that an audit cannot find.

    - `unarchived` messages left a queue that keeps no archive, without a row. How they ended is unknown.
    - `removed` messages were removed from the lake by its retention. `removed_in_all` also counts those without a digest.
    - `gone` messages were gone, or exported without a digest, before this lake began to count. If this is below zero, the
      database then held more messages than the server had counted.
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
        """Return the differences between this count and the messages of a ledger, each with its sign and reason.

        A server runs while an audit reads, so the last difference is what it accepted or removed meanwhile.
        """
        before = "before the lake began to count"
        differences = (
            (self.unarchived, "of queues without an archive"),
            (self.removed, "removed by the lake's retention"),
            (self.gone, f"gone {before}" if self.gone > 0 else f"held {before}, but never counted"),
            (-sums.uncounted, "that no server counted"),
        )
        meanwhile = self.accepted - sums.accepted - sum(count for count, _ in differences)
        every = (*differences, (meanwhile, "accepted or ended during the audit"))
        return [f"{'-' if count < 0 else '+'} {abs(count)} {reason}" for count, reason in every if count]

    def without_ids(self, missed: int) -> int:
        """Return the number of messages whose ids are unknown: a senders' log may name them, but no audit finds them.

        The archive removed `missed` messages before an export.
        """
        return self.unarchived + self.removed_in_all + max(self.gone, 0) + missed


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)
