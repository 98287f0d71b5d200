"""The attribute RedrivePolicy: a JSON text with the queue that takes dead letters, and the receives before that."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from app.domain.queue import MAX_DELIVERY_LIMIT, QueueSettings
from app.domain.refusals import InvalidRequest
from app.sqs.errors import InvalidAttributeValue
from app.sqs.queue_names import arn_of, is_fifo, name_of_arn
from app.sqs.setting_texts import whole_number

REDRIVE_POLICY: Final = "RedrivePolicy"
MAX_RECEIVES = 1000
"""The largest maxReceiveCount of a request. It limits no other setting: a policy made in another way can have more."""


class _RedrivePolicy(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    dead_letter_target_arn: str
    max_receive_count: int | str


_decoder = msgspec.json.Decoder(_RedrivePolicy)


def redrive_target(attributes: Mapping[str, str]) -> str | None:
    """Return the queue to which these attributes send dead letters, None if to no queue.

    Refuses with `InvalidAttributeValue` a malformed policy. The queue need not exist.
    """
    return _parsed(attributes.get(REDRIVE_POLICY, "")).forward_dead_letters_to


def with_redrive_policy(settings: QueueSettings, name: str, policy: str) -> QueueSettings:
    """Return the settings of this queue with another policy; an empty one removes it.

    Refuses with `InvalidAttributeValue` a malformed policy, and with `InvalidRequest` a target that is a FIFO queue if this
    queue is none, or the other way round.
    """
    parsed = _parsed(policy)
    target = parsed.forward_dead_letters_to
    if target is not None and is_fifo(target) != is_fifo(name):
        raise InvalidRequest(
            "The dead-letter queue of a FIFO queue is a FIFO queue, and that of a standard queue is none."
        )
    return replace(settings, forward_dead_letters_to=target, max_delivery_count=parsed.max_delivery_count)


def redrive_policy(settings: QueueSettings, region: str) -> str | None:
    """Return the policy of these settings as JSON, None if dead letters stay in their queue."""
    target = settings.forward_dead_letters_to
    if target is None:
        return None
    return msgspec.json.encode(_RedrivePolicy(arn_of(target, region), settings.max_delivery_count)).decode()


def _parsed(policy: str) -> QueueSettings:
    """Return settings of which only the two of the policy count."""
    if not policy:
        return QueueSettings(max_delivery_count=MAX_DELIVERY_LIMIT)
    try:
        given = _decoder.decode(policy)
        target = name_of_arn(given.dead_letter_target_arn)
    except (msgspec.MsgspecError, InvalidRequest) as malformed:
        raise InvalidAttributeValue(
            f"{REDRIVE_POLICY} must be JSON with a deadLetterTargetArn, which is the ARN of a queue, a maxReceiveCount and "
            "nothing else."
        ) from malformed
    count = whole_number("maxReceiveCount", str(given.max_receive_count), 1, MAX_RECEIVES)
    return QueueSettings(forward_dead_letters_to=target, max_delivery_count=count)
