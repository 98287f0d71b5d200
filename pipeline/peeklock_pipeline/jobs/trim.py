"""trim: has a server remove sealed batches, once the lake is proven to hold every message of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from pyspark.sql import SparkSession

from peeklock_pipeline.database import Batch
from peeklock_pipeline.jobs.findings import NO_CONTENTS, batch_contents
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.plurals import batches, messages
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.ranges import task_refusals
from peeklock_pipeline.refusals import BadLake, ServerUnavailable
from peeklock_pipeline.sending import http_client, problem_text
from peeklock_pipeline.tables import ExportPosition, export_position_of
from peeklock_pipeline.transforms import audit as ask

REQUEST_BATCHES = 100
PAGE_BATCHES = 1000
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

    def batches(self) -> Iterator[Batch]:
        """Yield every batch that the server knows."""
        cursor: str | None = None
        while True:
            page = self._call(
                "GET", "/v1/archive/batches", {"limit": PAGE_BATCHES} | ({"cursor": cursor} if cursor else {})
            )
            yield from (_batch(item) for item in page["items"])
            if (cursor := page["next_cursor"]) is None:
                return

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


def trim(
    spark: SparkSession, server: Server, lake: Lake, older_than: timedelta, progress: Progress = no_progress
) -> TrimResult:
    """Have the server remove batches older than `older_than` for which the lake holds the messages that were sealed.

    The job may crash anywhere and be repeated. Refuses with `ServerUnavailable` and `BadLake`.
    """
    table = lake.archive_table()
    mark = export_position_of(table)
    known = list(server.batches())
    if mark not in [ExportPosition(batch.number, batch.sealed_at) for batch in known]:
        raise BadLake(f"This lake holds another archive than this server's, which has no batch {mark.number} like it.")
    until = int((datetime.now(UTC) - older_than).timestamp() * 1_000_000)
    wanted = [
        batch
        for batch in known
        if batch.removed_at is None and batch.number <= mark.number and batch.sealed_at <= until
    ]
    with task_refusals():
        archive = lake.read_version(spark, table)
        found = ask.batches(ask.archived_rows(archive), ask.archived_events(archive)).collect()
        gone = {row.export_batch for row in lake.removed(spark, table).select("export_batch").distinct().collect()}
    here = {row.number: batch_contents(row) for row in found if not row.changed}
    results = {batch.number: REMOVED if batch.number in gone else DIFFERS for batch in wanted}
    proven = [
        batch for batch in wanted if batch.number not in gone and here.get(batch.number, NO_CONTENTS).proves(batch)
    ]
    for start in range(0, len(proven), REQUEST_BATCHES):
        progress(start, len(proven))
        results |= _trimmed(server, proven[start : start + REQUEST_BATCHES])
    return TrimResult([TrimmedBatch(batch.number, batch.rows, results[batch.number]) for batch in wanted])


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
