"""Send synchronously: make a message available to receivers, and answer with its settlement (S1.1, S1.2, S1.36, S1.37).

The message is stored while its sender waits. Receivers claim it like any other message. A completion archives it. Every
other settlement, and the end of its lock, deletes it. When the wait ends, the sender withdraws the message in one
transaction, which decides the outcome: if it deletes the row, no receiver can complete the message; if the row is gone,
the message has already ended.

Crash windows: before the commit of the offer nothing has happened. After it the process of the sender may die. Then the
message is deleted when its time to live or its lock ends, and a repeat under the same Idempotency-Key gets the outcome.
"""

import asyncio
from contextlib import suppress

from app.broker.attempts import first_result
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.sending import QueueGone
from app.broker.sending.ports import SendingPorts
from app.broker.sending.target_queue import LOOKUPS, check_capacity, last_queue
from app.domain.refusals import Refusal
from app.domain.sending import NewMessage
from app.domain.synchronous_send import (
    ANSWER_RETENTION,
    COMPLETIONS,
    Completion,
    SynchronousSendState,
    create_synchronous_draft,
    refusal_of,
    wait_key_of_sender,
)
from app.domain.work_unit import WorkUnit, WorkUnitResult


async def send_synchronously(
    ports: SendingPorts, name: str, new_message: NewMessage, wait_seconds: float, attempt: Attempt | None
) -> AttemptResult[Completion]:
    """Offer the message for `wait_seconds`, and return how it was completed.

    Refuses as `create_synchronous_draft` and `send` do. Refuses with `NoReceiver`, `NotAccepted` or `NoAnswer` if the message was not
    completed; then it is deleted. A repeat of an attempt waits for the first message. A cancelled call withdraws the
    message, even if it is just being stored, unless it has an attempt that the client may repeat.
    """
    deadline = ports.clock.monotonic() + wait_seconds
    offering = asyncio.ensure_future(_offer(ports, name, new_message, wait_seconds, attempt))
    try:
        # The cancellation of a commit would leave it unknown whether the message is stored, and under which number.
        offered = await asyncio.shield(offering)
        (receipt,) = offered.result.receipts
        state = await _outcome(ports, receipt.sequence_number, deadline)
    except asyncio.CancelledError:
        await asyncio.wait({offering})
        if attempt is None:
            await _withdraw(ports, offering)
        raise
    if state.outcome is None or state.outcome not in COMPLETIONS:
        raise refusal_of(state)
    completion = Completion(receipt.sequence_number, receipt.message_id, state.outcome, state.reply)
    return AttemptResult(completion, offered.replayed)


async def _offer(
    ports: SendingPorts, name: str, new_message: NewMessage, wait_seconds: float, attempt: Attempt | None
) -> AttemptResult[WorkUnitResult]:
    retention = ANSWER_RETENTION if attempt is None else attempt.retention
    try:
        for _ in range(LOOKUPS):
            queue = await ports.queue_cache.by_name_for_send(name, [new_message])
            last = await last_queue(ports.queue_cache, queue)
            default_id = new_message.envelope.message_id or ports.new_id()
            draft = create_synchronous_draft(new_message, last, default_id, wait_seconds, retention)
            await check_capacity(ports.queues, last, 1)
            try:
                stored = await ports.store.execute(WorkUnit(drafts=[draft]), attempt)
            except QueueGone:
                ports.queue_cache.forget_chain(queue)
                continue
            if not stored.replayed:
                ports.receivers.notify_sent([draft], stored.result.receipts)
            return stored
        raise ports.queue_cache.not_found(name)
    except Refusal:
        if (first := await first_result(attempt, ports.store.find_execution_result)) is None:
            raise
        return first


async def _outcome(ports: SendingPorts, sequence_number: int, deadline: float) -> SynchronousSendState:
    """Wait until the message has ended. Withdraw it at the deadline."""
    with ports.wait_queue.waiter(wait_key_of_sender(sequence_number)) as waiter:
        while True:
            state = await ports.store.read_offer(sequence_number)
            if state.outcome is not None:
                return state
            if not await waiter.woken(deadline - ports.clock.monotonic()):
                return await ports.store.withdraw_offer(sequence_number)


async def _withdraw(ports: SendingPorts, offering: asyncio.Future[AttemptResult[WorkUnitResult]]) -> None:
    """Withdraw a message whose sender has disconnected. If the store is unavailable, its time to live ends it."""
    with suppress(Refusal):
        await ports.store.withdraw_offer(offering.result().result.receipts[0].sequence_number)
