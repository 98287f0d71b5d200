"""Synchronous sends: a message that lives only while its sender waits for its settlement.

It is available while its sender waits, and receivers claim it like any other message. A completion archives it. Every
other outcome deletes it. The table `offer` has one row for each, and its message is marked as offered.
"""

import msgspec
from msgspec.structs import replace

from app.domain.instant import Duration, from_seconds
from app.domain.message import Draft, Durability
from app.domain.queue import Queue
from app.domain.refusals import NoAnswer, NoReceiver, NotAccepted, Refusal, ReplyTooLarge, invalid_at
from app.domain.sending import NewMessage, create_draft
from app.domain.settlement import Fence, Outcome

MIN_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 600.0

MAX_REPLY_BYTES = 64 << 10
"""The largest reply. It is kept for repeats of the send, so it is smaller than a message may be."""

ANSWER_RETENTION: Duration = from_seconds(60)
"""How long the outcome of a send without an Idempotency-Key is kept after its wait: only its own request reads it.
It limits no request."""

WAIT_KEYS_FROM = 1 << 33
"""Wait keys above this belong to senders. Those of receivers are queue ids, which have 31 bits."""

COMPLETIONS = frozenset({Outcome.COMPLETED, Outcome.RECEIVED})
"""Outcomes of a message that its receiver has accepted."""

UNANSWERED = frozenset({Outcome.LOCK_EXPIRED, Outcome.RELEASED, Outcome.WITHDRAWN, Outcome.EXPIRED})
"""Outcomes of a message that no receiver has settled."""


class SynchronousSendState(msgspec.Struct, frozen=True):
    """The state of a synchronous send. `outcome` is None until it has ended."""

    outcome: Outcome | None
    was_delivered: bool
    reply: bytes | None


class Completion(msgspec.Struct, frozen=True):
    """A synchronous send that its receiver has accepted, and the reply, a JSON value, if the receiver gave one."""

    sequence_number: int
    message_id: str
    outcome: Outcome
    reply: bytes | None


def wait_key_of_sender(sequence_number: int) -> int:
    """Return the key under which the sender of this message waits."""
    return WAIT_KEYS_FROM + sequence_number


def create_synchronous_draft(
    new_message: NewMessage, queue: Queue, default_id: str, wait_seconds: float, retention: Duration
) -> Draft:
    """Return the draft of a message whose sender waits for `wait_seconds`. Its outcome is kept for `retention` after that.

    It is delivered at once and lives as long as its sender waits, so the queue's default delay and time to live do not apply.
    Refuses with `InvalidRequest` settings of the message or of the queue that need a stored message, and as `create_draft`
    does.
    """
    _check_message(new_message)
    if queue.has_groups:
        raise invalid_at(
            "/delivery",
            "A queue with groups does not support synchronous delivery, because a message may be blocked there.",
        )
    if queue.settings.duplicate_detection_window:
        raise invalid_at("/delivery", "A queue that detects duplicates does not support synchronous delivery.")
    if queue.settings.history:
        raise invalid_at("/delivery", "A queue that keeps a history does not support synchronous delivery.")
    draft = create_draft(new_message, queue, default_id)
    wait = from_seconds(wait_seconds)
    return replace(draft, delay=None, ttl=wait, offer_retention=wait + retention)


def _check_message(new_message: NewMessage) -> None:
    if new_message.durability is Durability.VOLATILE:
        raise invalid_at(
            "/durability",
            "A synchronous send cannot be volatile, because a volatile message is answered before it is delivered.",
        )
    if new_message.available_at is not None:
        raise invalid_at("/available_at", "A synchronous send is delivered at once.")
    if new_message.delay:
        raise invalid_at("/delay_seconds", "A synchronous send is delivered at once.")
    if new_message.ttl is not None:
        raise invalid_at("/ttl_seconds", "The message of a synchronous send lives for wait_seconds.")


def check_reply(reply: bytes) -> None:
    """Refuse with `ReplyTooLarge` a reply of more than `MAX_REPLY_BYTES`."""
    if len(reply) > MAX_REPLY_BYTES:
        raise ReplyTooLarge(f"The reply has {len(reply)} bytes; at most {MAX_REPLY_BYTES} are allowed.")


def refusal_of(state: SynchronousSendState) -> Refusal:
    """Return the answer to the sender of a message that was not completed."""
    if state.outcome not in UNANSWERED:
        return NotAccepted(f"The message was not accepted: {state.outcome}. Nothing is stored.")
    may_be_processed = state.was_delivered and state.outcome is not Outcome.RELEASED
    return NoAnswer() if may_be_processed else NoReceiver()


def fence_holds(fence: Fence, generation: int, *, is_live: bool) -> bool:
    """Return whether a lock with the right token passes the fence of a settlement."""
    is_administrator = fence.generation_above < -1
    return (is_live or is_administrator) and fence.generation_above < generation <= fence.max_generation


def lock_has_ended(fence: Fence, generation: int, *, is_live: bool) -> bool:
    """Return whether a lock with the right token has ended, by its time or by an expired generation."""
    return not is_live or generation == fence.generation_above
