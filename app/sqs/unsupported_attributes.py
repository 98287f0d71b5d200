"""Attributes that promise what this server does not do: only values that promise nothing are accepted."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from app.sqs.errors import InvalidAttributeValue

_NO_KMS = "This server does not encrypt messages with keys of KMS."
_REASONS: Mapping[str, str] = {
    "Policy": "This server has no policies of queues: the rights of API keys say who can use a queue.",
    "KmsMasterKeyId": _NO_KMS,
    "KmsDataKeyReusePeriodSeconds": _NO_KMS,
    "SqsManagedSseEnabled": "This server does not encrypt messages: that is up to the storage of its database.",
    "RedriveAllowPolicy": "This server does not restrict a dead-letter queue to some sources: the right to send to it decides.",
}

UNSUPPORTED_ATTRIBUTES = tuple(_REASONS)
"""The attributes that have no effect."""


class _AllowAll(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    redrive_permission: Literal["allowAll"]


_allow_all = msgspec.json.Decoder(_AllowAll)


def check_unsupported(attribute: str, value: str) -> None:
    """Refuse with `InvalidAttributeValue` a value that promises something. The sentence says what this server does not do.

    An empty value promises nothing, and neither does no encryption, or a dead-letter queue that is open to all sources.
    """
    if not value or (attribute == "SqsManagedSseEnabled" and value == "false"):
        return
    if attribute != "RedriveAllowPolicy" or not _allows_all(value):
        raise InvalidAttributeValue(f"{attribute} cannot have this value. {_REASONS[attribute]}")


def _allows_all(policy: str) -> bool:
    try:
        _allow_all.decode(policy)
    except msgspec.MsgspecError:
        return False
    return True
