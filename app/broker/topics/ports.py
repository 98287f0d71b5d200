"""What topics and publishes use."""

from dataclasses import dataclass

from app.broker.ports.notifier import Counters, Notifier
from app.broker.ports.topics import TopicStore
from app.broker.sending.ports import SendingPorts
from app.broker.topics.topic_cache import TopicCache
from app.runtime.byte_budget import ByteBudget
from app.runtime.round_robin_gate import RoundRobinGate


@dataclass(frozen=True, slots=True)
class TopicPorts:
    """What topics and publishes use.

    `budget` bounds the bytes of the copies that publishes hold. All publishes of a process, and the tests of
    subscriptions, share the `gate`, so that many of them leave time for other requests.
    """

    store: TopicStore
    sending: SendingPorts
    topic_cache: TopicCache
    notifier: Notifier
    counters: Counters
    budget: ByteBudget
    gate: RoundRobinGate
