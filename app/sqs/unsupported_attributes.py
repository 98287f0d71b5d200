"""Attributes that promise what this server does not do: only values that promise nothing are accepted."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from app.sqs.errors import InvalidAttributeValue

_NO_KMS = "This server does not encrypt messages with keys of KMS."
_REASONS: Mapping[str, str] = {
    "Policy": "The rights of API keys say who can use a queue, and only a policy that lets topics send to it is accepted.",
    "KmsMasterKeyId": _NO_KMS,
    "KmsDataKeyReusePeriodSeconds": _NO_KMS,
    "SqsManagedSseEnabled": "This server does not encrypt messages: that is up to the storage of its database.",
    "RedriveAllowPolicy": "This server does not restrict a dead-letter queue to some sources: the right to send to it decides.",
}

_ARN_COMPARISONS = {"ArnEquals", "ArnLike", "StringEquals", "StringLike"}
_OF_SNS = ({"Service": "sns.amazonaws.com"}, {"Service": ("sns.amazonaws.com",)})

UNSUPPORTED_ATTRIBUTES = tuple(_REASONS)
"""The attributes that have no effect."""


class _Statement(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """One statement of a policy. Its texts may be lists."""

    effect: Literal["Allow"]
    action: Literal["sqs:SendMessage", "SQS:SendMessage"] | tuple[Literal["sqs:SendMessage", "SQS:SendMessage"]]
    resource: str | tuple[str]
    principal: Literal["*"] | dict[str, str | tuple[str]]
    condition: dict[str, dict[str, str | tuple[str, ...]]] = msgspec.field(default_factory=dict[str, Any])
    sid: str = ""


class _Policy(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    statement: tuple[_Statement, ...] | _Statement
    version: str = ""
    id: str = ""


class _AllowAll(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    redrive_permission: Literal["allowAll"]


_policy = msgspec.json.Decoder(_Policy)
_allow_all = msgspec.json.Decoder(_AllowAll)


def check_unsupported(attribute: str, value: str) -> None:
    """Refuse with `InvalidAttributeValue` a value that promises something. The sentence says what this server does not do.

    An empty value promises nothing, and neither does no encryption, or a dead-letter queue that is open to all sources. A
    policy that lets only topics send is accepted, because the subscription of a queue lets its topic send to it here.
    """
    if not value or (attribute == "SqsManagedSseEnabled" and value == "false"):
        return
    harmless = _HARMLESS.get(attribute)
    if harmless is None or not harmless(value):
        raise InvalidAttributeValue(f"{attribute} cannot have this value. {_REASONS[attribute]}")


def _lets_topics_send(policy: str) -> bool:
    try:
        statements = _policy.decode(policy).statement
    except msgspec.MsgspecError:
        return False
    return all(map(_is_of_topics, statements if isinstance(statements, tuple) else (statements,)))


def _is_of_topics(statement: _Statement) -> bool:
    """Return whether a statement is about topics alone: by its principal, or by the ARN of the source."""
    if not set(statement.condition) <= _ARN_COMPARISONS:
        return False
    sources: list[str] = []
    for compared in statement.condition.values():
        if {key.lower() for key in compared} != {"aws:sourcearn"}:
            return False
        for arns in compared.values():
            sources += [arns] if isinstance(arns, str) else arns
    if not all(arn.startswith("arn:") and arn.split(":")[2:3] == ["sns"] for arn in sources):
        return False
    return bool(sources) or statement.principal in _OF_SNS


def _allows_all(policy: str) -> bool:
    try:
        _allow_all.decode(policy)
    except msgspec.MsgspecError:
        return False
    return True


_HARMLESS: Mapping[str, Callable[[str], bool]] = {"Policy": _lets_topics_send, "RedriveAllowPolicy": _allows_all}
"""How to tell the values that promise nothing but what holds in any case."""
