"""trim: has a server remove sealed batches, once the lake is proven to hold every message of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import httpx
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.database import Batch
from peeklock_pipeline.jobs.archive_rows import ArchiveRows
from peeklock_pipeline.jobs.batch_comparison import NO_CONTENTS, BatchContents, batch_contents
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.plurals import batches, messages
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import BadLake, ServerUnavailable
from peeklock_pipeline.sending import http_client, problem_text
from peeklock_pipeline.tables import ExportPosition, export_position_of
from peeklock_pipeline.task_refusals import task_refusals
from peeklock_pipeline.transforms import audit as ask

REQUEST_BATCHES = 100
PAGE_BATCHES = 1000
PORTION_BATCHES = 10_000
"""Batches of which the driver holds the digests at a time."""

ANSWER_SECONDS = 120.0
"""Longer than the longest time in which the server processes one request."""

DIFFERS = "differs"
REMOVED = "removed_from_lake"
"""Results that trim itself finds: a batch is not as sealed, or the lake's retention removed messages of it."""


REASONS = {
    "differs": "lake and server do not have the messages that were sealed",
    "unknown": "the server does not know it",
    "too_young": "its messages ended too recently",
    REMOVED: "the lake's retention has removed some of its messages, so nothing is proven",
}


@dataclass(frozen=True, slots=True)
class TrimmedBatch:
    """The result for one batch: trimmed, too_young, differs, unknown, already_removed or removed_from_lake."""

    number: int
    messages: int
    result: str


@dataclass(frozen=True, slots=True)
class TrimResult:
    """The result for each batch that the server still had."""

    batches: list[TrimmedBatch]

    def count(self, result: str) -> int:
        """Return how many batches have this result."""
        return sum(batch.result == result for batch in self.batches)

    def sentences(self) -> str:
        """Return a sentence about each batch that stays, and the number of those removed."""
        stay = [
            f"Batch {batch.number} stays: {REASONS[batch.result]}." for batch in self.batches if batch.result in REASONS
        ]
        gone = sum(batch.messages for batch in self.batches if batch.result == "trimmed")
        return "\n".join([*stay, f"Removed {messages(gone)} in {batches(self.count('trimmed'))} from the server."])


class Server:
    """The archive's batches over HTTP, for one `with` block. Refuses with `BadOption` and `ServerUnavailable`."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._http = http_client(url, api_key, ANSWER_SECONDS)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def batches(self, after: int = 0) -> Iterator[Batch]:
        """Yield the batches that the server knows, with greater numbers, in order, page by page."""
        query: dict[str, Any] = {"limit": PAGE_BATCHES, "after": after}
        while True:
            page = self._call("GET", "/v1/archive/batches", query)
            yield from (_batch(item) for item in page["items"])
            if (cursor := page["next_cursor"]) is None:
                return
            query["cursor"] = cursor

    def trim(self, copies: Sequence[Batch]) -> Mapping[int, str]:
        """Return the results for those of these batches that the server processed."""
        body = [{"number": copy.number, "row_count": copy.rows, "digest": copy.digest} for copy in copies]
        answer = self._call("POST", "/v1/archive/trim", body={"batches": body})
        return {batch["number"]: batch["result"] for batch in answer["batches"]}

    def _call(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        try:
            answer = self._http.request(method, path, params=query, json=body)
        except httpx.HTTPError as error:
            raise ServerUnavailable(f"No answer from {self._http.base_url}: {error}") from error
        if answer.is_error:
            raise ServerUnavailable(f"{self._http.base_url} refuses {method} {path}: {problem_text(answer)}")
        return answer.json()


@task_refusals()
def trim(
    spark: SparkSession,
    server: Server,
    lake: Lake,
    older_than: timedelta,
    progress: Progress = no_progress,
    portion_batches: int = PORTION_BATCHES,
) -> TrimResult:
    """Have the server remove batches older than `older_than` for which the lake holds the messages that were sealed.

    The job may crash anywhere and be repeated. It reads the files of the lake that have messages of these batches, for
    `portion_batches` at a time. Refuses with `ServerUnavailable` and `BadLake`.
    """
    table = lake.archive_table()
    mark = export_position_of(table)
    last = next(server.batches(mark.number - 1), None) if mark.number else None
    if last is None or mark != ExportPosition(last.number, last.sealed_at):
        raise BadLake(f"This lake holds another archive than this server's, which has no batch {mark.number} like it.")
    until = int((datetime.now(UTC) - older_than).timestamp() * 1_000_000)
    archive, removed = ArchiveRows.unchecked(spark, lake, table), lake.removed(spark, table)
    results = list[TrimmedBatch]()
    for wanted in _portions(_wanted(server, mark.number, until), portion_batches):
        progress(len(results), len(results) + len(wanted))
        found = _Copies.of(archive, removed, wanted).judged(wanted)
        proven = [batch for batch in wanted if batch.number not in found]
        for start in range(0, len(proven), REQUEST_BATCHES):
            found |= _trimmed(server, proven[start : start + REQUEST_BATCHES])
        results += [TrimmedBatch(batch.number, batch.rows, found[batch.number]) for batch in wanted]
    progress(len(results), len(results))
    return TrimResult(results)


def _wanted(server: Server, last: int, until: int) -> Iterator[Batch]:
    """Yield the batches up to `last` that the server still has, sealed until a moment."""
    for batch in server.batches():
        if batch.number > last:
            return
        if batch.removed_at is None and batch.sealed_at <= until:
            yield batch


def _portions(batches: Iterator[Batch], most: int) -> Iterator[list[Batch]]:
    while portion := list(islice(batches, most)):
        yield portion


@dataclass(frozen=True, slots=True)
class _Copies:
    """The lake's contents of some batches, except those with changed messages, and the batches of which its retention
    removed messages."""

    contents: Mapping[int, BatchContents]
    removed: Collection[int]

    @classmethod
    def of(cls, archive: ArchiveRows, removed: DataFrame, portion: Sequence[Batch]) -> "_Copies":
        """Read the contents of these batches. Refuses with `BadLake` if a file is missing."""
        low, high = portion[0].number - 1, portion[-1].number
        archive.require_files(low, high)
        found = ask.batches(archive.located(low, high), archive.events(low, high)).collect()
        gone = removed.where(F.col("export_batch").between(low + 1, high)).select("export_batch").distinct().collect()
        contents = {row.number: batch_contents(row) for row in found if not row.changed}
        return cls(contents, {row.export_batch for row in gone})

    def judged(self, portion: Sequence[Batch]) -> dict[int, str]:
        """Return the results of those batches that are not proven to be in the lake."""
        unproven = (batch for batch in portion if not self.contents.get(batch.number, NO_CONTENTS).proves(batch))
        differing = dict.fromkeys((batch.number for batch in unproven), DIFFERS)
        return differing | {batch.number: REMOVED for batch in portion if batch.number in self.removed}


def _trimmed(server: Server, copies: Sequence[Batch]) -> Mapping[int, str]:
    """Return the result for each batch. Batches that the server did not process are requested again."""
    results: dict[int, str] = {}
    while left := [copy for copy in copies if copy.number not in results]:
        answer = server.trim(left)
        if not answer:
            raise ServerUnavailable("The server answered without processing a batch; run this again later.")
        results |= answer
    return results


def _batch(item: Mapping[str, Any]) -> Batch:
    removed = item["removed_at"]
    return Batch(
        item["number"],
        item["row_count"],
        item["digest"],
        _microseconds(item["sealed_at"]),
        None if removed is None else _microseconds(removed),
        item["digest_version"],
    )


def _microseconds(moment: str) -> int:
    return (datetime.fromisoformat(moment) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
