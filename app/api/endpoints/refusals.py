"""Refusals that several operations share. Each operation declares those of its own besides."""

from app.domain.refusals import (
    AlreadySettled,
    ForwardingTooLong,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    QueueFull,
    QueueNotFound,
    SendDisabled,
    StoreNotDurable,
    SynchronousMessage,
    TooManyQueues,
)
from app.domain.transaction_refusals import (
    MessageInTransaction,
    TransactionEnded,
    TransactionFull,
    TransactionNotFound,
    TransactionRolledBack,
)

JOIN_REFUSALS = (TransactionNotFound, TransactionEnded, TransactionFull, TransactionRolledBack)
"""Of a request that joins an open transaction."""

STORE_REFUSALS = (SendDisabled, QueueNotFound, ForwardingTooLong, MessageTooLarge, StoreNotDurable, QueueFull)
"""Of a request that stores messages in a queue that exists."""

SEND_REFUSALS = (*STORE_REFUSALS, TooManyQueues)
"""Of a request that sends to a queue, which may not exist yet."""

HOLD_REFUSALS = (QueueNotFound, MessageNotFound, AlreadySettled, LockLost)
"""Of a request with a lock token."""

SETTLE_REFUSALS = (*HOLD_REFUSALS, MessageInTransaction)
"""Of a request that settles a delivery."""

UNIT_REFUSALS = (*SETTLE_REFUSALS, *SEND_REFUSALS, SynchronousMessage)
"""Of a request that settles and sends together."""
