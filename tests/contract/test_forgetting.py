"""What is past its time goes, in batches, and nothing else does."""

import asyncio
import secrets
from collections import defaultdict
from itertools import pairwise

from app.broker.expire import free, retire
from app.broker.ports import Attempt, Store
from app.domain.archive import Bound
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import MessageState, Receipt
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import NO_EVIDENCE
from tests.bounds import bounded
from tests.clock import VirtualClock, through
from tests.contract.subject import Subject, abandonment, bodies, completion, draft, token
from tests.rooms import assemble

TABLES = ("archive", "settlement", "attempt", "recent_id", "message")


async def sizes(subject: Subject) -> dict[str, int]:
    """How many rows each table has."""
    return {table: (await subject.execute(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}


async def forget_everything(subject: Subject) -> int:
    """Let the store forget until there is nothing left to; the archive in sealed batches."""
    for _ in bounded("every ended message is sealed"):
        first = await subject.store.archive.first_unsealed(0)
        if first is None:
            break
        await subject.store.archive.seal(first, Bound(messages=2))
    gone = 0
    for _ in bounded("nothing is left to forget"):
        removed = await subject.store.forget(3) + await subject.store.archive.forget(3)
        assert removed <= 3 * len(TABLES)
        if not removed:
            break
        gone += removed
    return gone


async def test_everything_is_kept_for_its_time_and_no_longer(subject: Subject) -> None:
    queue = await subject.queue(QueueSettings(archive_retention=2 * HOUR))
    for place in range(7):
        message = await subject.locked(queue)
        await subject.store.remove([completion(queue, message)])
        released = await subject.locked(queue)
        await subject.store.move([abandonment(released, state=MessageState.DEFERRED)])
        one = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), 3 * HOUR)
        await subject.store.send_once([draft(queue, message_id=f"{place}", duplicate_window=4 * HOUR - MINUTE)], one)
        await subject.claim(queue, lock_duration=DAY)
    kept = {"archive": 7, "settlement": 7, "attempt": 7, "recent_id": 7, "message": 14}
    assert await sizes(subject) == kept
    for table in ("settlement", "archive", "attempt", "recent_id"):  # kept for one to four hours
        assert await forget_everything(subject) == 0
        await subject.pass_time(3600)
        assert await forget_everything(subject) == 7
        kept[table] = 0
        assert await sizes(subject) == kept


async def test_a_message_id_outlives_its_window_by_any_send_under_way(subject: Subject, queue: Queue) -> None:
    """A send reads the clock before it waits for the mark: found gone, it would store a duplicate of that moment."""
    await subject.send(queue, b"body", message_id="id", duplicate_window=HOUR)
    await subject.pass_time(3601)
    assert await forget_everything(subject) == 0
    (receipt,) = await subject.store.send([draft(queue, message_id="id", duplicate_window=HOUR)])
    assert not receipt.duplicate
    await subject.pass_time(3661)
    assert await forget_everything(subject) == 1


async def test_forgetting_stands_in_nobodys_way(subject: Subject, queue: Queue, stores: list[Store]) -> None:
    """Several who forget and several who send the same ids neither fail nor store one id twice within its window."""
    window = 3 * SECOND // 1000

    async def send(store: Store) -> list[Receipt]:
        asked = [
            [draft(queue, message_id=f"{n % 5}-{m}", duplicate_window=window) for m in range(3)] for n in range(40)
        ]
        return [receipt for drafts in asked for receipt in await store.send(drafts)]

    async def forget(store: Store) -> None:
        for _ in range(40):
            await store.forget(500)
            if stores[0] is stores[1]:
                # The clock of a store of one process stands still unless it is moved.
                await subject.pass_time(0.001)

    sends = [send(stores[place % 2]) for place in range(4)]
    everything = asyncio.gather(*sends, *(forget(store) for store in stores))
    # A sender whose id another transaction holds tries again by the clock of its process.
    answers = await (everything if stores[0] is stores[1] else through(subject.clock, everything))
    stored: defaultdict[str, list[int]] = defaultdict(list)
    for receipts in answers[: len(sends)]:
        for receipt in receipts or ():
            if not receipt.duplicate:
                stored[receipt.message_id].append(receipt.enqueued_at)
    times = [sorted(one) for one in stored.values()]
    assert all(later - earlier >= window for one in times for earlier, later in pairwise(one))
    assert any(len(one) > 1 for one in times), "no id outlived its window"
    sent = [receipt for receipts in answers[: len(sends)] for receipt in receipts or ()]
    assert any(receipt.duplicate for receipt in sent), "no id came twice within its window"


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


async def test_messages_of_a_deleted_queue_keep_nothing_else_from_its_end(subject: Subject, queue: Queue) -> None:
    """Each pass takes a batch of what ended first; what it cannot end would be in its way again next time."""
    broker = assemble(subject.store, VirtualClock())
    doomed = await subject.queue()
    for place, short in enumerate((doomed, doomed, queue), start=1):
        await subject.send(short, b"held")
        await subject.claim(short, lock_duration=place * SECOND)
        await subject.send(short, b"overdue", ttl=place * SECOND)
    assert await subject.store.queues.delete(doomed)
    await subject.pass_time(10)
    for _ in range(2):
        await free(broker, [(held, NO_EVIDENCE) for held in await subject.store.ended_locks(2)])
        await retire(broker, await subject.store.overdue(2))
    assert await subject.store.ended_locks(2) == []
    assert await subject.store.overdue(2) == []
    assert bodies(await subject.claim(queue)) == [b"held"]
    archived = await subject.execute("SELECT queue, outcome FROM archive ORDER BY sequence_number")
    assert archived == [(doomed.name, "purged"), (doomed.name, "purged"), (queue.name, "expired")]
    await broker.catalogue.close()


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
