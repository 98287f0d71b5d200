"""The archive over HTTP: list sealed batches, and remove those that were copied elsewhere."""

from app.broker.administration.archive import trim
from app.domain.access import Right
from app.http.operation import operation
from app.http.request import Request, invalid_cursor
from app.http.response import Response
from app.wire.archive import ArchiveTrimmed, BatchPage, BrowseBatches, TrimArchive, archive_trimmed, batch_page
from app.wire.field_types import MAX_INT64

ARCHIVE = "/v1/archive"


@operation(
    "GET", ARCHIVE + "/batches", right=Right.BROWSE, tag="archive",
    responses={200: BatchPage}, query=BrowseBatches,
)  # fmt: skip
async def list_batches(request: Request[None]) -> Response:
    """List the sealed batches of the archive by number, including batches whose messages were removed within a year."""
    query: BrowseBatches = request.query
    after = max(query.after, _batch_number(query.cursor))
    batches = await request.broker.store.archive.list_batches(after, query.limit + 1)
    return Response(batch_page(batches, query.limit))


@operation(
    "POST", ARCHIVE + "/trim", right=Right.MANAGE, tag="archive",
    body=TrimArchive, responses={200: ArchiveTrimmed},
    example={"batches": [{"number": 1, "row_count": 2, "digest": "6d" * 32}]},
)  # fmt: skip
async def trim_archive(request: Request[TrimArchive]) -> Response:
    """Remove sealed batches that were copied elsewhere before their retention ends.

    A batch is removed only if the number and the digest of its messages match the copy, and its last message ended at
    least an hour ago. The answer takes no longer than that of a long poll. Batches that were not reached by then are
    missing from it; send them again.
    """
    copies = request.body.copies()
    return Response(
        archive_trimmed(
            copies, await trim(request.broker.administration, copies, request.context.long_poll_cap_seconds)
        )
    )


def _batch_number(cursor: str | None) -> int:
    """Return the number after which a page begins. Refuses with `InvalidRequest` a text that is no cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and int(cursor) <= MAX_INT64):
        raise invalid_cursor()
    return int(cursor)
