"""The refusals of transactions, and why one is rolled back."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.refusals import Conflict, NotFound


class TransactionNotFound(NotFound):
    """No transaction of this client has this id."""

    code = "transaction-not-found"


class TransactionEnded(Conflict):
    """This transaction is already committed; open another one."""

    code = "transaction-ended"


class TransactionFull(Conflict):
    """The transaction has no room for these members; commit it, and use another one for the rest."""

    code = "transaction-full"


class TooManyTransactions(Conflict):
    """The client, or the database, has reached its limit of open transactions; end others, or try again later."""

    code = "too-many-transactions"
    retryable = True


class MessageInTransaction(Conflict):
    """A settlement of this message waits for the commit of a transaction."""

    code = "message-in-transaction"
    retryable = True


class RollbackCause(StrEnum):
    """Why a transaction was rolled back."""

    REQUESTED = "requested"
    TIMEOUT = "timeout"
    LOCK_LOST = "lock_lost"
    MESSAGE_EXPIRED = "message_expired"
    QUEUE_GONE = "queue_gone"


@dataclass(frozen=True, slots=True)
class MemberName:
    """A member of a transaction: its position in the order of joining, from 0, its queue, and its message."""

    place: int
    queue: str
    message_id: str | None = None
    sequence_number: int | None = None


class TransactionRolledBack(Conflict):
    """The transaction was rolled back: none of its members took effect."""

    code = "transaction-rolled-back"

    def __init__(self, cause: RollbackCause, member: MemberName | None = None) -> None:
        super().__init__(ROLLBACK_TEXTS[cause])
        self.cause = cause
        self.member = member


ROLLBACK_TEXTS = {
    RollbackCause.REQUESTED: "The transaction was rolled back by request.",
    RollbackCause.TIMEOUT: "The transaction was rolled back, because it was not committed before its deadline.",
    RollbackCause.LOCK_LOST: "The transaction was rolled back, because the lock of one of its settlements has ended.",
    RollbackCause.MESSAGE_EXPIRED: "The transaction was rolled back, because one of its messages has expired.",
    RollbackCause.QUEUE_GONE: "The transaction was rolled back, because the queue of one of its sends was deleted.",
}
