"""The rules of the protocol, each of which can be removed, and the scenarios in which they are tested."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """The protocol as chosen. Each field is one rule; `False` removes it from every step that obeys it."""

    settle_names_token: bool = True
    """A settle finds its row by the token, not by the message alone."""
    release_names_token: bool = True
    """Every release names the token too: that of an expired record by the sweeper, that of a claim whose caller has left."""
    expired_record_names_generation: bool = True
    """An expired record counts only against a row of the same generation."""
    deadline_clock_read_after: bool = True
    """The record's deadline counts from the clock read when it is written, after the SQL of the renewal."""
    bound_clock_read_before: bool = True
    """The record's bound and the promise of a renewal count from the clock read before its SQL."""
    late_record_extends_nothing: bool = True
    """A record that is written after the duration of a shortest lock since its clock was read has no bound: the lock may have
    ended."""
    tombstones_kept: bool = True
    """The settlement of a token is stored, so that a repeat finds it."""
    tombstone_read_last: bool = True
    """The tombstone is looked up in a snapshot taken after the fenced statement has missed."""
    settle_checks_deadline: bool = True
    """A settle needs `locked_until > now`."""
    settle_reads_expired_record: bool = True
    """A settle of a renewed lock asks the lock store whether its record has expired. Without this rule lock-lost comes later, and no promise breaks."""
    lock_lost_releases_row: bool = True
    """A request that is refused because of an expired generation releases the row first. Without this rule it waits for
    a sweep, and no promise breaks."""
    missed_release_reads_again: bool = True
    """A release that finds no row reads the tombstone again: another copy of this request may have taken effect."""
    lock_lost_is_final: bool = True
    """lock-lost is answered only from a snapshot in which the token holds no live lock. Otherwise the request tries again."""
    sql_keeps_deadline: bool = True
    """`locked_until` in SQL bounds every promise. Without it the deadline lives in the lock store alone."""
    missing_record_proves_nothing: bool = True
    """A missing record proves nothing."""
    keyed_claim_waits: bool = True
    """A claim with an Idempotency-Key is not released when its caller leaves, because a repeat may have returned its token."""
    change_in_sql_without_records: bool = True
    """A change lowers `locked_until` only of a lock that was never renewed, or without a lock store: no record can extend it."""
    change_names_generation: bool = True
    """The statement of `change_in_sql_without_records` takes effect only in the generation that the change has read."""
    change_raises_generation: bool = True
    """A change of a renewed lock raises the generation before it writes the record, so that no earlier renewal replaces it."""
    change_counts_from_record: bool = True
    """The new end of a renewed lock counts from the clock read when the record is written."""
    change_records_in_time: bool = True
    """A change whose record is written after the duration of a shortest lock since its clock was read is not answered. It
    begins again."""
    change_needs_record: bool = True
    """A change of a renewed lock is answered only if its record was written, or if SQL ends the lock at the same time."""
    holder_counts_on_change: bool = True
    """A holder that has sent a change counts on no more than its duration. While the change is unanswered, it counts on no
    later renewal for longer than that, because the change may still take effect."""


@dataclass(frozen=True)
class Scenario:
    """The number of participants, and what may fail. `lock` and `lead` are D and W of "Times" in docs/protocol.md, in ticks; W is at
    least 2 D, so that a record may be extended while a whole lock duration passes."""

    receivers: int = 2
    sweepers: int = 1
    lock: int = 1
    lead: int = 2
    change: int = 0
    """The duration to which holders change their locks, in ticks; 0 if they never do. The shortest lock is one tick."""
    verbs: tuple[str, ...] = ("complete", "abandon")
    redis: bool = True
    keyed: bool = False
    """Receives carry an Idempotency-Key: a client repeats a receive whose response is lost."""
    reduced: bool = True
    """Skip intermediate steps of requests whose token locks nothing. Runs with every step show that this hides nothing."""
    timeouts: int = 0
    """How many requests clients may abandon while the service still runs them."""
    faults: int = 0
    hazards: tuple[str, ...] = ("crash", "redis", "flush")
    """The kinds of faults: crash (of a handler, anywhere), redis (a call fails: not executed, executed, executed late),
    flush (FLUSHALL), stale (an old replica is promoted), clocks (a clock jumps)."""
