"""What every endpoint of one server shares."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.broker.access.keys import Authenticator
from app.broker.broker import Broker
from app.http.metrics import Metrics
from app.http.metrics_page import MetricsPage
from app.runtime.byte_budget import ByteBudget


@dataclass(frozen=True, slots=True)
class AppContext:
    """The broker, authenticator, metrics and limits of one server.

    `authenticator` None means that every client has every right. `is_draining` returns whether the server is about to
    stop. `is_loopback` is true if only this machine reaches the server. `request_budget` bounds the bytes of request
    bodies in memory, and `response_budget` those of responses. With `metrics_per_queue`, `/metrics` names queues to the bearer of `metrics_key` and of an API key
    that may browse every queue. `guide_dir` has the site of the documentation, if the server shows it, and `has_console` says
    whether it has a console. SQS secrets of API keys are derived from `sqs_secret`; without one keys have none. `allowed_origins` are the other sites whose pages may use the server.
    """

    broker: Broker
    authenticator: Authenticator | None
    metrics: Metrics
    max_request_bytes: int
    long_poll_cap_seconds: float
    is_draining: Callable[[], bool]
    request_budget: ByteBudget
    response_budget: ByteBudget
    metrics_page: MetricsPage
    metrics_key: str | None = None
    metrics_per_queue: bool = True
    is_loopback: bool = False
    allowed_origins: frozenset[bytes] = frozenset()
    guide_dir: Path | None = None
    has_console: bool = False
    sqs_secret: str | None = None
