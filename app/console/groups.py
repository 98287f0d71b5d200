"""The groups of a queue whose messages are blocked, and the message that each stands behind."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.broker.administration.browse import browse
from app.broker.administration.explain import explain_one_message
from app.broker.filtering.filters import MatchAll
from app.console.context import ConsoleContext
from app.domain.explanation import MessageExplanation
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound

MAX_READ = 100
"""Blocked messages that are read, the first by number."""

MAX_GROUPS = 10
"""Groups on the page. Each needs a few statements."""


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """A group with its first blocked message, how many were read, and the message in flight, None if it has just left."""

    group_id: str
    first: int
    count: int
    behind: int | None
    behind_state: str


async def blocked_groups(context: ConsoleContext, queue: Queue, viewer: str) -> list[BlockedGroup]:
    """Return the first groups of a queue that have blocked messages."""
    read, _ = await browse(context.broker.administration, queue, [MessageState.BLOCKED], MatchAll(), 0, MAX_READ)
    by_group: dict[str, list[Message]] = {}
    for message in read:
        by_group.setdefault(message.envelope.group_id or "", []).append(message)
    return [await _group(context, queue, viewer, by_group[group_id]) for group_id in [*by_group][:MAX_GROUPS]]


async def _group(context: ConsoleContext, queue: Queue, viewer: str, blocked: Sequence[Message]) -> BlockedGroup:
    first = blocked[0]
    try:
        explained = await explain_one_message(context.broker.administration, queue, first.sequence_number, viewer)
    except MessageNotFound:
        explained = None
    behind = explained.behind if isinstance(explained, MessageExplanation) else None
    return BlockedGroup(
        first.envelope.group_id or "",
        first.sequence_number,
        len(blocked),
        behind and behind.sequence_number,
        behind.state.label if behind else "",
    )
