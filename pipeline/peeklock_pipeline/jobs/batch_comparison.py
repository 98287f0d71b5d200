"""Compares batches of the lake and of the archive with what was sealed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Row

from peeklock_pipeline.database import Batch
from peeklock_pipeline.jobs.findings import MAX_NAMED, Finding, LimitedFindings, limit_findings, limit_rows
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.transforms import audit as ask


@dataclass(frozen=True, slots=True)
class BatchContents:
    """The content of a batch in lake or archive: its messages, and the digests of their numbers, and of rows and events.

    The second digest of a batch without events is the one of version 2.
    """

    messages: int
    numbers: str
    rows: str

    def proves(self, batch: Batch) -> bool:
        """Return whether this is what was sealed, by the digest of the batch's version."""
        digest = {1: self.numbers, 2: self.rows, 3: self.rows}.get(batch.digest_version)
        return (self.messages, digest) == (batch.rows, batch.digest)


def batch_contents(row: Row) -> BatchContents:
    """Convert a row of `batches`."""
    return BatchContents(row.messages, row.numbers, row.rows)


NO_CONTENTS = BatchContents(0, "", "")


@dataclass(frozen=True, slots=True)
class BatchComparison:
    """Some batches of the lake and of the archive, and those that the lake should hold.

    The database knows no batch below `oldest`. `known` are the database's batches as listed before its rows were read, `later` those listed after. The lake should
    have batches `begun` to `exported`. `held` is by place (lake or archive) and number. `removed` counts the messages
    of each batch that the lake's retention removed. `missed` are batches that the archive removed before an export.
    """

    known: Sequence[Batch]
    later: Mapping[int, Batch]
    oldest: int
    first_batch: int
    exported: int
    contents: Mapping[tuple[str, int], BatchContents]
    removed: Mapping[int, int]
    missed: Mapping[int, int]

    def unrecorded(self) -> list[int]:
        """Return the batches of which lake and archive have messages, and the database no record, in order.

        They were exported, so the database had recorded them.
        """
        known = {batch.number for batch in self.known} | self.later.keys()
        both = self._numbers("lake") & self._numbers("archive") - known
        return sorted(number for number in both if self.first_batch <= number <= self.exported)

    def without_record(self) -> Iterator[Finding]:
        """Yield the batches of which the database has no record, in order."""
        for number in self.unrecorded():
            lake, archive = (messages(self.contents[place, number].messages) for place in ("lake", "archive"))
            yield Finding(f"has no record in the database; the lake has {lake} of it, the archive {archive}", number)

    def wrong_in_lake(self) -> Iterator[Finding]:
        """Yield the batches that differ in the lake from what was sealed, in order."""
        sealed = {batch.number: batch for batch in self.known}
        wanted = {number for number in sealed if self.first_batch <= number <= self.exported}
        # The database forgets a batch a year after its removal. The lake's copy can then no longer be compared.
        unexpected = {
            number
            for number in self._numbers("lake")
            if number < self.first_batch or number > self.exported or number >= self.oldest
        }
        for number in sorted((wanted | unexpected | set(self.missed)).difference(self.unrecorded())):
            contents = self.contents.get(("lake", number), NO_CONTENTS)
            if number >= self.first_batch and number in self.missed and not contents.messages:
                yield _unexported_finding(number, self.missed[number])
            elif (what := self._in_lake(number, sealed.get(number), contents)) is not None:
                yield Finding(what, number)

    def _in_lake(self, number: int, batch: Batch | None, contents: BatchContents) -> str | None:
        here = f"has {messages(contents.messages)} in the lake"
        if number < self.first_batch:
            return f"{here}, which begins with batch {self.first_batch}"
        if number > self.exported:
            return f"{here}, which ends with batch {self.exported}"
        if batch is None:
            return f"{here}, but was never sealed"
        if removed := self.removed.get(number, 0):
            gone = f"{here}, and {removed} more were removed by the lake's retention, but was sealed with {batch.rows}"
            return None if contents.messages + removed == batch.rows else gone
        return None if contents.proves(batch) else _difference(here, contents, batch)

    def compared(self) -> int:
        """The number of batches of the database that the lake should hold."""
        return sum(self.first_batch <= batch.number <= self.exported for batch in self.known)

    def unexported(self) -> int:
        """The number of messages that the archive removed before an export."""
        later = {
            batch.number: batch.rows
            for batch in self.known
            if batch.removed_at is not None and batch.number > self.exported
        }
        return sum({**later, **self.missed}.values())

    def is_in_archive(self, number: int) -> bool:
        """Return whether the archive held the rows of a sealed batch during the whole read."""
        batch = self.later.get(number)
        return batch is not None and batch.removed_at is None

    def is_comparable(self, number: int) -> bool:
        """Return whether lake and archive should have the same rows of a batch."""
        return self.first_batch <= number <= self.exported and number not in self.removed and self.is_in_archive(number)

    def is_unexpected(self, number: int, place: str) -> bool:
        """Return whether a place should have no row of a batch."""
        if place == "archive":
            return number not in self.later
        return number not in self.later or not self.first_batch <= number <= self.exported

    def wrong_in_archive(self) -> Iterator[Finding]:
        """Yield the batches that the archive holds wrongly, or that archive and lake both lack, in order."""
        for batch in self.known:
            contents = self.contents.get(("archive", batch.number), NO_CONTENTS)
            if batch.removed_at is not None:
                yield from self._removed(batch, contents)
            elif self.is_in_archive(batch.number) and not contents.proves(batch):
                yield Finding(
                    _difference(f"has {messages(contents.messages)} in the archive", contents, batch), batch.number
                )
        for number in sorted(self._numbers("archive") - self.later.keys() - {*self.unrecorded()}):
            contents = self.contents["archive", number]
            yield Finding(f"has {messages(contents.messages)} in the archive, but was never sealed", number)

    def _numbers(self, place: str) -> set[int]:
        return {number for where, number in self.contents if where == place}

    def _removed(self, batch: Batch, contents: BatchContents) -> Iterator[Finding]:
        if contents.messages:
            yield Finding(f"has {messages(contents.messages)} in the archive, from which it was removed", batch.number)
        if batch.number > max(self.exported, self.first_batch - 1) and batch.number not in self.missed:
            yield _unexported_finding(batch.number, batch.rows)


def _unexported_finding(number: int, rows: int) -> Finding:
    what = f"was removed from the archive with {messages(rows)} before an export copied it"
    return Finding(what, number, is_unexported=True)


def _difference(here: str, contents: BatchContents, batch: Batch) -> str:
    if contents.messages == batch.rows:
        return f"{here} other than those sealed"
    return f"{here}, but was sealed with {batch.rows}"


KEYS = ("export_batch", "sequence_number")
"""The columns that identify a row of a batch."""

ReadAgain = Callable[[list[int]], DataFrame]
"""Reads batches again, and returns some of their messages."""


def batch_findings(
    contents: BatchComparison, placed: DataFrame, pairs: ReadAgain, edited: ReadAgain
) -> LimitedFindings:
    """Return the wrong batches, and those of their messages that lake and archive identify.

    `pairs` reads batches again, and returns the messages that differ between lake and archive; `edited` those that do not
    match their checksums in the lake.
    """
    wrong = {"lake": list(contents.wrong_in_lake()), "archive": list(contents.wrong_in_archive())}
    without_record = list(contents.without_record())
    batches, unnamed = limit_findings([*without_record, *wrong["lake"], *wrong["archive"]])
    if not batches:
        return [], 0
    numbers = {
        place: {finding.batch for finding in [*without_record, *found] if finding.batch is not None}
        for place, found in wrong.items()
    }
    unrecorded = {*contents.unrecorded()}
    wrong_somewhere = sorted(numbers["lake"] | numbers["archive"])
    both = [number for number in wrong_somewhere if number in unrecorded or contents.is_comparable(number)][:MAX_NAMED]
    unexpected = {
        place: [number for number in found - unrecorded if contents.is_unexpected(number, place)]
        for place, found in numbers.items()
    }
    named = [(ask.in_one_place_only(placed, both, unexpected), _row_namer(numbers))]
    if both:
        named.append((pairs(both), _batch_namer(numbers)))
    if in_lake := sorted(numbers["lake"].difference(unexpected["lake"]))[:MAX_NAMED]:
        others = reduce(lambda found, rows: ask.missing(found, rows[0], *KEYS), named, edited(in_lake))
        named.append((others.orderBy("sequence_number"), _edited_finding))
    found = [limit_rows(rows, name) for rows, name in named]
    return [*batches, *(finding for some, _ in found for finding in some)], unnamed + sum(more for _, more in found)


def _edited_finding(row: Row) -> Finding:
    what = "is not in the lake as it was exported: its values do not match its row_checksum"
    return Finding(what, row.export_batch, row.queue, row.sequence_number, row.message_id)


def _batch_namer(wrong: Mapping[str, set[int]]) -> Callable[[Row], Finding]:
    """Return a function that names a row with different values in lake and archive, by the place that is wrong."""

    def name(row: Row) -> Finding:
        places = [place for place, numbers in wrong.items() if row.export_batch in numbers]
        what = f"is not in the {' and the '.join(places)} as it was sealed: lake and archive differ in {row.columns}"
        return Finding(what, row.export_batch, row.queue, row.sequence_number, row.message_id)

    return name


def _row_namer(wrong: Mapping[str, set[int]]) -> Callable[[Row], Finding]:
    """Return a function that names a row that only one place has, by the place that is wrong."""

    def name(row: Row) -> Finding:
        number, other = row.export_batch, "archive" if row.place == "lake" else "lake"
        if number not in wrong[other]:
            what = f"is in the {row.place}, but was not sealed in this batch"
        elif number not in wrong[row.place]:
            what = f"is not in the {other}"
        else:
            what = f"is in the {row.place}, but not in the {other}"
        return Finding(what, number, row.queue, row.sequence_number, row.message_id)

    return name
