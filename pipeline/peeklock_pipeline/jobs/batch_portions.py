"""The batches of a database in portions, so that a driver never holds the digests of all of them."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from peeklock_pipeline.database import Batch, Database

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""No number of a batch is beyond these, also where a number was changed. The lowest is below all but itself."""


@dataclass(frozen=True, slots=True)
class BatchPortion:
    """The batches with numbers above `low`, up to `high`, at most `size`.

    `known` are those that were listed before any row was read, as they were then.
    """

    low: int
    high: int
    is_first: bool
    size: int
    known: Sequence[Batch]

    def has(self, number: int) -> bool:
        """Return whether a number is in this portion."""
        return self.low < number <= self.high

    def listed_again(self, database: Database) -> Mapping[int, Batch]:
        """Return the batches of this portion that the database has now. Refuses with `DatabaseUnavailable`."""
        most = None if self.high == HIGHEST else self.size
        found = database.batches(max(self.low, 0), most=most)
        return {batch.number: batch for batch in found if self.has(batch.number)}


@dataclass(frozen=True, slots=True)
class KnownBatches:
    """The batches after a number as a database listed them before any row was read.

    `oldest` is the lowest number of all of its batches, `last` the highest. `removed` are the runs of those that the
    archive had removed, each with its first and last number: a few, because the oldest are removed first.
    """

    after: int
    oldest: int
    last: int
    removed: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, database: Database, after: int, most: int) -> "KnownBatches":
        """List the batches, `most` at a time. Refuses with `DatabaseUnavailable`."""
        oldest = min((batch.number for batch in database.batches(most=1)), default=0)
        last, runs = after, list[tuple[int, int]]()
        while listed := database.batches(last, most=most):
            last = listed[-1].number
            for batch in listed:
                if batch.removed_at is not None:
                    continues = runs and runs[-1][1] == batch.number - 1
                    runs.append((runs.pop()[0] if continues else batch.number, batch.number))
        return cls(after, oldest, last, runs)

    def portions(self, database: Database, most: int) -> Iterator[BatchPortion]:
        """Yield portions of `most` batches, which cover every number after the first one.

        Refuses with `DatabaseUnavailable`.
        """
        low, listed_up_to = self.after or LOWEST, self.after
        while True:
            listed = database.batches(listed_up_to, most=most)
            is_last = len(listed) < most
            high = HIGHEST if is_last else listed[-1].number
            known = [self._as_listed(batch) for batch in listed if batch.number <= self.last]
            yield BatchPortion(low, high, listed_up_to == self.after, most, known)
            if is_last:
                return
            low = listed_up_to = high

    def _as_listed(self, batch: Batch) -> Batch:
        """Return a batch as it was first listed. Only its removal can have been added since."""
        place = bisect_right(self.removed, batch.number, key=lambda run: run[0])
        was_removed = place > 0 and batch.number <= self.removed[place - 1][1]
        return batch if was_removed else replace(batch, removed_at=None)
