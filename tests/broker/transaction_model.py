"""The reference model with open transactions: members wait, and take effect together at the commit or not at all."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.domain.instant import Duration, Instant
from app.domain.transaction import LOCK_MARGIN
from tests.broker.recovery_model import RecoveryModel
from tests.broker.reference_model import ModelMessage

IN_TRANSACTION = "message-in-transaction"


@dataclass
class NotedSend:
    """A send that waits for the commit."""

    priority: int
    due_at: Instant
    expires_at: Instant | None
    is_queue_gone: bool = False


@dataclass
class ModelTransaction:
    """An open transaction, or how one has ended: `committed` or the cause of its rollback."""

    deadline: Instant
    sends: list[NotedSend] = field(default_factory=list)
    settlements: dict[str, str] = field(default_factory=dict)
    """The outcome that waits for each token, in the order of joining."""
    end: str | None = None


@dataclass
class TransactionModel(RecoveryModel):
    """A queue, and transactions whose members send to it and settle its deliveries."""

    transactions: dict[str, ModelTransaction] = field(default_factory=dict)

    # ---- steps of a transaction --------------------------------------------------------------------------------------

    def opened(self, key: str, duration: Duration) -> None:
        self.transactions[key] = ModelTransaction(self.now + duration)

    def refusal_to_join(self, key: str) -> str | None:
        """Return why no member can join."""
        transaction = self.transactions[key]
        if transaction.end == "committed":
            return "transaction-ended"
        is_over = transaction.end is not None or transaction.deadline <= self.now
        return "transaction-rolled-back" if is_over else None

    def join_send(self, key: str, send: NotedSend) -> None:
        transaction = self.transactions[key]
        transaction.sends.append(send)
        transaction.deadline = min(transaction.deadline, send.expires_at or transaction.deadline)

    def join_settlement(self, key: str, token: str, outcome: str) -> str:
        """Let a settlement join, and extend its lock beyond the deadline; return the result."""
        transaction, message = self.transactions[key], self.holder(token)
        if message is None:
            return self.complete(token).replace("completed replayed", "already completed")
        if self._noting(token) is not None:
            return "replayed" if transaction.settlements.get(token) == outcome else IN_TRANSACTION
        message.locked_until = max(message.locked_until, transaction.deadline + LOCK_MARGIN)
        message.is_renewed = True
        transaction.settlements[token] = outcome
        return "pending"

    def end_of_commit(self, key: str) -> str:
        """Return how a commit ends this transaction: `committed`, or the cause of its rollback."""
        transaction = self.transactions[key]
        if transaction.end is not None:
            return transaction.end
        if transaction.deadline <= self.now:
            return self.end_at_the_deadline(transaction)
        if any(send.is_queue_gone for send in transaction.sends):
            return "queue_gone"
        return "committed" if all(map(self.holder, transaction.settlements)) else "lock_lost"

    def committed(self, key: str, numbers: list[int]) -> None:
        """Carry out the members. The sends have these numbers, in the order of joining."""
        transaction = self.transactions[key]
        settlements, transaction.settlements = transaction.settlements, {}
        transaction.end = "committed"
        for token, outcome in settlements.items():
            self.settle(token, outcome)
        for number, send in zip(numbers, transaction.sends, strict=True):
            delay = max(0, send.due_at - self.now)
            ttl = None if send.expires_at is None else send.expires_at - max(self.now, send.due_at)
            self.sent(number, send.priority, delay, ttl)

    def rolled_back(self, key: str, cause: str) -> None:
        transaction = self.transactions[key]
        transaction.end, transaction.settlements = transaction.end or cause, {}

    def roll_back_overdue(self) -> None:
        for key in self.transactions:
            self.roll_back_if_overdue(key)

    def roll_back_if_overdue(self, key: str) -> None:
        """What each try to join does first: the messages of an overdue transaction can be settled again."""
        transaction = self.transactions[key]
        if transaction.deadline <= self.now:
            self.rolled_back(key, self.end_at_the_deadline(transaction))

    def end_at_the_deadline(self, transaction: ModelTransaction) -> str:
        """Return the cause of a rollback at the deadline, which may be the end of a send's time to live (S1.30)."""
        ends = [send.expires_at for send in transaction.sends if send.expires_at is not None]
        return "message_expired" if ends and min(ends) <= transaction.deadline else "timeout"

    def held_tokens(self) -> list[str]:
        """Return the tokens that hold a message."""
        return [message.token for message in self.messages.values() if message.token and self.holder(message.token)]

    # ---- what transactions change for others -------------------------------------------------------------------------

    def settle(self, token: str, outcome: str) -> str:
        """Settle a delivery with this outcome."""
        match outcome:
            case "completed":
                return self.complete(token)
            case "dead_lettered":
                return self.dead_letter(token)
            case "deferred":
                return self.defer(token)
            case "released":
                return self.release(token)
            case _:
                return self.abandon(token, 0, counted=True)

    def can_settle(self, token: str) -> bool:
        """Return whether a settlement under this token takes effect now. One that waits keeps others out."""
        return super().can_settle(token) and self._noting(token) is None

    def change_lock(self, token: str, duration: Duration) -> Instant | str:
        if self.holder(token) is not None and self._noting(token) is not None:
            return IN_TRANSACTION
        return super().change_lock(token, duration)

    def recreate(self) -> None:
        """Delete the queue. Deliveries of a deleted queue can still end in a transaction: a loop removes them later."""
        for transaction in self.transactions.values():
            lost = {token: outcome for token, outcome in transaction.settlements.items() if not self.holder(token)}
            self.has_orphans_in_doubt |= lost != transaction.settlements
            transaction.settlements = lost
        super().recreate()
        for transaction in self.transactions.values():
            for send in transaction.sends:
                send.is_queue_gone = True

    def _noting(self, token: str) -> str | None:
        """Return the transaction in which a settlement under this token waits."""
        return next((key for key, one in self.transactions.items() if token in one.settlements), None)

    def _end(self, token: str, outcome: str, effect: Callable[[ModelMessage], None]) -> str:
        if self.holder(token) is not None and self._noting(token) is not None:
            return IN_TRANSACTION
        return super()._end(token, outcome, effect)
