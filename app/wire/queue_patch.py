"""Changes to a queue's settings: a merge patch (RFC 7396), where null restores the default."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import fields

from app.domain.queue import QueueSettings
from app.wire.field_types import DelaySeconds
from app.wire.labels import LabelChanges
from app.wire.queues import ForwardDeadLettersTo, ForwardTo, QueueSettingsBody, settings_body
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


Patch = TypeVar("Patch", bound=msgspec.Struct)


def patch_of(body: type[msgspec.Struct]) -> Callable[[type[Patch]], type[Patch]]:
    """Return a decorator that gives a struct all fields of `body`, each optional and nullable.

    A field that the struct declares itself keeps its type.
    """

    def complete(patch: type[Patch]) -> type[Patch]:
        own_types = {field.name: field.type for field in fields(patch)}
        optional_fields = [
            (field.name, own_types.get(field.name, field.type | UnsetType | None), UNSET) for field in fields(body)
        ]
        struct = msgspec.defstruct(
            patch.__name__,
            optional_fields,
            module=patch.__module__,
            namespace={"__doc__": patch.__doc__},
            forbid_unknown_fields=True,
            kw_only=True,
        )
        return cast("type[Patch]", struct)

    return complete


@patch_of(QueueSettingsBody)
class QueuePatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes to a queue's settings: omitted fields stay unchanged, null restores the default."""

    retry: RetryPatch | UnsetType | None = UNSET
    forward_to: ForwardTo | UnsetType | None = UNSET
    forward_dead_letters_to: ForwardDeadLettersTo | UnsetType | None = UNSET
    labels: LabelChanges | UnsetType | None = UNSET


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
