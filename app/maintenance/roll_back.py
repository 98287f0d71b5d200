"""Rolls back open transactions past their deadline. It runs in every replica, without a leader."""

from dataclasses import dataclass

from app.broker.ports import Counters, TransactionStore

MAX_ROLLBACKS = 100
"""Transactions of one pass, each rolled back in an SQL transaction of its own: it may have thousands of members."""


@dataclass(frozen=True, slots=True)
class RollBackPorts:
    """What the rollback of transactions uses."""

    transactions: TransactionStore
    counters: Counters


async def roll_back_overdue(ports: RollBackPorts) -> float | None:
    """Roll back transactions whose time is over."""
    for count in range(MAX_ROLLBACKS):
        if not await ports.transactions.roll_back_overdue():
            ports.counters.count("transactions_timed_out", count)
            return None
    ports.counters.count("transactions_timed_out", MAX_ROLLBACKS)
    return 0.0
