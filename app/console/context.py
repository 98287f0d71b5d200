"""What every page of the console shares."""

from dataclasses import dataclass

from app.broker.access.keys import Authenticator
from app.broker.access.sessions import Sessions
from app.broker.broker import Broker
from app.console.activity import Activity
from app.console.consumers import PausedConsumers
from app.console.known_visitors import KnownVisitors
from app.console.summaries import Summaries
from app.console.total_plots import PlotsOfAll
from app.http.local_access import LocalAccessPolicy
from app.http.queue_statistics import QueueStatistics
from app.runtime.byte_budget import ByteBudget


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The broker, the sessions and the activity of one server.

    `authenticator` and `sessions` are None where every client has every right. `policy` decides which requests without a
    session are accepted. `time_limit_seconds` is how long an action may take, such as a redrive. `request_budget` bounds the
    bytes of forms. `report_url` is that of a report of the data pipeline. `has_guide` says whether
    the server shows the documentation. SQS secrets of API keys are derived from `sqs_secret`.
    """

    broker: Broker
    authenticator: Authenticator | None
    sessions: Sessions | None
    policy: LocalAccessPolicy
    activity: Activity
    paused: PausedConsumers
    summaries: Summaries
    plots: PlotsOfAll
    statistics: QueueStatistics
    visitors: KnownVisitors
    time_limit_seconds: float
    max_request_bytes: int
    request_budget: ByteBudget
    report_url: str | None = None
    has_guide: bool = False
    sqs_secret: str | None = None
