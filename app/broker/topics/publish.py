"""Publish: a topic copies a message to the queue of every subscription that matches it, to all of them or to none.

One statement of the store takes the copies for all queues, so the crash windows are those of a send. A copy is a message
of its queue like any other: the settings of that queue give its time to live, find duplicates and limit its size.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from app.broker.attempts import first_result
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.sending import QueueGone
from app.broker.sending.ports import SendingPorts
from app.broker.sending.send import store_drafts
from app.broker.sending.target_queue import check_capacity, last_queue
from app.broker.topics.ports import TopicPorts
from app.broker.topics.subscription_filter import input_of
from app.broker.topics.topic_cache import ActiveRoute, TopicRoutes
from app.domain.filter_body import decoded_weight
from app.domain.message import Draft, Receipt
from app.domain.queue import Queue
from app.domain.refusals import MessageTooLarge, Refusal, StoreUnavailable, invalid_at
from app.domain.sending import NewMessage, create_draft
from app.domain.shared_body import MIN_SHARED_BYTES, with_shared_bodies
from app.domain.topic import MAX_PUBLISHED_BYTES, Published, check_evaluations, copy_for
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, weight_of
from app.runtime.byte_budget import GrowingReservation
from app.runtime.round_robin_gate import RoundRobinGate

Result = TypeVar("Result")

_MAX_TRIES = 3
"""How often a publish reads its topic. It is read again if a target queue was deleted since."""

EVALUATION_BATCH_SIZE = 20
"""Filters that one publish evaluates before other requests run. One takes about 2 µs, and 0.5 ms in the worst case: 32 KiB of
properties in 64 values and a filter that reads dozens of them."""

_SMALL_BODY_BYTES = 4 << 10
"""Other requests run before each filter that reads a larger body: decoding it takes up to 5 ms, and a filter that
reads 256 KiB of text dozens of times up to 7 ms."""

UNCOUNTED_BYTES = 64 << 10
"""Copies up to this weight are not counted, because a connection has at most one publish in memory."""

RoutedMessage: TypeAlias = tuple[Queue, NewMessage]
"""A message with the id that all its copies have, and a queue that gets one."""

Match: TypeAlias = tuple[NewMessage, Sequence[ActiveRoute]]
"""A message, and the subscriptions that match it."""


async def publish(
    ports: TopicPorts, topic: str, new_messages: Sequence[NewMessage], attempt: Attempt | None = None
) -> AttemptResult[list[Published]]:
    """Store the copies of all messages or none; return what became of each message, in order.

    Refuses with `TopicNotFound`, as `route` does, and as a send to each of the queues would be. A repeat of an attempt gets
    the first result, even if nothing matched. Its missing message ids are computed from the attempt, so that a repeat finds
    the receipts of each message.
    """
    identified = with_ids(new_messages, message_ids(ports, attempt))

    async def store(held: GrowingReservation) -> AttemptResult[list[Receipt]]:
        drafts = await _create_drafts(ports, topic, identified, held)
        return await store_drafts(ports.sending, drafts, attempt)

    try:
        stored = await _with_current_routes(ports, store)
    except Refusal:
        if (first := await first_result(attempt, ports.sending.store.find_send_result)) is None:
            raise
        stored = first
    return AttemptResult(published_results(identified, stored.result), stored.replayed)


async def route(
    ports: TopicPorts, publishes: Sequence[tuple[str, NewMessage]], held: GrowingReservation
) -> list[RoutedMessage]:
    """Return a copy of each message for each subscription of its topic that matches it, in the order of messages.

    The copies are made once `held` has their bytes, and the caller keeps it until they are stored: a small message may
    have megabytes of copies. Refuses with `Overloaded` if it gets none.

    Refuses with `TopicNotFound`, with `QueueNotFound` if a target queue no longer exists, and as `last_queue` does if one
    forwards. Refuses with `InvalidRequest` a copy with too many properties, or two messages with one id. Refuses with
    `MessageTooLarge` copies that have more bytes together than one statement stores, and as `check_evaluations` does.
    """
    identified = with_ids([new_message for _, new_message in publishes], ports.sending.new_id)
    topics = [await ports.topic_cache.by_name(topic) for topic, _ in publishes]
    check_evaluations([topic.filter_counts for topic in topics], identified)
    await _hold_decoded(topics, identified, held)
    limit = max(MAX_PUBLISHED_BYTES, sum(map(weight_of, identified)))
    matches = await _matches(ports.gate, topics, identified, limit)
    weight = _held_weight(matches)
    if weight > UNCOUNTED_BYTES:
        await held.grow(weight)
    routed = await _copy(ports, matches, limit)
    matched = {new_message.envelope.message_id for _, new_message in routed}
    ports.counters.count("messages_unmatched", len(identified) - len(matched))
    return routed


async def _hold_decoded(
    topics: Sequence[TopicRoutes], new_messages: Sequence[NewMessage], held: GrowingReservation
) -> None:
    """Hold the bytes of the largest body while filters read it. Messages are read one after the other."""
    read = (message for topic, message in zip(topics, new_messages, strict=True) if topic.filter_counts.of_body)
    weight = max((decoded_weight(message.body) for message in read), default=0)
    if weight > UNCOUNTED_BYTES:
        await held.grow(weight)


async def _matches(
    gate: RoundRobinGate, topics: Sequence[TopicRoutes], new_messages: Sequence[NewMessage], limit: int
) -> list[Match]:
    """Return the subscriptions that match each message. Other tasks run between batches of filters.

    Refuses with `MessageTooLarge` matches whose copies have more than `limit` bytes even if they are empty.
    """
    found: list[Match] = []
    evaluated = weight = 0
    for topic, new_message in zip(topics, new_messages, strict=True):
        message = input_of(new_message)
        is_large = len(new_message.body) > _SMALL_BODY_BYTES
        matching: list[ActiveRoute] = []
        for active in topic.routes:
            evaluated += 1
            if evaluated % EVALUATION_BATCH_SIZE == 0 or (is_large and active.filter.reads_body):
                await gate.enter()
            if active.filter.matches(message):
                matching.append(active)
        found.append((new_message, matching))
        weight += MESSAGE_OVERHEAD_BYTES * len(matching)
        if weight > limit:
            raise _too_large(limit)
    return found


def _held_weight(matches: Sequence[Match]) -> int:
    """Return the most bytes of the copies besides what the request has: changed properties, and bodies that are not shared."""
    weight = 0
    for new_message, matching in matches:
        body_bytes = len(new_message.body) if len(new_message.body) < MIN_SHARED_BYTES else 0
        for active in matching:
            weight += MESSAGE_OVERHEAD_BYTES + body_bytes
            settings = active.subscription.settings
            if settings.set_properties or settings.remove_properties:
                weight += len(new_message.envelope.properties) + len(settings.set_properties)
    return weight


async def _copy(ports: TopicPorts, matches: Sequence[Match], limit: int) -> list[RoutedMessage]:
    """Return the copies, in order, and their queues. Other tasks run in between. Refuses as `route` does."""
    routed: list[RoutedMessage] = []
    weight = 0
    for new_message, matching in matches:
        for active in matching:
            copy = copy_for(active.subscription, new_message)
            weight += weight_of(copy)
            if weight > limit:
                raise _too_large(limit)
            routed.append((await last_queue(ports.sending.queue_cache, active.queue), copy))
            if len(routed) % EVALUATION_BATCH_SIZE == 0:
                await ports.gate.enter()
    return routed


def _too_large(limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"The copies of this publish have more than {limit} bytes together.")


async def draft_all(ports: SendingPorts, routed: Sequence[RoutedMessage]) -> list[Draft]:
    """Build drafts of messages that `route` has just found, in order. The copies of a message share a large body.

    Refuses with `StoreNotDurable`, `MessageTooLarge` or `QueueFull`.
    """
    if routed:
        await ports.durability.check()
    queues = {queue.id: queue for queue, _ in routed}
    drafts = [create_draft(new_message, queue, new_message.envelope.message_id) for queue, new_message in routed]
    counts = Counter(draft.queue_id for draft in drafts)
    for queue_id, queue in queues.items():
        await check_capacity(ports.queues, queue, counts[queue_id])
    sharing = {queue_id for queue_id, queue in queues.items() if queue.shares_bodies}
    return with_shared_bodies(drafts, sharing, ports.new_id)


def with_ids(
    new_messages: Sequence[NewMessage], new_id: Callable[[], str], pointer: str = "/messages"
) -> list[NewMessage]:
    """Return the messages, each with an id. Refuses with `InvalidRequest` two messages with one id.

    `pointer` is that of the messages in the request.
    """
    identified = [
        new_message
        if new_message.envelope.message_id
        else replace(new_message, envelope=replace(new_message.envelope, message_id=new_id()))
        for new_message in new_messages
    ]
    seen: set[str] = set()
    for index, new_message in enumerate(identified):
        if new_message.envelope.message_id in seen:
            raise invalid_at(f"{pointer}/{index}/message_id", "The messages of one publish have different ids.")
        seen.add(new_message.envelope.message_id)
    return identified


def message_ids(ports: TopicPorts, attempt: Attempt | None) -> Callable[[], str]:
    """Return the function that creates missing message ids. Each try of an attempt gets the same ids."""
    return ports.sending.new_id if attempt is None else _AttemptIds(attempt)


class _AttemptIds:
    """Creates the same message ids at each try of an attempt, and other ids for another payload."""

    def __init__(self, attempt: Attempt) -> None:
        self._seed = attempt.key + attempt.fingerprint
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return blake2b(self._seed + self._count.to_bytes(4, "big"), digest_size=16).hexdigest()


async def _create_drafts(
    ports: TopicPorts, topic: str, identified: Sequence[NewMessage], held: GrowingReservation
) -> list[Draft]:
    return await draft_all(ports.sending, await route(ports, [(topic, one) for one in identified], held))


async def _with_current_routes(ports: TopicPorts, store: Callable[[GrowingReservation], Awaitable[Result]]) -> Result:
    """Run `store`; if a queue is gone, clear the caches and run it again. The reservation of its copies lasts until then."""
    for _ in range(_MAX_TRIES):
        try:
            async with ports.budget.reserve_more() as held:
                return await store(held)
        except QueueGone:
            # This also clears the topics, which are cached with their queues. A queue that these forward to may be gone.
            ports.sending.queue_cache.clear()
    raise StoreUnavailable("Target queues of this topic are being deleted; this request had no effect.")


def published_results(identified: Sequence[NewMessage], receipts: Sequence[Receipt]) -> list[Published]:
    """Return what became of each published message. Its receipts are those with its message id."""
    matched = Counter(receipt.message_id for receipt in receipts)
    duplicates = Counter(receipt.message_id for receipt in receipts if receipt.duplicate)
    ids = (new_message.envelope.message_id for new_message in identified)
    return [Published(message_id, matched[message_id], duplicates[message_id]) for message_id in ids]


def uncommitted_results(identified: Sequence[NewMessage], ids_of_copies: Sequence[str]) -> list[Published]:
    """Return what became of each published message whose copies, with these ids, wait for a commit."""
    matched = Counter(ids_of_copies)
    ids = (new_message.envelope.message_id for new_message in identified)
    return [Published(message_id, matched[message_id], duplicates=0, is_committed=False) for message_id in ids]
