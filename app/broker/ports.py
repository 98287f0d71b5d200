"""What the verbs need of the rooms, in as few words as possible.

Every method of a store port takes effect durably before it returns, raises `StoreUnavailable` when
its room cannot answer, and never lets an exception of a driver through. Lists are answered in the
order of what was asked. Callers of one method in one process share statements; each gets its own
outcome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from app.domain.access import ApiKey
from app.domain.delivery import Claim
from app.domain.instant import Duration, Instant
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.queue import Queue, QueueCounts, QueueSettings
from app.domain.settlement import Held, LockToken, Move, Outcome, Removal, Tombstone

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a request that carries an Idempotency-Key.

    `key` (32 bytes) names principal, verb, queue and key; `fingerprint` (32 bytes) the payload.
    """

    key: bytes
    fingerprint: bytes
    keep: Duration


@dataclass(frozen=True, slots=True)
class Once(Generic[Answer]):
    """The answer of an attempt, and whether an earlier try had already given it."""

    answer: Answer
    replayed: bool


@dataclass(frozen=True, slots=True)
class Extension:
    """A wish to prolong a lock in SQL to at least now + `by`, unless its generation has expired.

    Takes effect where the token matches, `locked_until` lies ahead and the generation is above
    `evidence`.
    """

    token: LockToken
    queue_id: int
    by: Duration
    evidence: int


@dataclass(frozen=True, slots=True)
class Extended:
    """A lock as a renewal left it in SQL, and the store's clock when it did."""

    generation: int
    locked_until: Instant
    read_at: Instant


class Messages(Protocol):
    """The message store as the verbs of senders and receivers see it."""

    async def send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store all drafts in one transaction, each with the next sequence number in order.

        A draft whose queue looks for duplicates and whose message id came within the window is not
        stored: its receipt is the first one's with `duplicate` set.
        """
        ...

    async def send_once(self, drafts: Sequence[Draft], attempt: Attempt) -> Once[list[Receipt]]:
        """`send`, remembered under the attempt in the same transaction.

        Refuses with `KeyReused` (another fingerprint) or `RequestInProgress` (the first try holds
        the attempt for longer than a caller should wait).
        """
        ...

    async def claim(self, claim: Claim) -> list[Message]:
        """Lock the next messages in order of `place_in_order`, count the delivery, answer them in order.

        Skips what other statements hold; sets token, `locked_until` = now + duration, generation 0,
        `home_state` = the state it was in, and the first and last delivery times. What was claimed for
        a caller that was cancelled meanwhile is given back by the store (outcome released, uncounted).
        """
        ...

    async def claim_once(self, claim: Claim, attempt: Attempt) -> Once[list[Message]]:
        """`claim`, remembered under the attempt in the same transaction.

        A repeat answers the same messages with the same tokens where those locks still live, with
        no delivery counted; `locked_until` is as it now stands. Refuses as `send_once` does.
        """
        ...

    async def claim_these(self, claim: Claim, numbers: Sequence[int]) -> list[Message]:
        """`claim`, but of these sequence numbers, in this order; those not in `claim.source` are left out."""
        ...

    async def held(self, tokens: Sequence[LockToken]) -> list[Held | None]:
        """The facts of the rows that still carry these tokens; None where a token is gone."""
        ...

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        """Settle locked rows out of the queue, each under its fence; whether each took effect.

        In the same transaction the row moves to the archive with its token, or leaves a tombstone
        where the queue's retention is 0.
        """
        ...

    async def move(self, moves: Sequence[Move]) -> list[bool]:
        """Settle locked rows into another state, each under its fence; leaves tombstones."""
        ...

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended | None]:
        """Prolong locks; the generation grows by one. None where the lock is lost."""
        ...

    async def release(self, moves: Sequence[Move]) -> list[bool]:
        """Free rows whose lock has ended: the token matches and either `locked_until` has passed or
        the row's generation is the one in `move.fence.above` (positive evidence). Leaves tombstones.
        """
        ...

    async def tombstones(self, tokens: Sequence[LockToken]) -> list[Tombstone | None]:
        """What is remembered of these deliveries, from the archive or the settlement table."""
        ...


@dataclass(frozen=True, slots=True)
class Unlocked:
    """An unlocked row as it was seen; acts on it take effect only while it is still so."""

    sequence_number: int
    queue_id: int
    state: MessageState


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """An unlocked message that leaves its queue: expired, purged or cancelled."""

    row: Unlocked
    queue: str
    outcome: Outcome
    retention: Duration


@dataclass(frozen=True, slots=True)
class Redrive:
    """A dead-lettered message that goes back to work, in its queue or another, with counts anew."""

    row: Unlocked
    to_queue_id: int


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to an unlocked message; None leaves a field as it is.

    Takes effect only while state, priority and due time are as in `seen`.
    """

    seen: Message
    available_at: Instant | None = None
    delay: Duration | None = None
    priority: int | None = None
    properties: bytes | None = None


@dataclass(frozen=True, slots=True)
class Awoken:
    """Scheduled messages that became available, by queue, and when the next one is due."""

    by_queue: Mapping[int, int]
    rest: Duration | None


class Upkeep(Protocol):
    """The message store as background passes and administrators see it. Batches are bounded by the caller."""

    async def read(self, queue_id: int, sequence_number: int) -> Message | None:
        """One message in any state, untouched."""
        ...

    async def browse(self, queue_id: int, states: Sequence[MessageState], after: int, most: int) -> list[Message]:
        """Messages in these states with sequence numbers above `after`, ascending, untouched."""
        ...

    async def ended_locks(self, most: int) -> list[Held]:
        """Locked rows whose `locked_until` has passed, oldest first; nothing is locked or changed."""
        ...

    async def locks_of_queue(self, queue_id: int, most: int) -> list[Held]:
        """Locked rows of one queue, for an administrator's change that takes them."""
        ...

    async def revoke(self, moves: Sequence[Move]) -> list[bool]:
        """Take live locks away (fenced by token only), leaving tombstones with the move's outcome."""
        ...

    async def awaken(self, most: int) -> Awoken:
        """Make due scheduled messages available, in their place by due time."""
        ...

    async def overdue(self, most: int) -> list[Unlocked]:
        """Unlocked, not dead-lettered messages past their time to live."""
        ...

    async def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """Move unlocked messages to the archive (or nowhere with retention 0), fenced by state."""
        ...

    async def bury(self, rows: Sequence[Unlocked], reason: str) -> list[bool]:
        """Dead-letter unlocked messages, fenced by state."""
        ...

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """Make dead-lettered messages available anew: counts, lock traces and reasons cleared, TTL lifted."""
        ...

    async def edit(self, edit: Edit) -> Message | None:
        """Apply an edit; None when the message is no longer as it was seen."""
        ...

    async def forget(self, most: int) -> int:
        """Remove tombstones, attempts, duplicate marks and archived messages past their time, and
        messages whose queue is gone; how many rows went."""
        ...


class Queues(Protocol):
    """The queues and their settings."""

    async def create(self, name: str, settings: QueueSettings) -> tuple[Queue, bool]:
        """The queue of this name, made with these settings if there was none; whether it was made."""
        ...

    async def find(self, name: str) -> Queue | None:
        """The queue of this name."""
        ...

    async def by_id(self, queue_id: int) -> Queue | None:
        """The queue of this id."""
        ...

    async def page(self, after: str, most: int) -> list[Queue]:
        """Queues with names above `after`, ascending by code point."""
        ...

    async def change(self, queue: Queue, settings: QueueSettings) -> Queue | None:
        """New settings for the queue as it was seen; None when its version has moved on."""
        ...

    async def delete(self, queue: Queue) -> bool:
        """Remove the queue as it was seen; its messages are gone with it. False when its version moved on."""
        ...

    async def counts(self, queue_ids: Sequence[int]) -> Mapping[int, QueueCounts]:
        """Exact counts per state of these queues."""
        ...


class Keys(Protocol):
    """The API keys."""

    async def add(self, key: ApiKey, most_live: int) -> bool:
        """Store a key unless its principal already has `most_live` live ones; whether it was stored."""
        ...

    async def by_hash(self, secret_hash: bytes) -> ApiKey | None:
        """The key whose secret has this SHA-256."""
        ...

    async def page(self) -> list[ApiKey]:
        """Every key, oldest first."""
        ...

    async def revoke(self, key_id: str) -> bool:
        """End a key now; whether there was such a live key."""
        ...

    async def used(self, key_ids: Sequence[str]) -> None:
        """Note that these keys were used now."""
        ...

    async def any_live(self) -> bool:
        """Whether there is a live key at all."""
        ...


class Store(Messages, Upkeep, Protocol):
    """An open message store. `queues` and `keys` share its connections."""

    @property
    def queues(self) -> Queues:
        """The queues it keeps."""
        ...

    @property
    def keys(self) -> Keys:
        """The API keys it keeps."""
        ...

    async def now(self) -> Instant:
        """The store's clock; also the cheapest proof that it answers."""
        ...

    async def claim_alone(self) -> list[str]:
        """Serve the database as the only process, for one without a shared lock store; refused beside another.

        Answers a warning for each way in which the database is set to lose what it has acknowledged.
        """
        ...

    async def claim_shared(self) -> list[str]:
        """Serve the database beside others that share the lock store; refused beside one that is alone."""
        ...

    async def close(self) -> None:
        """Finish what is gathered and let the connections go."""
        ...


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lock store prolonged the lock itself, inside its bound."""

    locked_until: Instant
    remaining: Duration


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """The lock store could not: SQL must. `asked_at` is its clock, None when it cannot be reached;
    `evidence` the generation of an expired record or `NO_EVIDENCE`."""

    asked_at: Instant | None
    evidence: int


@dataclass(frozen=True, slots=True)
class LockRecord:
    """What a renewal in SQL tells the lock store.

    `bound` is how far the lock store may prolong the lock by itself, `promised_until` how far the
    renewal itself promises; both come from `asked_at`.
    """

    generation: int
    duration: Duration
    bound: Instant
    promised_until: Instant


class Locks(Protocol):
    """The lock store. It only refines what SQL decides: every failure here is an answer, never an error.

    An unreachable lock store answers as if it knew nothing (`NotRenewed(None, NO_EVIDENCE)`, no
    evidence, nothing expired) and reports itself as degraded.
    """

    @property
    def is_shared(self) -> bool:
        """Whether several processes share it and it answers now; decides the lead of renewals."""
        ...

    @property
    def state(self) -> str:
        """`ok`, `degraded`, or `none` for a process on its own."""
        ...

    async def renew(self, token: LockToken, duration: Duration) -> Renewed | NotRenewed:
        """Prolong a lock to its own now + duration, only inside the record's bound (protocol step 1)."""
        ...

    async def record(self, token: LockToken, record: LockRecord) -> None:
        """Write the record after a renewal in SQL (protocol step 4).

        The deadline is its own clock now + duration, read now. Nothing is written where a higher
        generation is stored, or once that clock has passed the promise that the renewal gave.
        """
        ...

    async def evidence(self, tokens: Sequence[LockToken]) -> list[int]:
        """For each token the generation of its *expired* record, else `NO_EVIDENCE`."""
        ...

    async def drop(self, tokens: Sequence[LockToken]) -> None:
        """Forget the records of settled deliveries."""
        ...

    async def expired(self, most: int) -> list[tuple[LockToken, int]]:
        """Tokens whose records have expired, with the generation; the sweeper's positive evidence."""
        ...

    async def close(self) -> None:
        """Let the connections go."""
        ...


class Bells(Protocol):
    """Wake-ups for waiting receivers, in this process and in the others. Losing one is harmless."""

    def ring(self, queue_id: int, count: int = 1) -> None:
        """Wake so many of the receivers that wait longest on the queue, here and elsewhere."""
        ...

    def schedule_changed(self) -> None:
        """Something may be due sooner than the schedule pass knows."""
        ...

    def queue_changed(self, queue_id: int) -> None:
        """Other processes should forget what they remember of the queue."""
        ...


class Tally(Protocol):
    """Where things that happened are counted for whoever watches."""

    def count(self, event: str, amount: int = 1) -> None:
        """`amount` more of this event (a word of the metrics guide)."""
        ...
