"""Rolls back open transactions past their deadline. It runs in every replica, without a leader."""

from app.broker.transactions.ports import TransactionPorts

MAX_ROLLBACKS = 100
"""Transactions of one pass, each rolled back in an SQL transaction of its own: it may have thousands of members."""


async def roll_back_overdue(ports: TransactionPorts) -> float | None:
    """Roll back transactions whose time is over."""
    for count in range(MAX_ROLLBACKS):
        if not await ports.store.roll_back_overdue():
            ports.settling.counters.count("transactions_timed_out", count)
            return None
    ports.settling.counters.count("transactions_timed_out", MAX_ROLLBACKS)
    return 0.0
