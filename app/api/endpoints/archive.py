"""The archive over HTTP, for whoever copies it: sealed batches listed, and removed once a copy is proven."""

from app.api.http.operation import operation
from app.api.http.request import Request, invalid_cursor
from app.api.http.response import Response
from app.broker.trim import trim
from app.domain.access import Right
from app.wire.archive import ArchiveTrimmed, BatchPage, BrowseBatches, TrimArchive, archive_trimmed, batch_page
from app.wire.field_types import MAX_INT64

ARCHIVE = "/v1/archive"


@operation(
    "GET", ARCHIVE + "/batches", right=Right.BROWSE, tag="archive",
    responses={200: BatchPage}, refusals=(422,), query=BrowseBatches,
)  # fmt: skip
async def list_batches(request: Request[None]) -> Response:
    """List the sealed batches of the archive by number, also those whose messages were removed within a year."""
    query: BrowseBatches = request.query
    after = max(query.after, _batch_number(query.cursor))
    batches = await request.broker.store.archive.list_batches(after, query.limit + 1)
    return Response(batch_page(batches, query.limit))


@operation(
    "POST", ARCHIVE + "/trim", right=Right.MANAGE, tag="archive",
    body=TrimArchive, responses={200: ArchiveTrimmed}, refusals=(422,),
    example={"batches": [{"number": 1, "row_count": 2, "digest": "6d" * 32}]},
)  # fmt: skip
async def trim_archive(request: Request[TrimArchive]) -> Response:
    """Remove sealed batches before their time, because there is a copy of them elsewhere.

    A batch goes only where the number and the digest of its messages are those of the copy, and the last of them
    ended at least an hour ago. The answer comes no later than a long poll's: batches that were not reached by then
    are not in it, and can be asked for again.
    """
    copies = request.body.copies()
    return Response(archive_trimmed(copies, await trim(request.broker, copies, request.context.long_poll_cap_seconds)))


def _batch_number(cursor: str | None) -> int:
    """Where a page begins. Refuses with `InvalidRequest` what was never a cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and int(cursor) <= MAX_INT64):
        raise invalid_cursor()
    return int(cursor)
