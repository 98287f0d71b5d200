"""The table of settlements: each request of a lock holder, and the verb that it calls."""

from typing import assert_never

import msgspec

from app.broker.settling.outcomes import Abandonment, abandon, complete, dead_letter, defer, release
from app.broker.settling.settle import SettlementRequest
from app.domain.instant import from_seconds
from app.domain.queue import Queue
from app.domain.settlement import LockToken
from app.http.settling import LockRenewal
from app.wire.field_types import PropertyValue
from app.wire.properties import decode_properties
from app.wire.settlements import (
    AbandonAction,
    CompleteAction,
    DeadLetterAction,
    DeferAction,
    ReleaseAction,
    RenewLock,
    SettleAction,
)


def settlement_request(queue: Queue, token: LockToken, body: SettleAction) -> SettlementRequest:
    """Return the settlement that the holder of this lock asks for. Refuses with `InvalidRequest`."""
    match body:
        case CompleteAction():
            return complete(queue, token, None if body.reply is msgspec.UNSET else bytes(body.reply))
        case AbandonAction():
            delay = None if body.delay_seconds is None else from_seconds(body.delay_seconds)
            return abandon(queue, token, Abandonment(body.reason, body.count, delay, _property_changes(body)))
        case DeadLetterAction():
            return dead_letter(queue, token, body.reason, body.description, _property_changes(body))
        case DeferAction():
            return defer(queue, token, _property_changes(body))
        case ReleaseAction():
            return release(queue, token)
        case _:
            assert_never(body)


def lock_renewal(token: LockToken, body: RenewLock) -> LockRenewal:
    """Return the renewal that the holder of this lock asks for."""
    return LockRenewal(token, None if body.lock_seconds is None else from_seconds(body.lock_seconds), body.exact)


def _property_changes(body: AbandonAction | DeadLetterAction | DeferAction) -> dict[str, PropertyValue] | None:
    return decode_properties(body.properties, str)
