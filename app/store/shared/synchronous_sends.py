"""Synchronous sends, whose senders wait for the settlement. Each ends in its own transaction.

Its message is a row like any other, with a `home_state` of its own. The statements of ordinary settlements skip
it. Here every end deletes the row and stores the outcome for the sender. So the outcome is stored if and only if the row
is gone.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from app.broker.ports.settling import SynchronousSendEnd
from app.domain.message import Draft, Receipt
from app.domain.queue import SYNCHRONOUS_LEVEL
from app.domain.settlement import TOMBSTONE_RETENTION, Outcome, Removal, Settlement
from app.domain.synchronous_send import COMPLETIONS, SynchronousSendState, fence_holds, lock_has_ended
from app.store.shared.archive import archive_and_delete
from app.store.shared.database import Database, SqlSession
from app.store.shared.rows import OUTCOMES


async def add_synchronous_sends(session: SqlSession, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
    """Mark the messages that this transaction has stored and whose senders wait."""
    for draft, receipt in zip(drafts, receipts, strict=True):
        if draft.offer_retention:
            number = receipt.sequence_number
            await session.change("mark_offered", sequence_number=number)
            await session.change(
                "add_offer", sequence_number=number, queue_id=draft.queue_id, retention=draft.offer_retention
            )
            await session.change("need_level", id=draft.queue_id, feature_level=SYNCHRONOUS_LEVEL)


async def end_synchronous_sends(session: SqlSession, numbers: Sequence[int], outcome: Outcome) -> list[int]:
    """Delete the messages of synchronous sends among these, which this transaction has locked. Return the numbers of the others."""
    by_queue: defaultdict[str, list[int]] = defaultdict(list)
    for number, queue in await session.fetch("open_offers", numbers=list(numbers)):
        by_queue[queue].append(number)
    for queue, offered in by_queue.items():
        await _remove(session, offered, queue, outcome)
    ended = {number for offered in by_queue.values() for number in offered}
    return [number for number in numbers if number not in ended]


class SynchronousSendRecords:
    """Sends whose senders wait for the settlement, in `SendingStore` and `SettlingStore`."""

    def __init__(self, database: Database) -> None:
        self._offers = database

    async def settle_offer(self, settlement: Settlement, cause: SynchronousSendEnd) -> bool:
        """See `SettlingStore`."""
        return await self._offers.transaction(partial(_settle, settlement=settlement, cause=cause))

    async def withdraw_offer(self, sequence_number: int) -> SynchronousSendState:
        """See `SendingStore`."""
        return await self._offers.transaction(partial(_withdraw, sequence_number=sequence_number))

    async def read_offer(self, sequence_number: int) -> SynchronousSendState:
        """See `SendingStore`."""
        return await _read(self._offers, sequence_number)


async def _settle(session: SqlSession, settlement: Settlement, cause: SynchronousSendEnd) -> bool:
    token, fence = settlement.token, settlement.fence
    found_rows = await session.fetch(
        "offer_for_update",
        sequence_number=token.sequence_number,
        queue_id=settlement.queue_id,
        lock_token=token.secret,
    )
    condition = fence_holds if cause is SynchronousSendEnd.SETTLED else lock_has_ended
    if not any(condition(fence, generation, is_live=bool(is_live)) for generation, is_live in found_rows):
        return False
    await _end(session, settlement)
    return True


async def _end(session: SqlSession, settlement: Settlement) -> None:
    numbers = [settlement.token.sequence_number]
    if not isinstance(settlement, Removal) or settlement.outcome not in COMPLETIONS:
        await end_synchronous_sends(session, numbers, settlement.outcome)
        return
    await session.change("end_offers", numbers=numbers, outcome=settlement.outcome.value, reply=settlement.reply)
    if settlement.retention < TOMBSTONE_RETENTION:
        await _end_deliveries(session, numbers, settlement.outcome)
    await archive_and_delete(session, numbers, settlement.queue, settlement.outcome, settlement.retention)


async def _withdraw(session: SqlSession, sequence_number: int) -> SynchronousSendState:
    if await session.fetch("message_for_update", sequence_number=sequence_number):
        await end_synchronous_sends(session, [sequence_number], Outcome.WITHDRAWN)
    state = await _read(session, sequence_number)
    return await _read_end(session, sequence_number, was_delivered=True) if state.outcome is None else state


async def _remove(session: SqlSession, numbers: Sequence[int], queue: str, outcome: Outcome) -> None:
    """Delete messages without archiving them. Only the tombstones of their deliveries and their outcomes stay."""
    await session.change("end_offers", numbers=numbers, outcome=outcome.value, reply=None)
    await _end_deliveries(session, numbers, outcome)
    await archive_and_delete(session, numbers, queue=queue, outcome=outcome, retention=0)


async def _end_deliveries(session: SqlSession, numbers: Sequence[int], outcome: Outcome) -> None:
    await session.change(
        "end_deliveries", numbers=numbers, outcome=outcome.value, tombstone_retention=TOMBSTONE_RETENTION
    )


async def _read(session: SqlSession, sequence_number: int) -> SynchronousSendState:
    """Return the state of an offered message."""
    for outcome, delivery_count, reply in await session.fetch("read_offer", sequence_number=sequence_number):
        return SynchronousSendState(None if outcome is None else OUTCOMES[outcome], delivery_count > 0, reply)
    return await _read_end(session, sequence_number, was_delivered=False)


async def _read_end(session: SqlSession, sequence_number: int, *, was_delivered: bool) -> SynchronousSendState:
    """Return the outcome of a message whose record has none, or whose record and reply were deleted.

    The first is so if an older server settled it, the second if its sender was paused for longer than the record is
    kept. Without any trace it counts as withdrawn, so that no repeat waits for it.
    """
    for (outcome,) in await session.fetch("ended_outcome", sequence_number=sequence_number):
        return SynchronousSendState(OUTCOMES[outcome], was_delivered=True, reply=None)
    return SynchronousSendState(Outcome.WITHDRAWN, was_delivered, reply=None)
