"""What is past its time goes, in bites, and nothing else does."""

import secrets

from app.broker.ports import Attempt
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue, QueueSettings
from tests.contract.subject import Subject, abandonment, completion, draft, token

TABLES = ("archive", "settlement", "attempt", "recent_id", "message")


async def sizes(subject: Subject) -> dict[str, int]:
    """How many rows each table has."""
    return {table: (await subject.execute(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}


async def forget_everything(subject: Subject) -> int:
    """Let the store forget until there is nothing left to."""
    gone = 0
    while bite := await subject.store.forget(3):
        assert bite <= 3 * len(TABLES)
        gone += bite
    return gone


async def test_everything_is_kept_for_its_time_and_no_longer(subject: Subject) -> None:
    queue = await subject.queue(QueueSettings(archive_retention=2 * HOUR))
    for place in range(7):
        message = await subject.locked(queue)
        await subject.store.remove([completion(queue, message)])
        released = await subject.locked(queue)
        await subject.store.move([abandonment(released, state=MessageState.DEFERRED)])
        one = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), 3 * HOUR)
        await subject.store.send_once([draft(queue, message_id=f"{place}", duplicate_window=4 * HOUR)], one)
        await subject.claim(queue, lock_duration=DAY)
    kept = {"archive": 7, "settlement": 7, "attempt": 7, "recent_id": 7, "message": 14}
    assert await sizes(subject) == kept
    for table in ("settlement", "archive", "attempt", "recent_id"):  # kept for one to four hours
        assert await forget_everything(subject) == 0
        await subject.pass_time(3600)
        assert await forget_everything(subject) == 7
        kept[table] = 0
        assert await sizes(subject) == kept


async def test_a_forgotten_delivery_is_unknown(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.remove([completion(queue, message)])
    await subject.pass_time(queue.settings.archive_retention // SECOND + 1)
    await forget_everything(subject)
    assert await subject.store.tombstones([token(message)]) == [None]


async def test_messages_of_a_deleted_queue_go_in_whatever_state(subject: Subject, queue: Queue) -> None:
    doomed = await subject.queue()
    kept = await subject.send(queue, b"kept", b"kept")
    await subject.locked(doomed)
    moved = await subject.locked(doomed)
    await subject.store.move([abandonment(moved, state=MessageState.DEAD_LETTERED)])
    await subject.send(doomed, *[b"body"] * 9)
    await subject.send(doomed, b"body", delay=MINUTE)
    assert await subject.store.queues.delete(doomed)
    assert await forget_everything(subject) == 12
    left = await subject.execute("SELECT sequence_number FROM message ORDER BY sequence_number")
    assert left == [(number,) for number in kept]


async def test_a_queue_of_the_same_name_does_not_inherit(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"old")
    assert await subject.store.queues.delete(queue)
    again, made = await subject.store.queues.create(queue.name, QueueSettings())
    assert made
    assert again.id != queue.id
    assert await subject.claim(again) == []
    (new,) = await subject.send(again, b"new")
    await forget_everything(subject)
    found = await subject.store.read(again.id, new)
    assert found is not None
    assert found.body == b"new"
    assert len(await subject.claim(again)) == 1


async def test_a_number_is_never_given_out_twice(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.remove([completion(queue, message, retention=MINUTE)])
    await subject.pass_time(DAY // SECOND)
    await forget_everything(subject)
    assert await sizes(subject) == dict.fromkeys(TABLES, 0)
    (number,) = await subject.send(queue, b"body")
    assert number > message.sequence_number
