"""What every endpoint of one server shares."""

from collections.abc import Callable
from dataclasses import dataclass

from app.api.http.metrics import Metrics
from app.api.http.queue_statistics import QueueStatistics
from app.broker.broker import Broker
from app.broker.keys import Authenticator
from app.runtime.byte_budget import ByteBudget


@dataclass(frozen=True, slots=True)
class AppContext:
    """The broker, the doorkeeper (None: everybody may do everything), the limits of one server and its meters.

    `is_draining` says whether the server is about to stop, `is_loopback` whether only this machine reaches it.
    `requests` counts the bytes of bodies in hand. `metrics_per_queue` says whether any queue is named in the metrics, for the
    bearer of `metrics_key` or of an API key that may.
    """

    broker: Broker
    authenticator: Authenticator | None
    metrics: Metrics
    max_request_bytes: int
    long_poll_cap_seconds: float
    is_draining: Callable[[], bool]
    request_budget: ByteBudget
    queue_statistics: QueueStatistics
    metrics_key: str | None = None
    metrics_per_queue: bool = True
    is_loopback: bool = False
