"""Random histories with a topic: a publish has the effect of one send for each subscription that matches, or none.

Both subscriptions copy to the queue under test, one through a queue that forwards, the other through a chain of two. The
queues that forward have a default delay, which has no effect.
"""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from app.broker.administration.queues import put_queue
from app.broker.sending.send import send
from app.broker.topics.publish import publish
from app.broker.topics.topics import Collection, all_topics, change, put, subscriptions_of
from app.domain.message import Envelope, MessageState
from app.domain.queue import QueueSettings
from app.domain.sending import NewMessage
from app.domain.topic import Published, Subscription, SubscriptionSettings, TopicSettings
from tests.broker.histories import NAME, delays, groups, keys, priorities
from tests.broker.short_forms import ATTEMPT_RETENTION, TIME_UNIT, attempt, in_time_units
from tests.broker.unit_histories import UnitHistories
from tests.brokers import result_of

TOPIC = "events"
EVERY = SubscriptionSettings("near")
HIGH = SubscriptionSettings("far", filter="message.priority >= 5")
LOWEST_PRIORITIES = (5, 8)
"""The lowest priority that the filter of the second subscription matches. It begins with the first of these."""


class PublishHistories(UnitHistories):
    """The histories of queues, and publishes and forwarded sends among them."""

    def create_queues(self) -> None:
        """Create the queues that forward, and the topic with its subscriptions, too."""
        super().create_queues()
        for name, target in (("near", NAME), ("far", "near")):
            self.run(
                put_queue(
                    self.broker.administration, name, QueueSettings(forward_to=target, default_delay=5 * TIME_UNIT)
                )
            )
        topic, _ = self.run(put(all_topics(self.broker.topics), TOPIC, TopicSettings()))
        self.subscriptions: Collection[Subscription, SubscriptionSettings] = subscriptions_of(self.broker.topics, topic)
        self.run(put(self.subscriptions, "every", EVERY))
        self.run(put(self.subscriptions, "high", HIGH))
        self.lowest_priority = LOWEST_PRIORITIES[0]

    @rule(lowest=st.sampled_from(LOWEST_PRIORITIES))
    def change_a_subscription(self, lowest: int) -> None:
        settings = replace(HIGH, filter=f"message.priority >= {lowest}")
        self.run(change(self.subscriptions, "high", lambda _: settings))
        self.lowest_priority = lowest

    @rule(
        published=st.lists(priorities, min_size=1, max_size=2),
        delay=delays,
        ttl=st.sampled_from([None, None, 40]),
        group=groups,
    )
    def publish(self, published: list[int], delay: int | None, ttl: int | None, group: str | None) -> None:
        own_delay, time_to_live = in_time_units(delay), in_time_units(ttl)
        new_messages = [
            NewMessage(Envelope("", group_id=group), priority=one, delay=own_delay, ttl=time_to_live)
            for one in published
        ]
        result = self.result_or_code(result_of(publish(self.broker.topics, TOPIC, new_messages)))
        copies = self._copies(published)
        if not self.model.has_room(len(copies)):
            assert result == "queue-full"
            return
        assert not isinstance(result, str)
        self._check_matched(result, published)
        for number, priority in zip(self.new_numbers(), copies, strict=True):
            self.model.sent(number, priority, own_delay, time_to_live, group)

    @rule(key=keys, priority=st.sampled_from([2, 7]))
    def publish_or_replay(self, key: int, priority: int) -> None:
        """A repeat with the same key gets the first result and stores no copy."""
        request = publish(
            self.broker.topics,
            TOPIC,
            [NewMessage(Envelope(""), priority=priority)],
            attempt("publish", key, priority),
        )
        result = self.result_or_code(request)
        copies = self._copies([priority])
        match self.model.earlier_answer("publish", key, priority):
            case None if not self.model.has_room(len(copies)):
                assert result == "queue-full"
            case None:
                assert not isinstance(result, str)
                assert not result.replayed
                self._check_matched(result.result, [priority])
                for number, copy in zip(self.new_numbers(), copies, strict=True):
                    self.model.sent(number, copy, None, None)
                self.model.remember("publish", key, priority, copies, ATTEMPT_RETENTION)
            case str(refusal):
                assert result == refusal
            case earlier:
                assert not isinstance(result, str)
                assert result.replayed
                assert [one.matched for one in result.result] == [len(earlier)]

    @rule(priority=priorities, queue=st.sampled_from(["near", "far"]))
    def send_to_a_queue_that_forwards(self, priority: int, queue: str) -> None:
        named = self.run(self.broker.queue_cache.by_name(queue))
        result = self.result_or_code(
            result_of(send(self.broker.sending, named.name, [NewMessage(Envelope(""), priority=priority)]))
        )
        if not self.model.has_room(1):
            assert result == "queue-full"
            return
        assert not isinstance(result, str)
        self.model.sent(result[0].sequence_number, priority, None, None)

    def new_numbers(self) -> list[int]:
        """Return the numbers of stored messages that the model does not know, ascending."""
        stored = self.run(self.broker.store.browse(self.queue.id, list(MessageState), 0, 1000))
        return sorted({message.sequence_number for message in stored} - self.model.messages.keys())

    def _copies(self, published: Sequence[int]) -> list[int]:
        """Return the priority of each copy, in the order in which they are stored."""
        return [priority for priority in published for _ in range(1 + (priority >= self.lowest_priority))]

    def _check_matched(self, results: Sequence[Published], published: Sequence[int]) -> None:
        assert [one.matched for one in results] == [len(self._copies([priority])) for priority in published]
