"""Publish: a topic copies a message to the queue of every subscription that matches it, to all of them or to none.

One statement of the store takes the copies for all queues, so the crash windows are those of a send. A copy is a message
of its queue like any other: the settings of that queue give its time to live, find duplicates and limit its size.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from app.broker.filters import BATCH_SIZE
from app.broker.forwarding import last_queue
from app.broker.ports import Attempt, AttemptResult, QueueGone
from app.broker.queue_capacity import check_capacity
from app.broker.send import SendPorts
from app.broker.subscription_filter import view_of
from app.broker.topic_cache import TopicCache
from app.domain.message import Draft, Receipt
from app.domain.queue import Queue, check_send_enabled
from app.domain.refusals import MessageTooLarge, Refusal, StoreUnavailable, invalid_at
from app.domain.sending import NewMessage, create_draft
from app.domain.topic import MAX_PUBLISHED_BYTES, Published, copy_for
from app.domain.weight import weight_of

Result = TypeVar("Result")

MAX_TRIES = 3
"""How often a publish reads its topic. It is read again if a target queue was deleted since."""

RoutedMessage: TypeAlias = tuple[Queue, NewMessage]
"""A message with the id that all its copies have, and a queue that gets one."""


@dataclass(frozen=True, slots=True)
class PublishPorts:
    """What publishes use."""

    sending: SendPorts
    topic_cache: TopicCache


async def publish(ports: PublishPorts, topic: str, new_messages: Sequence[NewMessage]) -> list[Published]:
    """Store the copies of all messages or none; return what became of each message, in order.

    Refuses with `TopicNotFound`, as `route` does, and as a send to each of the queues would be.
    """
    identified = with_ids(new_messages, message_ids(ports, None))

    async def store() -> list[Published]:
        drafts = await _create_drafts(ports, topic, identified)
        receipts = await ports.sending.messages.send(drafts) if drafts else []
        ports.sending.receivers.notify_sent(drafts, receipts)
        return published_results(identified, receipts)

    return await _with_current_routes(ports, store)


async def publish_once(
    ports: PublishPorts, topic: str, new_messages: Sequence[NewMessage], attempt: Attempt
) -> AttemptResult[list[Published]]:
    """Publish once for each Idempotency-Key. A repeat gets the first response, also if nothing matched.

    Missing message ids are computed from the attempt, so that a repeat finds the receipts of each message.
    """
    identified = with_ids(new_messages, message_ids(ports, attempt))

    async def store() -> AttemptResult[list[Published]]:
        drafts = await _create_drafts(ports, topic, identified)
        once = await ports.sending.messages.send_once(drafts, attempt)
        if not once.replayed:
            ports.sending.receivers.notify_sent(drafts, once.result)
        return AttemptResult(published_results(identified, once.result), once.replayed)

    try:
        return await _with_current_routes(ports, store)
    except Refusal:
        receipts = await ports.sending.messages.find_send_result(attempt)
        if receipts is None:
            raise
        return AttemptResult(published_results(identified, receipts), replayed=True)


async def route(ports: PublishPorts, topic: str, new_messages: Sequence[NewMessage]) -> list[RoutedMessage]:
    """Return a copy of each message for each subscription that matches it, in the order of messages.

    Refuses with `TopicNotFound`, with `QueueNotFound` if a target queue no longer exists, and as `last_queue` does if one
    forwards. Refuses with `InvalidRequest` a copy with too many properties, or two messages with one id. Refuses with
    `MessageTooLarge` copies that have more bytes together than one statement stores.
    """
    routes = (await ports.topic_cache.by_name(topic)).routes
    identified = with_ids(new_messages, ports.sending.new_id)
    limit = max(MAX_PUBLISHED_BYTES, sum(map(weight_of, identified)))
    routed: list[RoutedMessage] = []
    weight = 0
    for new_message in identified:
        view = view_of(new_message)
        for index, route_ in enumerate(routes, 1):
            if index % BATCH_SIZE == 0:
                await asyncio.sleep(0)
            if not route_.matches(view):
                continue
            copy = copy_for(route_.subscription, new_message)
            weight += weight_of(copy)
            if weight > limit:
                raise MessageTooLarge(f"The copies of this publish have more than {limit} bytes together.")
            routed.append((await last_queue(ports.sending.queue_cache, route_.queue), copy))
    return routed


async def draft_all(ports: SendPorts, routed: Sequence[RoutedMessage]) -> list[Draft]:
    """Build drafts of messages that their queues accept now, in order.

    Refuses with `SendDisabled`, `MessageTooLarge` or `QueueFull`.
    """
    queues = {queue.id: queue for queue, _ in routed}
    for queue in queues.values():
        check_send_enabled(queue)
    drafts = [create_draft(new_message, queue, new_message.envelope.message_id) for queue, new_message in routed]
    counts = Counter(draft.queue_id for draft in drafts)
    for queue_id, queue in queues.items():
        await check_capacity(ports.queue_totals, queue, counts[queue_id])
    return drafts


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


def message_ids(ports: PublishPorts, attempt: Attempt | None) -> Callable[[], str]:
    """Return what makes the missing ids of published messages: always the same ones for an attempt."""
    return ports.sending.new_id if attempt is None else _AttemptIds(attempt)


class _AttemptIds:
    """Yields the same message ids for each try of an attempt, and other ones for another payload."""

    def __init__(self, attempt: Attempt) -> None:
        self._seed = attempt.key + attempt.fingerprint
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return blake2b(self._seed + self._count.to_bytes(4, "big"), digest_size=16).hexdigest()


async def _create_drafts(ports: PublishPorts, topic: str, identified: Sequence[NewMessage]) -> list[Draft]:
    return await draft_all(ports.sending, await route(ports, topic, identified))


async def _with_current_routes(ports: PublishPorts, store: Callable[[], Awaitable[Result]]) -> Result:
    """Run `store`; if a queue is gone, clear the caches and run it again."""
    for _ in range(MAX_TRIES):
        try:
            return await store()
        except QueueGone:
            # Also the topics, because they are cached with their queues. One of those to which they forward may be gone.
            ports.sending.queue_cache.clear()
    raise StoreUnavailable("Target queues of this topic are being deleted; this request had no effect.")


def published_results(identified: Sequence[NewMessage], receipts: Sequence[Receipt]) -> list[Published]:
    """Return what became of each published message. Its receipts are those with its message id."""
    matched = Counter(receipt.message_id for receipt in receipts)
    duplicates = Counter(receipt.message_id for receipt in receipts if receipt.duplicate)
    ids = (new_message.envelope.message_id for new_message in identified)
    return [Published(message_id, matched[message_id], duplicates[message_id]) for message_id in ids]
