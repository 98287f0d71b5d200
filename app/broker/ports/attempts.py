"""Tries of requests with an Idempotency-Key, whose first result the store keeps."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from app.domain.instant import Duration

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a request that carries an Idempotency-Key.

    `key` (32 bytes) identifies principal, operation, queue and Idempotency-Key; `fingerprint` (32 bytes) the payload.
    """

    key: bytes
    fingerprint: bytes
    retention: Duration


class AttemptResult(msgspec.Struct, Generic[Result], frozen=True):
    """The result of a request, and whether it is the stored result of an earlier try of its attempt."""

    result: Result
    replayed: bool
