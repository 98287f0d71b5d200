"""Random histories with open transactions: all members take effect at the commit, in the order of joining, or none."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.broker.settling.outcomes import Abandonment, abandon, complete, dead_letter, defer, release
from app.broker.transactions.join import join_sends, join_settlements
from app.broker.transactions.open_transactions import commit, open_transaction, roll_back
from app.domain.message import Envelope
from app.domain.refusals import Refusal
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from app.domain.transaction import TransactionKey, TransactionState
from app.domain.transaction_refusals import TransactionRolledBack
from app.maintenance.expiry import roll_back_overdue
from tests.broker.histories import NAME, VerbHistories, keys, picks, priorities
from tests.broker.recovery_histories import RecoveryHistories
from tests.broker.short_forms import ATTEMPT_RETENTION, TIME_UNIT, attempt, result_code
from tests.broker.transaction_model import NotedSend, TransactionModel

CLIENT = "client"
TIMEOUTS = [20, 40]
"""Time units. The longer one is longer than a lock."""
DELAY_IN_GROUPS = 40
"""The sends of a transaction are due after it, as those of a work unit are."""
LAST = 1
"""A pick of the last transaction."""

outcomes = st.sampled_from(["completed", "completed", "abandoned", "dead_lettered", "deferred", "released"])


class TransactionHistories(RecoveryHistories):
    """The histories of queues, topics and states, and open transactions among them."""

    make_model = TransactionModel

    def loops(self) -> list[Any]:
        return [(roll_back_overdue(self.broker.transactions), self.model.roll_back_overdue), *super().loops()]

    @rule(pick=picks, sent=st.lists(priorities, min_size=1, max_size=2), ttl=st.sampled_from([None, None, 10]))
    def join_sends(self, pick: int, sent: list[int], ttl: int | None) -> None:
        key = self._transaction(pick)
        time_to_live = None if ttl is None else ttl * TIME_UNIT
        new_messages = self._new_messages(sent, time_to_live)
        result = self.result_or_code(join_sends(self.broker.transactions, key, NAME, new_messages))
        self._check_joined(key, sent, time_to_live, result)

    @rule(pick=picks, key=keys, priority=priorities)
    def join_a_send_or_replay(self, pick: int, key: int, priority: int) -> None:
        self._join_once(self._transaction(pick), key, priority)

    @precondition(lambda self: self.model.remembered_attempts("join"))
    @rule(pick=picks)
    def repeat_a_join(self, pick: int) -> None:
        """A repeat gets the first result, also after the end of the transaction."""
        joins = self.model.remembered_attempts("join")
        key, (transaction_id, priority) = joins[pick % len(joins)]
        self._join_once(TransactionKey(transaction_id, CLIENT), key, priority)

    def _join_once(self, transaction: TransactionKey, key: int, priority: int) -> None:
        payload = (transaction.id, priority)
        joining = join_sends(
            self.broker.transactions,
            transaction,
            NAME,
            self._new_messages([priority], None),
            attempt("join", key, payload),
        )
        result: Any = self.result_or_code(joining)
        self.model.roll_back_if_overdue(transaction.id)
        match self.model.earlier_answer("join", key, payload):
            case None:
                if self._check_joined(transaction, [priority], None, result):
                    self.model.remember("join", key, payload, result.result, ATTEMPT_RETENTION)
            case str(refusal):
                assert result == refusal
            case answer:
                assert (result.result, result.replayed) == (answer, True)

    def _new_messages(self, sent: list[int], time_to_live: int | None) -> list[NewMessage]:
        return [NewMessage(Envelope(""), priority=one, delay=self._delay(), ttl=time_to_live) for one in sent]

    def _delay(self) -> int:
        return DELAY_IN_GROUPS * TIME_UNIT if self.model.group_in_flight else 0

    def _check_joined(self, key: TransactionKey, sent: list[int], time_to_live: int | None, result: Any) -> bool:
        """Check the result of a join that is no repeat. Return whether it has joined."""
        self.model.roll_back_if_overdue(key.id)
        if refusal := self.model.refusal_to_join(key.id):
            assert result == refusal
            return False
        if not self.model.has_room(len(sent)):
            assert result == "queue-full"
            return False
        assert not result.replayed
        due_at = self.model.now + self._delay()
        for priority in sent:
            self.model.join_send(
                key.id, NotedSend(priority, due_at, None if time_to_live is None else due_at + time_to_live)
            )
        return True

    @precondition(lambda self: self.model.held_tokens())
    @rule(pick=picks, outcome=outcomes)
    def join_the_settlement_of_a_held_message(self, pick: int, outcome: str) -> None:
        """Choose among the deliveries that have not ended: at random, few would be one of them."""
        held = self.model.held_tokens()
        self.join_a_settlement(pick, held[pick % len(held)], outcome)

    @rule(pick=picks, token=VerbHistories.tokens, outcome=outcomes)
    def join_a_settlement(self, pick: int, token: str, outcome: str) -> None:
        key = self._transaction(pick)
        request = self._request(token, outcome)
        result: Any = self.result_or_code(join_settlements(self.broker.transactions, key, self.queue, [request]))
        self.model.roll_back_if_overdue(key.id)
        if refusal := self.model.refusal_to_join(key.id):
            assert result == refusal
            return
        (joined,) = result
        expected = self.model.join_settlement(key.id, token, outcome)
        if isinstance(joined, Refusal):
            assert result_code(joined) == expected
        else:
            assert ("replayed" if joined.replayed else "pending") == expected

    @precondition(lambda self: self.model.transactions)
    @rule(pick=picks)
    def commit_a_transaction(self, pick: int) -> None:
        """Commit. A repeat hears the same, and changes nothing."""
        key = self._any_transaction(pick)
        is_repeat = self.model.transactions[key.id].end is not None
        expected = self.model.end_of_commit(key.id)
        if expected != "committed":
            assert self._cause_of_rollback(key) == expected
            self.model.rolled_back(key.id, expected)
            return
        result = self.run(commit(self.broker.transactions, key)).result
        assert result is not None
        if not is_repeat:
            self.model.committed(key.id, [receipt.sequence_number for receipt in result.receipts])

    @precondition(lambda self: self.model.held_tokens())
    @rule(settled=st.lists(st.tuples(picks, outcomes), min_size=1, max_size=2), sent=st.lists(priorities, max_size=2))
    def settle_and_send_in_a_transaction(self, settled: list[tuple[int, str]], sent: list[int]) -> None:
        """Do all the steps in a row: few random histories have all of them before the timeout."""
        for pick, outcome in settled:
            self.join_the_settlement_of_a_held_message(pick, outcome)
        if sent:
            self.join_sends(LAST, sent, None)
        self.commit_a_transaction(LAST)

    @precondition(lambda self: self.model.transactions)
    @rule(pick=picks)
    def roll_back(self, pick: int) -> None:
        key = self._any_transaction(pick)
        result: Any = self.result_or_code(roll_back(self.broker.transactions, key))
        transaction = self.model.transactions[key.id]
        if transaction.end == "committed":
            assert result == "transaction-ended"
            return
        is_over = transaction.deadline <= self.model.now
        self.model.rolled_back(key.id, self.model.end_at_the_deadline(transaction) if is_over else "requested")
        assert result.state is TransactionState.ROLLED_BACK
        assert result.cause.value == transaction.end

    def _transaction(self, pick: int) -> TransactionKey:
        """Pick one of the last two transactions, and open one if the last has ended, except for some picks."""
        transactions = self.model.transactions
        if not transactions or (pick % 5 and self.model.refusal_to_join([*transactions][-1])):
            timeout = TIMEOUTS[pick % len(TIMEOUTS)] * TIME_UNIT
            self.model.opened(self.run(open_transaction(self.broker.transactions, CLIENT, timeout)).id, timeout)
        return self._any_transaction(pick)

    def _any_transaction(self, pick: int) -> TransactionKey:
        """Pick one of the last two transactions, mostly the last one."""
        last = [*self.model.transactions][-2:]
        return TransactionKey(last[-1 if pick % 5 else 0], CLIENT)

    def _cause_of_rollback(self, key: TransactionKey) -> str | None:
        """Commit a transaction that is rolled back, and return why it was."""
        try:
            self.run(commit(self.broker.transactions, key))
        except TransactionRolledBack as refused:
            return refused.cause.value
        return None

    def _request(self, token: str, outcome: str) -> Any:
        parsed = LockToken.parse(token)
        match outcome:
            case "completed":
                return complete(self.queue, parsed)
            case "dead_lettered":
                return dead_letter(self.queue, parsed, "bad", None)
            case "deferred":
                return defer(self.queue, parsed)
            case "released":
                return release(self.queue, parsed)
            case _:
                return abandon(self.queue, parsed, Abandonment())
