"""Changes to a queue's settings: a merge patch (RFC 7396), where null restores the default."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from app.domain.queue import QueueSettings, QueueStatus
from app.wire.field_types import DelaySeconds, LockSeconds, TtlSeconds
from app.wire.queues import (
    DeliveryLimit,
    DuplicateWindow,
    MessageBytes,
    MessageLimit,
    QueueDescription,
    QueueSettingsBody,
    Retention,
    settings_body,
)
from app.wire.retry import DelayList, Factor, Jitter

RetryKind: TypeAlias = Literal["none", "fixed", "linear", "exponential", "list"]


class RetryPatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes to a retry policy. Another `kind` replaces the policy; otherwise omitted fields stay unchanged."""

    kind: RetryKind | UnsetType = UNSET
    delay_seconds: DelaySeconds | UnsetType | None = UNSET
    first_seconds: DelaySeconds | UnsetType | None = UNSET
    step_seconds: DelaySeconds | UnsetType | None = UNSET
    max_seconds: DelaySeconds | UnsetType | None = UNSET
    factor: Factor | UnsetType | None = UNSET
    jitter: Jitter | UnsetType | None = UNSET
    delays_seconds: DelayList | UnsetType | None = UNSET


class QueuePatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes to a queue's settings: omitted fields stay unchanged, null restores the default."""

    lock_duration_seconds: LockSeconds | UnsetType | None = UNSET
    max_delivery_count: DeliveryLimit | UnsetType | None = UNSET
    default_ttl_seconds: TtlSeconds | UnsetType | None = UNSET
    dead_letter_on_expiry: bool | UnsetType | None = UNSET
    duplicate_detection_window_seconds: DuplicateWindow | UnsetType | None = UNSET
    retry: RetryPatch | UnsetType | None = UNSET
    archive_retention_seconds: Retention | UnsetType | None = UNSET
    max_message_bytes: MessageBytes | UnsetType | None = UNSET
    max_messages: MessageLimit | UnsetType | None = UNSET
    status: QueueStatus | UnsetType | None = UNSET
    description: QueueDescription | UnsetType | None = UNSET


def apply_patch(settings: QueueSettings, patch: QueuePatch) -> QueueSettings:
    """Return the settings with the patch merged in.

    Raises `msgspec.ValidationError`, with the path of the field, if the merged settings are not valid.
    """
    before: dict[str, Any] = msgspec.to_builtins(settings_body(settings))
    changes: dict[str, Any] = msgspec.to_builtins(patch)
    if isinstance(patch.retry, RetryPatch) and patch.retry.kind not in (UNSET, before["retry"]["kind"]):
        # The other kind does not have the fields of this one, so a plain merge would never be valid.
        before["retry"] = {}
    return msgspec.convert(_merge(before, changes), QueueSettingsBody).settings()


def _merge(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    after = dict(before)
    for name, change in changes.items():
        if change is None:
            after.pop(name, None)
        elif isinstance(change, Mapping):
            after[name] = _merge(after.get(name, {}), cast("Mapping[str, Any]", change))
        else:
            after[name] = change
    return after
