"""Commits of many callers on PostgreSQL in one statement, each as a whole or not at all.

A commit is a unit that removes one message under an attempt, sends plain messages, and adds a version to at most one
state. The statement carries out each commit whose conditions hold. Every other commit runs again in its own transaction,
which decides its answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from app.broker.ports.attempts import Attempt
from app.domain.message import Draft, Receipt
from app.domain.settlement import TOMBSTONE_RETENTION, LockToken, Removal
from app.domain.state import AddedVersion, StateChange
from app.domain.weight import weight_of
from app.domain.work_unit import WorkUnit
from app.runtime.coalescer import RequeueEntryError, WeightLimits
from app.store.pooled.pool import Pool
from app.store.postgresql.entries import entry_columns, fetch_entries
from app.store.postgresql.session import PostgresqlSession
from app.store.shared.database import LockWaitTimeout, SqlSession, StoreCoalescer
from app.store.shared.engine import UnitEffects
from app.store.shared.json_columns import read_receipts
from app.store.shared.message_rows import DRAFT_COLUMNS, draft_row
from app.store.shared.rows import Row


@dataclass(frozen=True, slots=True)
class Commit:
    """A unit in the form that the statement takes."""

    unit: WorkUnit
    removal: Removal
    drafts: Sequence[Draft]
    change: StateChange | None
    attempt: Attempt


Effects: TypeAlias = UnitEffects | None
"""What a commit has changed, None if it had no effect."""

HeldLock: TypeAlias = tuple[int, LockToken]
"""The id of the queue and the token of a lock."""


def _weight(commit: Commit) -> int:
    """Return the bytes that a commit carries."""
    change = commit.change
    return sum(map(weight_of, commit.drafts)) + (len(change.value) + len(change.metadata) if change else 0)


LIMITS: WeightLimits[Commit] = WeightLimits(_weight, max_run_weight=4 << 20, max_waiting_weight=64 << 20)
"""The limits of the bytes that commits carry. They are those of sends."""


class GatheredCommits:
    """Runs commits that arrive together in one statement, and their reads of message ids in another one."""

    def __init__(
        self,
        pool: Pool[PostgresqlSession],
        observed: Callable[..., Any],
        on_executed: Callable[[WorkUnit, UnitEffects], None],
    ) -> None:
        """`on_executed` gets the effects of every commit, even if its caller is gone."""
        self._pool = pool
        self._on_executed = on_executed
        self._commits: StoreCoalescer[Commit, Effects] = StoreCoalescer(observed("commit", self._run), limits=LIMITS)
        self._id_reads: StoreCoalescer[HeldLock, str | None] = StoreCoalescer(
            observed("message_id", partial(locked_message_ids, pool))
        )

    async def execute(self, unit: WorkUnit, attempt: Attempt | None) -> Effects:
        """Carry out a unit, and store its result under the attempt. Return None if it had no effect."""
        entry = as_commit(unit, attempt)
        if entry is None:
            return None
        return await self._commits.submit(entry)

    async def _run(self, commits: Sequence[Commit]) -> list[Effects | RequeueEntryError]:
        results = await commit(self._pool, commits)
        for entry, effects in zip(commits, results, strict=True):
            if isinstance(effects, UnitEffects):
                self._on_executed(entry.unit, effects)
        return results

    async def locked_message_id(self, queue_id: int, token: LockToken) -> str | None:
        """See `SettlingStore`."""
        return await self._id_reads.submit((queue_id, token))

    async def close(self) -> None:
        """Close the coalescers."""
        await self._id_reads.close()
        await self._commits.close()


def as_commit(unit: WorkUnit, attempt: Attempt | None) -> Commit | None:
    """Return a unit as a commit, or None if it needs a transaction of its own."""
    if attempt is None or len(unit.settlements) != 1 or len(unit.states) > 1:
        return None
    (settlement,) = unit.settlements
    if not isinstance(settlement, Removal) or settlement.is_in_group or settlement.keeps_history:
        return None
    if not all(map(_is_plain, unit.drafts)):
        return None
    return Commit(unit, settlement, unit.drafts, unit.states[0] if unit.states else None, attempt)


async def commit(session: SqlSession, commits: Sequence[Commit]) -> list[Effects | RequeueEntryError]:
    """Carry out the commits. Return what each has changed.

    Of several commits with the same token, state or attempt, the first one runs, and the others are requeued.
    """
    chosen = _first_of_each(commits)
    results: list[Effects | RequeueEntryError] = [RequeueEntryError() for _ in commits]
    effects = await _commit(session, [commits[index] for index in chosen])
    for index, effect in zip(chosen, effects, strict=True):
        results[index] = effect
    return results


async def locked_message_ids(session: SqlSession, locks: Sequence[HeldLock]) -> list[str | None]:
    """Return the message id of each lock, None if the token locks no message of the queue."""
    ids: list[str | None] = [None] * len(locks)
    entries = [(queue_id, token.sequence_number, token.secret) for queue_id, token in locks]
    columns = ("queue_id", "sequence_number", "lock_token")
    for index, message_id in await fetch_entries(session, "locked_message_id", columns, entries):
        ids[index - 1] = message_id
    return ids


async def _commit(session: SqlSession, commits: Sequence[Commit]) -> list[Effects]:
    effects: list[Effects] = [None] * len(commits)
    drafts = [(index, *draft_row(draft)[:PLAIN]) for index, commit in enumerate(commits, 1) for draft in commit.drafts]
    try:
        done = await _fetch(session, [_values(commit) for commit in commits], drafts)
    except LockWaitTimeout:
        # Another transaction is creating one of the states.
        return effects
    for row in done:
        index: int = row[0] - 1
        effects[index] = _effects(commits[index], read_receipts(row[1]))
    return effects


async def _fetch(session: SqlSession, commits: Sequence[Row], drafts: Sequence[Row]) -> Sequence[Row]:
    """Run the statement, or its form for a single commit with a single send."""
    shared = {
        "distinct_queue_ids": sorted({draft[QUEUE_ID] for draft in drafts}),
        "tombstone_retention": TOMBSTONE_RETENTION,
    }
    if len(commits) == len(drafts) == 1:
        columns, values = COMMIT_COLUMNS + PLAIN_COLUMNS, (*commits[0], *drafts[0])
        return await session.fetch("commit_one", **dict(zip(columns, values, strict=True)), **shared)
    by_commit = entry_columns(COMMIT_COLUMNS, commits)
    by_draft = entry_columns(PLAIN_COLUMNS, drafts) if drafts else dict.fromkeys(PLAIN_COLUMNS, ())
    return await session.fetch("commit", **by_commit, **by_draft, **shared)


def _is_plain(draft: Draft) -> bool:
    """Return whether storing a draft takes no further statement."""
    needs_more = draft.is_in_group or draft.keeps_history or draft.duplicate_window or draft.offer_retention
    return not needs_more and draft.shared_body_id is None


def _first_of_each(commits: Sequence[Commit]) -> list[int]:
    taken: set[object] = set()
    chosen: list[int] = []
    for index, commit in enumerate(commits):
        names = {commit.removal.token, commit.attempt.key, commit.change and commit.change.key} - {None}
        if taken.isdisjoint(names):
            chosen.append(index)
        taken |= names
    return chosen


def _effects(commit: Commit, receipts: Sequence[Receipt]) -> UnitEffects:
    versions = [] if commit.change is None else [AddedVersion(commit.change.if_version + 1)]
    return UnitEffects(receipts, admitted=(), versions=versions)


COMMIT_COLUMNS = (
    "sequence_number",
    "lock_token",
    "from_queue_id",
    "queue",
    "outcome",
    "retention",
    "generation_above",
    "max_generation",
    "attempt_key",
    "fingerprint",
    "answer_retention",
    "state_key",
    "if_version",
    "processed_id",
    "value",
    "metadata",
    "result_digest",
)
PLAIN = DRAFT_COLUMNS.index("in_group")
PLAIN_COLUMNS = ("commit_index", *DRAFT_COLUMNS[:PLAIN])
"""The columns of a plain draft, after the index of its commit."""

QUEUE_ID = PLAIN_COLUMNS.index("queue_id")


def _values(commit: Commit) -> Row:
    removal, attempt = commit.removal, commit.attempt
    return (
        removal.token.sequence_number,
        removal.token.secret,
        removal.queue_id,
        removal.queue,
        removal.outcome,
        removal.retention,
        removal.fence.generation_above,
        removal.fence.max_generation,
        attempt.key,
        attempt.fingerprint,
        attempt.retention,
        *_state_values(commit.change),
    )


def _state_values(change: StateChange | None) -> tuple[Any, ...]:
    if change is None:
        return (None,) * 6
    return (change.key, change.if_version, change.message_id, change.value, change.metadata, change.result_digest)
