"""Send: a message is stored durably before its sender gets a response.

Crash windows: before the commit nothing is stored and the sender has no response. After it the message is stored, and a
repeat is recognised by its Idempotency-Key or, if the queue detects duplicates, by its message id. The wake-up that
follows may be lost: receivers also poll periodically.
"""

from collections.abc import Sequence
from itertools import chain, repeat

from app.broker.attempts import first_result
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.sending import QueueGone
from app.broker.sending.ports import SendingPorts
from app.broker.sending.target_queue import LOOKUPS, check_capacity, free_capacity, last_queue, queue_full
from app.domain.message import Draft, Receipt
from app.domain.queue import Queue
from app.domain.refusals import Refusal
from app.domain.sending import NewMessage, create_draft


async def send(
    ports: SendingPorts, name: str, new_messages: Sequence[NewMessage], attempt: Attempt | None = None
) -> AttemptResult[list[Receipt]]:
    """Store all messages or none in the queue of this name; return receipts in order. Refuses as `create_drafts` does.

    A repeat of an attempt gets the first result, even if its queue has since become full, disabled for sends or deleted.
    """
    try:
        for _ in range(LOOKUPS):
            queue = await ports.queue_cache.by_name_for_send(name, new_messages)
            try:
                return await store_drafts(ports, await create_drafts(ports, queue, new_messages), attempt)
            except QueueGone:
                ports.queue_cache.forget_chain(queue)
        raise ports.queue_cache.not_found(name)
    except Refusal:
        if (first := await first_result(attempt, ports.store.find_send_result)) is None:
            raise
        return first


async def store_drafts(
    ports: SendingPorts, drafts: Sequence[Draft], attempt: Attempt | None
) -> AttemptResult[list[Receipt]]:
    """Store drafts, once for each attempt, and wake receivers. Without drafts, only an attempt is stored."""
    if attempt is not None:
        stored = await ports.store.send_or_replay(drafts, attempt)
    else:
        stored = AttemptResult(await ports.store.send(drafts) if drafts else [], replayed=False)
    if not stored.replayed:
        ports.receivers.notify_sent(drafts, stored.result)
    return stored


async def send_each(ports: SendingPorts, name: str, entries: Sequence[NewMessage | Refusal]) -> list[Receipt | Refusal]:
    """Store each message that is accepted; return a receipt or refusal for each. An entry that is a refusal is its own result.

    If the queue has room for only some, it takes the first ones. Without messages, the queue is neither read nor created.
    Refuses with `StoreNotDurable`, and as `last_queue` does.
    """
    refusals = [entry for entry in entries if isinstance(entry, Refusal)]
    if len(refusals) == len(entries):
        return [*refusals]
    for _ in range(LOOKUPS):
        queue = await ports.queue_cache.by_name_for_send(name)
        await ports.durability.check()
        last = await last_queue(ports.queue_cache, queue)
        accepted = [entry if isinstance(entry, Refusal) else _draft_or_refusal(ports, last, entry) for entry in entries]
        drafts = [entry for entry in accepted if isinstance(entry, Draft)]
        fitting = drafts[: await free_capacity(ports.queues, last, len(drafts))]
        try:
            receipts = await ports.store.send(fitting) if fitting else []
        except QueueGone:
            ports.queue_cache.forget_chain(queue)
            continue
        ports.receivers.notify_sent(fitting, receipts)
        answers = chain(receipts, repeat(queue_full(last)))
        return [next(answers) if isinstance(entry, Draft) else entry for entry in accepted]
    raise ports.queue_cache.not_found(name)


async def send_volatile(ports: SendingPorts, name: str, new_message: NewMessage) -> str:
    """Accept a volatile message before it is stored (S1.8); return its message id."""
    queue = await ports.queue_cache.by_name_for_send(name, [new_message])
    last = await last_queue(ports.queue_cache, queue)
    draft = _create_draft(ports, last, new_message)
    await check_capacity(ports.queues, last, 1)
    ports.volatile_buffer.put(draft, last.name)
    return draft.envelope.message_id


async def create_drafts(ports: SendingPorts, queue: Queue, new_messages: Sequence[NewMessage]) -> list[Draft]:
    """Build drafts of durable messages that the queue accepts now, or the last queue to which it forwards.

    Refuses with `StoreNotDurable`, `SendDisabled`, `MessageTooLarge` or `QueueFull`, and as `last_queue` does.
    """
    await ports.durability.check()
    last = await last_queue(ports.queue_cache, queue)
    drafts = [_create_draft(ports, last, new_message) for new_message in new_messages]
    await check_capacity(ports.queues, last, len(drafts))
    return drafts


def _create_draft(ports: SendingPorts, queue: Queue, new_message: NewMessage) -> Draft:
    return create_draft(new_message, queue, new_message.envelope.message_id or ports.new_id())


def _draft_or_refusal(ports: SendingPorts, queue: Queue, new_message: NewMessage) -> Draft | Refusal:
    try:
        return _create_draft(ports, queue, new_message)
    except Refusal as refusal:
        return refusal.as_result()
