"""Random histories with states: a message adds one version to a state, and a duplicate of it adds none and sends nothing."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.broker.administration.states import delete_state, load_state, state_history
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.transactions.commit import CommitRequest, commit
from app.broker.transactions.execute import UnitSend
from app.domain.message import DEFAULT_PRIORITY, Envelope
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from app.domain.state import NextState
from app.maintenance.retention import delete_old_versions
from tests.broker.histories import NAME, VerbHistories, is_stale_choices, picks
from tests.broker.short_forms import ATTEMPT_RETENTION, TIME_UNIT, attempt
from tests.broker.state_model import StateModel
from tests.broker.transaction_histories import TransactionHistories
from tests.broker.unit_histories import DELAY
from tests.brokers import result_of

STATE_RETENTION = 21 * TIME_UNIT // 2
"""Between two sums of the times that pass in a history, so that no server's clock decides."""

HIGHEST_PRIORITY = 9
state_keys = st.sampled_from(["cart", "cart", "stock"])
message_ids = st.sampled_from(["x", "y"])
"""The queue detects no duplicates, so the processors of its messages must."""
values = st.sampled_from([b"1", b"2"])
verifies_choices = st.sampled_from([False, True])


class StateHistories(TransactionHistories):
    """The histories of queues, topics and transactions, and commits with states among them."""

    make_model = StateModel

    def loops(self) -> list[Any]:
        deleting = delete_old_versions(self.broker.administration, STATE_RETENTION)
        return [
            *super().loops(),
            (deleting, lambda: self.model.delete_old_versions(STATE_RETENTION)),
        ]

    @precondition(lambda self: self.model.has_room(1))
    @rule(target=VerbHistories.tokens, message_id=message_ids, key=state_keys, value=values, sends=st.integers(0, 1))
    def process_a_message(self, message_id: str, key: str, value: bytes, sends: int) -> Any:
        """Send a message that may be a duplicate, and process the next one as its processor does."""
        message = NewMessage(Envelope(message_id), priority=HIGHEST_PRIORITY, delay=0)
        (receipt,) = self.run(result_of(send(self.broker.sending, self.queue.name, [message])))
        self.model.sent(receipt.sequence_number, HIGHEST_PRIORITY, 0, None)
        (token,) = self.check_locked(
            self.run(result_of(receive(self.broker.receiving, self.queue, ReceiveRequest()))), self.model.next(1)
        )
        processed_id = self._message_id(token)
        assert processed_id is not None
        loaded = self.run(load_state(self.broker.store.states, key, before_message=processed_id)).version
        base = 0 if loaded is None else loaded.number
        assert base == self.model.base_version(key, processed_id)
        self._commit(token, NextState(key, base, value, b""), sends)
        return token

    @rule(
        token=VerbHistories.tokens,
        key=state_keys,
        value=values,
        sends=st.integers(0, 1),
        is_stale=is_stale_choices,
        verifies=verifies_choices,
    )
    def commit(self, token: str, key: str, value: bytes, sends: int, is_stale: bool, verifies: bool) -> None:
        """Commit a delivery that may have ended, to a version that may not be the one before the message."""
        message_id = self._message_id(token)
        base = 0 if message_id is None else self.model.base_version(key, message_id)
        self._commit(token, NextState(key, base + is_stale, value, b"", verifies), sends)

    @precondition(lambda self: self.model.remembered_attempts("commit"))
    @rule(pick=picks)
    def repeat_a_commit(self, pick: int) -> None:
        """A repeat under the same lock token gets the first result."""
        commits = self.model.remembered_attempts("commit")
        token, (state, sends) = commits[pick % len(commits)]
        self._commit(token, state, sends)

    @rule(key=state_keys)
    def delete_state(self, key: str) -> None:
        result = self.result_or_code(delete_state(self.broker.store.states, key))
        assert result == (None if self.model.delete_state(key) else "state-not-found")

    def _commit(self, token: str, state: NextState, sends: int) -> None:
        payload = (state, sends)
        request = CommitRequest([UnitSend(NAME, NewMessage(Envelope(""), delay=DELAY))] * sends, state=state)
        message_id = self._message_id(token)
        first_try = attempt("commit", token, payload)
        result: Any = self.result_or_code(
            commit(self.broker.transactions, self.queue, LockToken.parse(token), request, first_try)
        )
        earlier = self.model.earlier_answer("commit", token, payload)
        if earlier is not None:
            assert result == "already completed" if isinstance(earlier, str) else result.replayed
        elif (refusal := self._refusal(token, state, sends, message_id)) is not None:
            assert result == refusal
        else:
            self._check_committed(token, state, sends, message_id, result.result)
            self.model.remember("commit", token, payload, [], ATTEMPT_RETENTION)
        self._check_versions(state.key)

    def _refusal(self, token: str, state: NextState, sends: int, message_id: str | None) -> str | None:
        """Return why a commit must be refused. Nothing changes then, but for a late holder, which frees its row."""
        if sends and not self.model.has_room(sends):
            return "queue-full"
        if not self.model.can_settle(token):
            return self.refusal_of(token)
        assert message_id is not None
        if state.if_version != self.model.base_version(state.key, message_id):
            return "version-conflict"
        first = self.model.processed(state.key, message_id)
        is_different = first is not None and first.result != (state.value, sends)
        return "result-differs" if state.verifies and is_different else None

    def _check_committed(self, token: str, state: NextState, sends: int, message_id: str | None, result: Any) -> None:
        assert message_id is not None
        first = self.model.processed(state.key, message_id)
        self.model.complete(token)
        numbers = [receipt.sequence_number for receipt in result.receipts]
        (version,) = result.versions
        if first is not None:
            assert (version.number, version.duplicate, numbers) == (first.number, True, first.sent)
            return
        for number in numbers:
            self.model.sent(number, DEFAULT_PRIORITY, DELAY, None)
        assert len(numbers) == sends
        self.model.add_version(state.key, message_id, (state.value, sends), numbers)
        assert (version.number, version.duplicate) == (self.model.newest_version(state.key), False)

    def _check_versions(self, key: str) -> None:
        """Compare the versions of a state with the model."""
        found = self.run(state_history(self.broker.store.states, key, 0, 100))
        assert [(version.number, version.message_id) for version in found] == self.model.kept_versions(key)

    def _message_id(self, token: str) -> str | None:
        """Return the id of the message that this token locks."""
        return self.run(self.broker.store.locked_message_id(self.queue.id, LockToken.parse(token)))
