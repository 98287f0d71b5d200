"""Consumers of a queue in requests and responses."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from app.domain.consumer import (
    MAX_PAUSE_REASON_LENGTH,
    MAX_REPORT_TTL,
    MAX_TARGET_LENGTH,
    MIN_REPORT_TTL,
    ConsumerReport,
    ConsumerState,
    ListedConsumer,
)
from app.domain.instant import Duration, from_seconds, to_seconds
from app.domain.refusals import invalid_at
from app.wire.field_types import END_OF_TEXT, Timestamp, text_of
from app.wire.times import to_wire

DEFAULT_TTL_SECONDS = 60.0
STATES: Final = {"receiving": ConsumerState.RECEIVING, "paused": ConsumerState.PAUSED}

ConsumerStateName: TypeAlias = Literal["receiving", "paused"]
SHOWN = r"[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
"""Characters of a text that is shown in one line: no control characters, and none that change the direction of the text."""

PauseReason: TypeAlias = Annotated[str, text_of(SHOWN, min_length=1, max_length=MAX_PAUSE_REASON_LENGTH)]
TargetUrl: TypeAlias = Annotated[
    str,
    msgspec.Meta(pattern=rf"^https?://[!-~]+{END_OF_TEXT}", max_length=MAX_TARGET_LENGTH),
]
ReportTtl: TypeAlias = Annotated[float, msgspec.Meta(ge=to_seconds(MIN_REPORT_TTL), le=to_seconds(MAX_REPORT_TTL))]


class ReportConsumer(msgspec.Struct, forbid_unknown_fields=True):
    """What a consumer says about itself."""

    state: ConsumerStateName
    reason: PauseReason | None = None
    target: TargetUrl | None = None
    ttl_seconds: ReportTtl = DEFAULT_TTL_SECONDS

    def report(self, consumer: str, principal: str) -> ConsumerReport:
        """Return the report of this consumer. Refuses with `InvalidRequest`."""
        if self.state == "paused" and self.reason is None:
            raise invalid_at("/reason", "A consumer that is paused needs a reason.")
        if self.reason is not None and not self.reason.strip():
            raise invalid_at("/reason", "A reason is not blank.")
        if self.state != "paused" and self.reason is not None:
            raise invalid_at("/reason", "Only a consumer that is paused has a reason.")
        if self.target is not None and has_secret_part(self.target):
            raise invalid_at("/target", "A target has no user, password, query or fragment, because it is shown.")
        return ConsumerReport(consumer, principal, STATES[self.state], self.reason or "", self.target)

    def ttl(self) -> Duration:
        """Return how long the report is valid."""
        return from_seconds(self.ttl_seconds)


class ConsumerView(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A consumer, as it has last reported itself."""

    consumer: str
    principal: str
    state: ConsumerStateName
    reason: str | None = None
    target: str | None = None
    first_reported_at: Timestamp
    state_since: Timestamp
    reported_at: Timestamp


class ConsumerList(msgspec.Struct):
    """The consumers of a queue by name."""

    items: list[ConsumerView]


def has_secret_part(url: str) -> bool:
    """Return whether a URL has a part that may contain a secret: a user, a query or a fragment."""
    authority = url.partition("//")[2].partition("/")[0]
    return "@" in authority or "?" in url or "#" in url


def consumer_view(listed: ListedConsumer) -> ConsumerView:
    """Build the JSON of a consumer."""
    report = listed.report
    return ConsumerView(
        consumer=report.consumer,
        principal=report.principal,
        state=report.state.value,
        reason=report.reason or None,
        target=report.target,
        first_reported_at=to_wire(listed.first_reported_at),
        state_since=to_wire(listed.state_since),
        reported_at=to_wire(listed.reported_at),
    )
