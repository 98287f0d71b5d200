"""The filters of subscriptions, which are evaluated before a message is stored."""

from functools import lru_cache

from app.broker.filtering.filters import FilterInput, Predicate, check_length, compile_expression
from app.domain.filter_expression import parse_expression
from app.domain.message import MessageMetadata, MessageState
from app.domain.refusals import invalid_at
from app.domain.sending import NewMessage
from app.domain.topic import SENT_FIELDS

_MAX_COMPILED = 4096
"""Compiled filters of the topics in use. Each takes about 2 KiB, at most 20 KiB."""


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
def compiled(source: str | None) -> Predicate:
    """Compile the filter of a subscription; None matches every message. Raises `ValueError` with a full sentence."""
    if source is None:
        return _match_all
    expression = parse_expression(source)
    unknown = sorted(expression.fields - SENT_FIELDS)
    if unknown:
        raise ValueError(
            f"The filter of a subscription is evaluated before a message is stored, so it cannot read "
            f"message.{unknown[0]}. It can read {', '.join(sorted(SENT_FIELDS))}."
        )
    return compile_expression(expression)


def input_of(new_message: NewMessage) -> FilterInput:
    """Return a message that is not stored yet, as filters read it: only its `SENT_FIELDS` have a meaning."""
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
    return FilterInput(metadata)


def _match_all(_message: FilterInput) -> bool:
    return True
