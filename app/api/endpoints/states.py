"""Versioned states over HTTP: commit a message with one, and read, list and delete them."""

from app.api.endpoints.execution import unit_publish, unit_send
from app.api.endpoints.refusals import UNIT_REFUSALS
from app.broker.administration import states as verbs
from app.broker.transactions.commit import CommitRequest, commit
from app.domain.access import Right
from app.domain.refusals import TopicNotFound
from app.domain.settlement import LockToken
from app.domain.state import MAX_METADATA_BYTES, MAX_VALUE_BYTES
from app.domain.state_refusals import ResultDiffers, StateNotFound, VersionConflict
from app.http.authorize import authorize
from app.http.operation import operation
from app.http.request import Request, commit_attempt, invalid_cursor, invalid_query
from app.http.response import Response
from app.wire.states import (
    MAX_PAGE_SIZE,
    BrowseHistory,
    CommitLock,
    CommittedMessage,
    ReadState,
    StateView,
    VersionPage,
    committed,
    state_view,
    version_view,
)

STATE = "/v1/states/{key}"
_MAX_STATE_BYTES = MAX_VALUE_BYTES + 2 * MAX_METADATA_BYTES
"""Bytes of an answer about one version: its value, its metadata, and what the processing of a duplicate captured."""


@operation(
    "POST", "/v1/queues/{queue}/locks/{lock_token}/commit", right=Right.LISTEN, tag="locks",
    body=CommitLock, responses={200: CommittedMessage}, refusals=(*UNIT_REFUSALS, TopicNotFound, VersionConflict, ResultDiffers), headers=("traceparent",),
    example={
        "sends": [{"queue": "invoices", "body": {"order": 17}}],
        "publishes": [{"topic": "events", "body": {"paid": 17}}],
        "state": {"key": "order.17", "if_version": 3, "value": {"paid": True}},
    },
)  # fmt: skip
async def commit_lock(request: Request[CommitLock]) -> Response:
    """Commit: complete the message, send and publish its results and add a version to a state, all or nothing.

    `if_version` is the version that the processing ran on: load it with `before_message`. If another version is newer,
    the answer is 409 `version-conflict`, and nothing has happened. If the message was processed before, it is completed,
    nothing else changes, and the answer has the results of the first processing. A send or publish without a
    `message_id` gets the id of the processed message, a slash and its index, counted from 0, the sends first. The API
    key needs `listen` on the key of the state and `send` on the queues of the sends and the topics of the publishes. A
    repeat gets the first answer.
    """
    body, broker = request.body, request.broker
    for name in {entry.queue for entry in body.sends} | {entry.topic for entry in body.publishes}:
        authorize(request.principal, Right.SEND, name)
    if body.state is not None:
        authorize(request.principal, Right.LISTEN, body.state.key, "state")
    sends = [unit_send(entry, index, request.traceparent()) for index, entry in enumerate(body.sends)]
    publishes = [unit_publish(entry, index, request.traceparent()) for index, entry in enumerate(body.publishes)]
    state = None if body.state is None else body.state.next_state("/state", verifies=body.state.verify)
    queue, token = await request.queue(), LockToken.parse(request.path["lock_token"])
    attempt = commit_attempt(queue.id, token, request.raw_body)
    done = await commit(broker.transactions, queue, token, CommitRequest(sends, publishes, state), attempt)
    return Response(committed(done.result, replayed=done.replayed))


@operation(
    "GET", STATE, right=Right.LISTEN, tag="states",
    responses={200: StateView}, refusals=(StateNotFound,), query=ReadState, answer_bytes=_MAX_STATE_BYTES,
)  # fmt: skip
async def get_state(request: Request[None]) -> Response:
    """Get the newest version of a state, one of its versions, or the version to process a message on.

    With `before_message`, a message that was processed before gets the version of its first processing, with what that
    processing captured. Any other message gets the newest version. A key without a state has version 0.
    """
    query: ReadState = request.query
    if query.version is not None and query.before_message is not None:
        raise invalid_query("before_message", "Give version or before_message, not both.")
    key = request.path["key"]
    loaded = await verbs.load_state(request.broker.store.states, key, query.version, query.before_message)
    return Response(state_view(key, loaded))


@operation(
    "GET", STATE + "/history", right=Right.BROWSE, tag="states",
    responses={200: VersionPage}, query=BrowseHistory, answer_bytes=MAX_PAGE_SIZE * MAX_METADATA_BYTES,
)  # fmt: skip
async def list_versions(request: Request[None]) -> Response:
    """List the versions of a state that are kept, oldest first, without their values."""
    query: BrowseHistory = request.query
    after = query.after if query.cursor is None else _number(query.cursor)
    listed = await verbs.state_history(request.broker.store.states, request.path["key"], after, query.limit + 1)
    items = listed[: query.limit]
    more = str(items[-1].number) if len(listed) > query.limit else None
    return Response(VersionPage([version_view(item) for item in items], more))


@operation(
    "DELETE", STATE, right=Right.MANAGE, tag="states", responses={204: None}, refusals=(StateNotFound,),
)  # fmt: skip
async def delete_state(request: Request[None]) -> Response:
    """Delete a state with all its versions. Messages that were processed before then count as new."""
    await verbs.delete_state(request.broker.store.states, request.path["key"])
    return Response(status=204)


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise invalid_cursor()
    return int(cursor)
