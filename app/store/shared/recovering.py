"""Recoveries: the locked messages of a receiver are locked again under new tokens, in one transaction."""

from secrets import token_bytes

from app.broker.ports.receiving import Recovered
from app.domain.delivery import Recovery, delivery_position, lock_end
from app.domain.history import Event
from app.domain.settlement import SECRET_BYTES, TOMBSTONE_RETENTION, LockToken, Outcome
from app.domain.weight import count_that_fit
from app.store.shared import message_rows, rows
from app.store.shared.database import SqlSession
from app.store.shared.history import record


async def recover(session: SqlSession, recovery: Recovery) -> Recovered:
    """Give the receiver another token for each message that it holds, and end the delivery under the old one.

    Rows that another transaction has locked stay as they are: a settlement or another recovery has them.
    """
    found_rows = await session.fetch(
        "held_by_receiver",
        queue_id=recovery.queue_id,
        receiver_id=recovery.receiver_id,
        limit=recovery.max_messages,
    )
    held = found_rows[: count_that_fit([weight for *_, weight in found_rows], recovery.max_bytes)]
    if not held:
        return Recovered([], [])
    numbers = [number for number, *_ in held]
    *_, now, _ = held[0]
    await session.change(
        "supersede",
        numbers=numbers,
        outcome=Outcome.RECOVERED.value,
        settled_at=now,
        remove_at=now + TOMBSTONE_RETENTION,
    )
    for number, _, _, home_state, expires_at, *_ in held:
        await session.change(
            "lock_again",
            sequence_number=number,
            lock_token=token_bytes(SECRET_BYTES),
            deliveries=int(recovery.counted),
            locked_at=now,
            locked_until=lock_end(now, recovery.lock_duration, expires_at, rows.HOME_STATES[home_state]),
        )
    await record(session, Event.DELIVERED, numbers)
    renewed = [LockToken(number, secret) for number, secret, generation, *_ in held if generation]
    if renewed:
        await session.change("count_lock_purge", id=recovery.queue_id)
    messages = map(message_rows.message, await session.fetch("read_many", numbers=numbers, queue_id=recovery.queue_id))
    return Recovered(sorted(messages, key=delivery_position), renewed)
