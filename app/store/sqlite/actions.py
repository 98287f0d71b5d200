"""The actions of the one writer of SQLite. Each takes effect with the transaction that runs it."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from app.broker.ports.sending import QueueGone
from app.broker.ports.settling import Admitted, Extended, Extension
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.settlement import TOMBSTONE_RETENTION, LockToken, Move, Removal, Settlement
from app.domain.weight import count_that_fit
from app.store.shared import message_rows, rows
from app.store.shared.groups import GroupKey, admit, entered_groups, leaves_group, with_admitted
from app.store.shared.history import (
    any_keeps_history,
    record_delivered,
    record_renewed,
    record_sent,
    record_settled,
)
from app.store.shared.rows import Row
from app.store.shared.settlement_params import move_params, tombstone_params
from app.store.shared.shared_bodies import shared_bodies
from app.store.sqlite.database import Transaction, run_to_completion

NEXT_STATEMENTS = {MessageState.AVAILABLE: "next_available", MessageState.DEAD_LETTERED: "next_dead_lettered"}


def send(transaction: Transaction, drafts: Sequence[Draft]) -> list[Receipt]:
    """Store drafts and count them, and return the first receipt of each duplicate. Refuses with `QueueGone`.

    A draft is blocked if its group has no free place.
    """
    for queue_id in {draft.queue_id for draft in drafts}:
        if not transaction.rows("served_queue", id=queue_id):
            raise QueueGone
    for body_id, body in shared_bodies(drafts).items():
        transaction.execute("add_shared_body", id=body_id, body=body)
    receipts = [_store(transaction, draft) for draft in drafts]
    stored = Counter(draft.queue_id for draft, receipt in zip(drafts, receipts, strict=True) if not receipt.duplicate)
    for queue_id, accepted in stored.items():
        transaction.execute("count_accepted", queue_id=queue_id, accepted=accepted)
    admitted = _admit(transaction, entered_groups(drafts, receipts))
    correct = partial(with_admitted, drafts=drafts, receipts=receipts, admitted=admitted)
    receipts, others = run_to_completion(correct, transaction)
    transaction.admitted += others
    if any_keeps_history(drafts):
        run_to_completion(partial(record_sent, drafts=drafts, receipts=receipts, admitted=others), transaction)
    return receipts


def _store(transaction: Transaction, draft: Draft) -> Receipt:
    if draft.duplicate_window and (receipt := _first_receipt(transaction, draft)):
        return receipt
    values = dict(zip(message_rows.DRAFT_COLUMNS, message_rows.draft_row(draft), strict=True))
    ((number, enqueued_at, state),) = transaction.rows("send", **values)
    if draft.duplicate_window:
        transaction.execute(
            "save_receipt",
            queue_id=draft.queue_id,
            message_id=draft.envelope.message_id,
            sequence_number=number,
            state=state,
            enqueued_at=enqueued_at,
            duplicate_window=draft.duplicate_window,
        )
    return Receipt(number, draft.envelope.message_id, enqueued_at, rows.STATES[state])


def _first_receipt(transaction: Transaction, draft: Draft) -> Receipt | None:
    """Return the first receipt for this message id if it was sent within the window."""
    message_id = draft.envelope.message_id
    for number, enqueued_at, state in transaction.rows("first_receipt", queue_id=draft.queue_id, message_id=message_id):
        return Receipt(number, message_id, enqueued_at, rows.STATES.get(state), duplicate=True)
    return None


def claim(transaction: Transaction, wanted_claim: Claim) -> list[Message]:
    """Lock the next messages of a queue for a receiver."""
    found_rows = transaction.rows(
        NEXT_STATEMENTS[wanted_claim.source], queue_id=wanted_claim.queue_id, limit=wanted_claim.max_messages
    )
    return _lock(transaction, wanted_claim, found_rows)


def claim_by_number(transaction: Transaction, claim: Claim, numbers: list[int]) -> list[Message]:
    """Lock those of these messages that are in the claim's source state, in this order."""
    found_rows = transaction.rows("by_number", numbers=numbers, queue_id=claim.queue_id, source=claim.source.value)
    by_number = {row[0]: row for row in found_rows}
    in_order = [by_number[number] for number in dict.fromkeys(numbers) if number in by_number]
    return _lock(transaction, claim, in_order[: claim.max_messages])


def _lock(transaction: Transaction, claim: Claim, found_rows: Sequence[Row]) -> list[Message]:
    """Lock these messages for the receiver, in this order, up to its budget."""
    if not found_rows:
        return []
    weights = [weight for _, weight, _ in found_rows]
    count = count_that_fit(weights, claim.max_bytes)
    transaction.result_weight += sum(weights[:count])
    numbers = [number for number, *_ in found_rows[:count]]
    locked = transaction.rows("lock", numbers=numbers, lock_duration=claim.lock_duration, receiver_id=claim.receiver_id)
    if any(body_id is not None for *_, body_id in found_rows[:count]):
        locked = transaction.rows("still_locked", numbers=numbers)
    received = (message_rows.message(row, transaction.started_at) for row in locked)
    by_number = {message.sequence_number: message for message in received}
    messages = [by_number[number] for number in numbers]
    if claim.keeps_history:
        run_to_completion(partial(record_delivered, claims=[claim], served=[messages]), transaction)
    return messages


def still_locked(transaction: Transaction, tokens: Sequence[LockToken]) -> list[Message]:
    """Return the messages that these tokens still lock, in the order of the tokens."""
    found_rows = transaction.rows("still_locked", numbers=[token.sequence_number for token in tokens])
    return message_rows.messages_locked_by(tokens, found_rows, transaction.started_at)


def remove(transaction: Transaction, removal: Removal) -> bool:
    """Remove a locked message into the archive or leave a tombstone. Return whether the fence held."""
    left = _groups_behind_own_fence(transaction, removal)
    if left is None:
        return False
    numbers = [removal.token.sequence_number]
    if removal.retention:
        transaction.execute(
            "archive_messages",
            numbers=numbers,
            queue=removal.queue,
            outcome=removal.outcome.value,
            retention=removal.retention,
        )
        transaction.execute("add_unsealed", numbers=numbers)
    else:
        transaction.execute("count_unarchived", numbers=numbers, queue=removal.queue)
    if removal.retention < TOMBSTONE_RETENTION:
        transaction.execute("add_tombstones", **tombstone_params(removal))
    transaction.execute("delete_messages", numbers=numbers)
    admitted = _admit(transaction, left)
    transaction.admitted += admitted
    _record_settled(transaction, removal, admitted)
    return True


def move(transaction: Transaction, settlement: Move) -> bool:
    """End a lock and move its message. Return whether the fence held."""
    left = _groups_behind_own_fence(transaction, settlement)
    return left is not None and _end_lock(transaction, settlement, left)


def is_effective(transaction: Transaction, settlement: Settlement) -> bool:
    """Return whether the fence of a settlement holds now. Changes nothing."""
    return _groups_behind_own_fence(transaction, settlement) is not None


def release(transaction: Transaction, settlement: Move) -> bool:
    """End an expired lock and move its message. Return whether the fence held."""
    left = _groups_behind_fence(
        transaction, "lock_ended", settlement, generation_above=settlement.fence.generation_above
    )
    return left is not None and _end_lock(transaction, settlement, left)


def _groups_behind_own_fence(transaction: Transaction, settlement: Settlement) -> list[GroupKey] | None:
    """Return what `_groups_behind_fence` does, for the fence that the settlement carries."""
    return _groups_behind_fence(
        transaction,
        "fence_holds",
        settlement,
        generation_above=settlement.fence.generation_above,
        max_generation=settlement.fence.max_generation,
    )


def _groups_behind_fence(
    transaction: Transaction, fence: str, settlement: Settlement, **generations: int
) -> list[GroupKey] | None:
    """Return the group in which the message has a place, if it has one, or None if the fence does not hold."""
    token = settlement.token
    found_rows = transaction.rows(
        fence,
        sequence_number=token.sequence_number,
        lock_token=token.secret,
        queue_id=settlement.queue_id,
        knows_group=int(settlement.is_in_group or not leaves_group(settlement)),
        **generations,
    )
    if not found_rows:
        return None
    return [(settlement.queue_id, group_id) for (group_id,) in found_rows if group_id is not None]


def _end_lock(transaction: Transaction, move: Move, left: list[GroupKey]) -> bool:
    """End the lock by this move. This transaction has checked its fence."""
    transaction.execute("add_tombstones", **tombstone_params(move))
    transaction.execute("end_lock", **move_params(move))
    admitted = _admit(transaction, left) if leaves_group(move) else []
    transaction.admitted += admitted
    _record_settled(transaction, move, admitted)
    return True


def _admit(transaction: Transaction, groups: list[GroupKey]) -> list[Admitted]:
    return run_to_completion(partial(admit, groups=groups), transaction) if groups else []


def _record_settled(transaction: Transaction, settlement: Move | Removal, admitted: Sequence[Admitted]) -> None:
    if settlement.keeps_history:
        work = partial(record_settled, settlements=[settlement], effective=[True], admitted=admitted)
        run_to_completion(work, transaction)


def extend(transaction: Transaction, extension: Extension) -> Extended | None:
    """Extend a lock, or return None if the fence did not hold."""
    number = extension.token.sequence_number
    before = transaction.rows("locked_until", sequence_number=number)
    extended = transaction.rows(
        "extend",
        sequence_number=number,
        lock_token=extension.token.secret,
        queue_id=extension.queue_id,
        duration=extension.duration,
        expired_generation=extension.expired_generation,
        max_generation=extension.max_generation,
        is_exact=int(extension.is_exact),
    )
    if extended and extension.keeps_history:
        run_to_completion(partial(record_renewed, extensions=[extension], effective=[True]), transaction)
    return Extended(*extended[0], *before[0], read_started_at=transaction.started_at) if extended else None


def fold_accepted(transaction: Transaction) -> None:
    """Add up the counts of accepted messages."""
    transaction.execute("fold_accepted")
    transaction.execute("delete_folded")
