"""Resubmit: replace a dead-lettered message by a new one in one transaction, so that receivers get it once.

Crash windows: before the claim's commit nothing has happened. After it the message is locked, and returns to the dead
letters when its lock expires. The transaction that completes it stores the new message, so neither takes effect alone. A
repeat after that finds no dead letter.
"""

import asyncio

from app.broker.administration.browse import read_message
from app.broker.administration.ports import AdministrationPorts
from app.broker.sending.send import create_drafts
from app.broker.settling.outcomes import complete
from app.broker.settling.settle import release_undelivered
from app.broker.transactions.execute import UnitRequest, UnitSend, UnitSettlement, execute
from app.domain.delivery import Claim
from app.domain.message import Message, MessageState, Receipt
from app.domain.queue import Queue, check_receive_enabled
from app.domain.refusals import Conflict, MessageLocked, PreconditionFailed, Refusal, StoreUnavailable
from app.domain.sending import NewMessage
from app.domain.settlement import token_of

CHANGED = "The message was changed since it was read."


async def resubmit(
    ports: AdministrationPorts, queue: Queue, sequence_number: int, etag: str, new_message: NewMessage, receiver_id: str
) -> Receipt:
    """Complete a dead-lettered message, and send a new one to its queue. Both take effect, or neither.

    `receiver_id` holds the message meanwhile. Refuses as `send` does; with `MessageNotFound`, with `Conflict` if the
    message is not dead-lettered, with `MessageLocked` while a receiver holds it, with `PreconditionFailed` if its ETag is
    another one, and with `ReceiveDisabled`. A refused message stays a dead letter.
    """
    check_receive_enabled(queue)
    seen = await read_message(ports, queue, sequence_number)
    if seen.state is MessageState.LOCKED:
        raise MessageLocked
    if seen.state is not MessageState.DEAD_LETTERED:
        raise Conflict("Only a dead-lettered message is resubmitted.")
    if seen.etag != etag:
        raise PreconditionFailed(CHANGED)
    # A claim changes the ETag of the message, so what the send would refuse is refused before.
    sending = ports.transactions.sending
    await create_drafts(sending, await sending.queue_cache.by_name_for_send(queue.name, [new_message]), [new_message])
    claimed = await _claim(ports, queue, seen, receiver_id)
    try:
        if claimed.envelope != seen.envelope:
            raise PreconditionFailed(CHANGED)
        settlement = UnitSettlement(queue, complete(queue, token_of(claimed)))
        unit = UnitRequest([settlement], [UnitSend(queue.name, new_message)])
        done = await execute(ports.transactions, unit, None)
    except (asyncio.CancelledError, Refusal, StoreUnavailable):
        # The store may have committed before it became unavailable. The release then has no effect.
        await release_undelivered(ports.transactions.settling, queue, [claimed])
        raise
    (receipt,) = done.result.receipts
    return receipt


async def _claim(ports: AdministrationPorts, queue: Queue, seen: Message, receiver_id: str) -> Message:
    """Lock the message. Refuses with `MessageLocked` if another request was faster.

    The lock expires in every queue, because a server that dies does not ask for its messages again.
    """
    limits = ports.limits
    claim = Claim(
        queue.id,
        1,
        queue.settings.lock_duration,
        receiver_id,
        MessageState.DEAD_LETTERED,
        limits.max_bytes,
        queue.settings.history,
    )
    async with limits.budget.reserve(queue.settings.max_message_bytes):
        claimed = await ports.store.claim_by_number(claim, [seen.sequence_number])
    if not claimed:
        raise MessageLocked
    ports.counters.count_messages(queue.id, "delivered")
    return claimed[0]
