"""Random histories with messages that come back: a receiver recovers its own, and a restore brings back what was purged."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import multiple, precondition, rule

from app.broker.administration.restore import restore
from app.broker.administration.select_messages import MessageSelection
from app.broker.receiving.receive import ReceiveRequest
from app.broker.receiving.recover import recover
from tests.broker.histories import VerbHistories, limits, lowest_priorities
from tests.broker.publish_histories import PublishHistories
from tests.broker.short_forms import at_least, token_text

receivers = st.sampled_from(["one", "two"])


class RecoveryHistories(PublishHistories):
    """The histories of queues and topics, and recoveries and restores among them."""

    @precondition(lambda self: self.model.next(1))
    @rule(target=VerbHistories.tokens, most=st.integers(1, 3), receiver=receivers)
    def receive_as(self, most: int, receiver: str) -> Any:
        expected = self.model.next(most)
        tokens = self._receive(ReceiveRequest(max_messages=most, receiver_id=receiver), expected)
        self.model.received_by(receiver, expected)
        return tokens

    @rule(target=VerbHistories.tokens, receiver=receivers, most=st.integers(1, 3))
    def recover(self, receiver: str, most: int) -> Any:
        """The receiver gets the messages that it holds under new tokens, in the order of delivery."""
        expected = self.model.held_by(receiver)[:most]
        messages = self.run(recover(self.broker.receiving, self.queue, receiver, most))
        assert [message.sequence_number for message in messages] == expected
        for message in messages:
            self.model.recovered(message.sequence_number, token_text(message), self.settings.lock_duration)
        return multiple(*map(token_text, messages))

    @precondition(lambda self: self.model.restorable and not self.model.has_orphans_in_doubt)
    @rule(lowest_priority=lowest_priorities, limit=limits)
    def restore(self, lowest_priority: int, limit: int | None) -> None:
        """Purged and cancelled messages are new messages, each once, as many as the queue has room for."""
        if self.model.group_in_flight is not None:
            limit = 1  # messages that their group admits are due after the others of the same statement
        selection = MessageSelection([], at_least(lowest_priority), limit)
        result = self.result_or_code(restore(self.broker.administration, self.queue, selection, since=0))
        chosen = self.model.select_restorable(lowest_priority, limit)
        if chosen and not self.model.has_room(1):
            assert result == "queue-full"
            return
        numbers = self.new_numbers()
        assert result == len(numbers) == self.model.restored(chosen, numbers)
