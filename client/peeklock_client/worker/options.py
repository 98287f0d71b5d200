"""How a worker treats the messages of one queue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TypedDict

from peeklock_client.client import Source
from peeklock_client.worker.retry import Retry


class AckPolicy(Enum):
    """How a worker settles a message (S2.5). A settlement that the handler makes with its `ReceiveContext` takes precedence."""

    ACK_FIRST = "ack_first"
    """Completed before the handler is called: processed at most once."""

    ACK = "ack"
    """Completed after the handler, even if it raises."""

    NACK_ON_ERROR = "nack_on_error"
    """Completed, or retried by the retry strategy if the handler raises."""

    REJECT_ON_ERROR = "reject_on_error"
    """Completed, or dead-lettered if the handler raises."""

    MANUAL = "manual"
    """Settled by the handler alone. A message that it does not settle is received again when its lock ends."""


@dataclass(frozen=True, slots=True)
class SubscriberOptions:
    """The options of one handler.

    At most `max_workers` handlers run at a time, for all queues of a declaration together. A handler that returns messages
    counts until they are stored. One request receives at most `fetch_batch_size` messages, and at most `overfetch_factor`
    times as many wait in this process (S2.15). A receive waits up to `wait_seconds` on the server for messages. After an answer
    with as many messages as were asked for, the next receive starts after `min_fetch_interval` seconds, otherwise after
    `max_fetch_interval` (S2.16). While the bodies of the messages in hand have `max_bytes` or more, none is received. One answer
    may exceed `max_bytes`, by no more than `PEEKLOCK_MAX_ANSWER_BYTES` of the server, or by a single message that is larger.
    `lock_seconds` is the length of a lock, which is renewed at half of it; the default is the setting of the queue. A message
    that was delivered more than `max_deliveries` times is dead-lettered without being processed. With `sequential_groups`,
    messages with the same `group_id` are processed one after the other. Settlements wait up to `flush_seconds` to share a
    request.

    With a `receiver_id`, the worker receives at its start what an earlier one held under the same id (S1.66). Each worker of a
    queue needs an id of its own: a worker that starts takes the messages of another one with its id.
    """

    ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    retry: Retry | None = None
    max_workers: int = 10
    fetch_batch_size: int = 50
    overfetch_factor: float = 1.5
    max_bytes: int = 64 << 20
    wait_seconds: float = 20.0
    min_fetch_interval: float = 0.0
    max_fetch_interval: float = 0.01
    lock_seconds: float | None = None
    max_deliveries: int | None = None
    sequential_groups: bool = True
    flush_seconds: float = 0.01
    filter: str | None = None
    source: Source = "queue"
    receiver_id: str | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for an option that no worker can obey. NaN fails every comparison."""
        needs = {
            "max_workers >= 1": self.max_workers >= 1,
            "fetch_batch_size from 1 to 1000": 1 <= self.fetch_batch_size <= 1000,
            "a finite overfetch_factor >= 1": 1 <= self.overfetch_factor < math.inf,
            "max_bytes >= 1": self.max_bytes >= 1,
            "a finite wait_seconds >= 0": 0 <= self.wait_seconds < math.inf,
            "flush_seconds >= 0": self.flush_seconds >= 0,
            "min_fetch_interval >= 0": self.min_fetch_interval >= 0,
            "max_fetch_interval >= min_fetch_interval": self.max_fetch_interval >= self.min_fetch_interval,
            "a finite lock_seconds > 0": self.lock_seconds is None or 0 < self.lock_seconds < math.inf,
            "max_deliveries >= 1": self.max_deliveries is None or self.max_deliveries >= 1,
            "a receiver_id that is not empty": self.receiver_id != "",
        }
        for need, is_met in needs.items():
            if not is_met:
                raise ValueError(f"A worker needs {need}.")

    @property
    def capacity(self) -> int:
        """The number of messages that may wait for a handler (S2.15)."""
        return int(self.fetch_batch_size * self.overfetch_factor)


class SubscriberFields(TypedDict, total=False):
    """The fields of `SubscriberOptions` that a decorator takes by name."""

    ack_policy: AckPolicy
    retry: Retry | None
    max_workers: int
    fetch_batch_size: int
    overfetch_factor: float
    max_bytes: int
    wait_seconds: float
    min_fetch_interval: float
    max_fetch_interval: float
    lock_seconds: float | None
    max_deliveries: int | None
    sequential_groups: bool
    flush_seconds: float
    filter: str | None
    source: Source
    receiver_id: str | None
