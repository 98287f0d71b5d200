"""The rules of the protocol, each of which can be removed, and the scenarios in which they are tested."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """The protocol as chosen. Each field is one rule; `False` removes it from every step that obeys it."""

    settle_names_token: bool = True
    """A settle finds its row by the token, not by the message alone."""
    release_names_token: bool = True
    """So does every party that frees a row: the sweeper on evidence, a receive whose caller has gone."""
    evidence_names_generation: bool = True
    """An expired record counts only against a row of the same generation."""
    deadline_clock_read_after: bool = True
    """The record's deadline (the evidence) counts from the clock read when it is written, after the SQL of the renewal."""
    bound_clock_read_before: bool = True
    """The record's bound and the promise of a renewal count from the clock read before its SQL."""
    late_record_refused: bool = True
    """A record is written only while the promise that goes with it still runs."""
    tombstones_kept: bool = True
    """What settled a token is remembered, for a repeated settle."""
    tombstone_read_last: bool = True
    """The tombstone is looked up in a snapshot taken after the fenced statement has missed."""
    settle_checks_deadline: bool = True
    """A settle needs `locked_until > now`."""
    settle_reads_evidence: bool = True
    """A settle of a renewed lock asks the lock store whether it has expired. This makes lock-lost prompt; safety is without it."""
    refused_lock_is_freed: bool = True
    """A party that refuses because of an expired generation frees the row first. This, too, is for promptness: without
    it the request waits for a sweep."""
    free_that_misses_looks_again: bool = True
    """If there was nothing to free, another party was faster: the tombstone may say that this very request had its
    effect."""
    refused_lock_is_gone: bool = True
    """lock-lost is said only over a snapshot in which the token holds no live lock; else the request tries again."""
    sql_keeps_deadline: bool = True
    """`locked_until` in SQL bounds every promise. Without it the deadline lives in the lock store alone."""
    missing_record_is_silent: bool = True
    """A missing record proves nothing."""
    keyed_claim_waits: bool = True
    """A claim made with an Idempotency-Key is not freed when its caller has gone: the key may have promised it again."""


@dataclass(frozen=True)
class Scenario:
    """How many take part and what may go wrong. `lock` and `lead` are D and W of "Times" in docs/protocol.md, in ticks; W is at
    least 2 D, so that a record may be extended while a whole lock duration passes."""

    receivers: int = 2
    sweepers: int = 1
    lock: int = 1
    lead: int = 2
    verbs: tuple[str, ...] = ("complete", "abandon")
    redis: bool = True
    keyed: bool = False
    """Receives carry an Idempotency-Key: a receive whose reply is lost is repeated with it."""
    reduced: bool = True
    """Leave out the detours of requests whose token locks nothing; runs with every detour show that nothing hides there."""
    timeouts: int = 0
    """How often a client may give a request up that goes on running inside the service."""
    faults: int = 0
    hazards: tuple[str, ...] = ("crash", "redis", "flush")
    """What a fault may be: crash (of a handler, anywhere), redis (a call fails: not executed, executed, executed late),
    flush (FLUSHALL), stale (an old replica is promoted), clocks (a clock jumps)."""
