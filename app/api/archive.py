"""The archive over HTTP, for whoever copies it: sealed batches listed, and removed once a copy is proven."""

from app.api.desk import Call, wrong_cursor
from app.api.operation import Reply, operation
from app.broker.trim import trim
from app.domain.access import Right
from app.wire.archive import ArchiveTrimmed, BatchPage, BrowseBatches, TrimArchive, archive_trimmed, batch_page
from app.wire.shapes import LARGEST_INT64

ARCHIVE = "/v1/archive"


@operation(
    "GET", ARCHIVE + "/batches", right=Right.BROWSE, tag="archive",
    answers={200: BatchPage}, refusals=(422,), query=BrowseBatches,
)  # fmt: skip
async def list_batches(call: Call[None]) -> Reply:
    """List the sealed batches of the archive by number, also those whose messages were removed within a year."""
    asked: BrowseBatches = call.query
    after = max(asked.after, _place(asked.cursor))
    batches = await call.broker.store.archive.batches(after, asked.limit + 1)
    return Reply(batch_page(batches, asked.limit))


@operation(
    "POST", ARCHIVE + "/trim", right=Right.MANAGE, tag="archive",
    body=TrimArchive, answers={200: ArchiveTrimmed}, refusals=(422,),
    example={"batches": [{"number": 1, "row_count": 2, "digest": "6d" * 32}]},
)  # fmt: skip
async def trim_archive(call: Call[TrimArchive]) -> Reply:
    """Remove sealed batches before their time, because there is a copy of them elsewhere.

    A batch goes only where the number and the digest of its messages are those of the copy, and the last of them
    ended at least an hour ago. The answer comes no later than a long poll's: batches that were not reached by then
    are not in it, and can be asked for again.
    """
    copies = call.body.copies()
    return Reply(archive_trimmed(copies, await trim(call.broker, copies, call.desk.longest_wait_seconds)))


def _place(cursor: str | None) -> int:
    """Where a page begins. Refuses with `InvalidRequest` what was never a cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and int(cursor) <= LARGEST_INT64):
        raise wrong_cursor()
    return int(cursor)
