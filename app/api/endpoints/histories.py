"""Histories over HTTP: what happened to a message."""

from app.api.endpoints.messages import MESSAGE, cursor_of, sequence_number_of
from app.broker.administration.history import read_history
from app.domain.access import Right
from app.domain.refusals import MessageNotFound, QueueNotFound
from app.http.operation import operation
from app.http.request import Request
from app.http.response import Response
from app.wire.field_types import Page
from app.wire.history import MAX_HISTORY_PAGE_BYTES, HistoryPage, history_page


@operation(
    "GET", MESSAGE + "/history", right=Right.BROWSE, tag="messages",
    responses={200: HistoryPage}, refusals=(QueueNotFound, MessageNotFound), query=Page, answer_bytes=MAX_HISTORY_PAGE_BYTES,
)  # fmt: skip
async def read_message_history(request: Request[None]) -> Response:
    """List what happened to a message, in order, also after it has ended. Nothing is locked, counted or changed.

    Only a queue with the setting `history` records events. A message that was redriven to another queue has its history
    there. Events are kept for `archive_retention_seconds` after the last one, at least for an hour, and as long as the
    message is in a queue. A message without recorded events has an empty list.
    """
    query: Page = request.query
    found, more = await read_history(
        request.broker.reading_history,
        await request.queue(),
        sequence_number_of(request),
        cursor_of(query),
        query.limit,
    )
    return Response(history_page(found, more))
