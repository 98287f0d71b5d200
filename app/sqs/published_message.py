"""A message that is published through SNS becomes a message of the broker."""

import msgspec
from msgspec.structs import replace

from app.domain.json_depth import is_too_deep
from app.domain.refusals import InvalidRequest
from app.domain.sending import NewMessage
from app.sqs.new_message import FifoRules, new_message
from app.sqs.shapes.messages import SentMembers
from app.sqs.shapes.topics import PublishedMembers
from app.sqs.xml_text import xml_bytes

MAX_SUBJECT_LENGTH = 100
"""Characters of a Subject, as in SNS."""
_JSON = "json"


class _StructuredMessage(msgspec.Struct):
    """The texts that a queue can get, of which it gets that of `sqs`. Texts for other protocols are not decoded."""

    default: str
    sqs: str | None = None


def published_message(members: PublishedMembers, fifo: FifoRules | None) -> NewMessage:
    """Return the message of a publisher, for a FIFO topic with these rules or, without rules, for a standard topic.

    Refuses as `new_message` does, and with `InvalidRequest` a malformed Subject or MessageStructure.
    """
    sent = SentMembers(
        message_body=_text_for_queues(members),
        message_attributes=members.message_attributes,
        message_deduplication_id=members.message_deduplication_id,
        message_group_id=members.message_group_id,
    )
    message = new_message(sent, fifo)
    if members.subject is None:
        return message
    _check_subject(members.subject)
    envelope = message.envelope
    headers = replace(envelope.headers, subject=members.subject)
    return replace(message, envelope=replace(envelope, headers=headers))


def _text_for_queues(members: PublishedMembers) -> str:
    """Return the text of a message that queues get: with MessageStructure `json` that for them, or else the default one."""
    if not members.message:
        raise InvalidRequest("The Message of a publish is not empty.")
    if members.message_structure is None:
        return members.message
    if members.message_structure != _JSON:
        raise InvalidRequest(f"MessageStructure is {_JSON}, or is left out.")
    raw = members.message.encode()
    try:
        texts = None if is_too_deep(raw) else msgspec.json.decode(raw, type=_StructuredMessage)
    except msgspec.DecodeError:
        texts = None
    if texts is None:
        raise InvalidRequest(
            "With MessageStructure json, Message is a JSON object whose members default and sqs are texts."
        )
    text = texts.default if texts.sqs is None else texts.sqs
    if not text:
        raise InvalidRequest("With MessageStructure json, the text for queues is not empty.")
    return text


def _check_subject(subject: str) -> None:
    has_controls = any(character < " " or character == "\x7f" for character in subject)
    if not 1 <= len(subject) <= MAX_SUBJECT_LENGTH or has_controls or xml_bytes(subject) is None:
        raise InvalidRequest(f"A Subject has 1 to {MAX_SUBJECT_LENGTH} characters, none a control character.")
