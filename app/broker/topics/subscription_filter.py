"""The filters of subscriptions, which are evaluated before a message is stored."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from app.broker.filtering.filters import FilterInput, Predicate, check_length, compile_expression
from app.domain.filter_expression import BodyMember, MemberUse, parse_expression
from app.domain.message import MessageMetadata, MessageState
from app.domain.refusals import invalid_at
from app.domain.sending import NewMessage
from app.domain.topic import SENT_FIELDS

_MAX_COMPILED = 4096
"""Compiled filters of the topics in use. Each takes about 2 KiB, at most 50 KiB."""


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """A compiled filter: whether it matches a message, and whether it reads the body of one."""

    matches: Predicate
    reads_body: bool


def check_filter(source: str | None, pointer: str = "/filter") -> None:
    """Refuse with `InvalidRequest` a text that is no filter, may cost too much, or reads what a sender does not decide."""
    if source is None:
        return
    check_length(source, pointer)
    try:
        compiled(source)
    except ValueError as error:
        raise invalid_at(pointer, str(error)) from error


@lru_cache(_MAX_COMPILED)
def compiled(source: str | None) -> SubscriptionFilter:
    """Compile the filter of a subscription; None matches every message. Raises `ValueError` with a full sentence."""
    if source is None:
        return SubscriptionFilter(_match_all, reads_body=False)
    expression = parse_expression(source)
    unknown = sorted(expression.fields - SENT_FIELDS)
    if unknown:
        raise ValueError(
            f"The filter of a subscription is evaluated before a message is stored, so it cannot read "
            f"message.{unknown[0]}. It can read {', '.join(sorted(SENT_FIELDS))}."
        )
    _check_members(expression.body_members)
    return SubscriptionFilter(compile_expression(expression), reads_body=bool(expression.body_members))


def _check_members(members: Iterable[BodyMember]) -> None:
    """Raise `ValueError` for a filter that compares the whole body, which no such filter would match."""
    if any(not member.names and member.use is not MemberUse.ENTRIES for member in members):
        raise ValueError(
            "A filter reads members of a body that is a JSON object, as in message.body.order.total or 'total' in message.body."
        )


def input_of(new_message: NewMessage) -> FilterInput:
    """Return a message that is not stored yet, as filters read it: only its `SENT_FIELDS` have a meaning.

    Bodies of all kinds are read, because a sender of text or bytes may send JSON too.
    """
    metadata = MessageMetadata(
        sequence_number=0,
        queue_id=0,
        envelope=new_message.envelope,
        body_bytes=len(new_message.body),
        state=MessageState.AVAILABLE,
        priority=new_message.priority,
        enqueued_at=0,
        available_at=0,
        expires_at=None,
        delivery_count=0,
        failure_count=0,
        lock_token=None,
        first_delivered_at=None,
        last_failure=None,
        dead_letter_reason=None,
        dead_letter_description=None,
        dead_lettered_at=None,
    )
    return FilterInput(metadata, new_message.body)


def _match_all(_message: FilterInput) -> bool:
    return True
