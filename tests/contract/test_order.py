"""The order of delivery that SQL restates is the one that the rules say."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.delivery import AHEAD_OF_ALL, is_deliverable, place_in_order
from app.domain.instant import MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from tests.bounds import bounded
from tests.contract.subject import Subject, abandonment, bodies, claim, draft, numbers


@dataclass(frozen=True)
class Life:
    """What befalls one message before the order is looked at."""

    priority: int
    age: int  # seconds for which it has been available; below nought it is not yet
    ttl: int | None
    fate: str


LIVES = st.builds(
    Life,
    priority=st.integers(0, 9) | st.sampled_from([4, 4, 4]),
    age=st.integers(-2, 3),
    ttl=st.none() | st.integers(1, 5),
    fate=st.sampled_from(["sent", "sent", "abandoned", "deferred", "dead_lettered", "locked"]),
)
ENDS = {
    "abandoned": (Outcome.ABANDONED, MessageState.AVAILABLE),
    "deferred": (Outcome.DEFERRED, MessageState.DEFERRED),
    "dead_lettered": (Outcome.DEAD_LETTERED, MessageState.DEAD_LETTERED),
}


@pytest.mark.behaviour("S1.85", "S1.88", "S2.14", "S2.35", "S3.17")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.lists(LIVES, min_size=1, max_size=25), batches=st.lists(st.integers(1, 9), min_size=1, max_size=4))
async def test_messages_are_claimed_in_the_order_of_the_rules(
    subject: Subject, lives: list[Life], batches: list[int]
) -> None:
    queue = await subject.queue()
    await live(subject, queue, lives)
    await subject.store.awaken(1000)
    everything = await subject.store.browse(queue.id, list(MessageState), 0, 1000)
    now = await subject.store.now()
    expected = [m for m in sorted(everything, key=place_in_order) if is_deliverable(m, now)]
    assert await candidates(subject, queue, batches[0]) == numbers(expected)
    claimed = [await subject.claim(queue, most) for most in (*batches, 1000)]
    assert numbers([message for batch in claimed for message in batch]) == numbers(expected)


async def candidates(subject: Subject, queue: Queue, batch: int) -> list[int]:
    """The numbers of what may be claimed, looked at in batches."""
    found: list[int] = []
    after = AHEAD_OF_ALL
    for _ in bounded("nothing is left to look at"):
        seen = await subject.store.candidates(queue.id, MessageState.AVAILABLE, after, batch)
        assert len(seen) <= batch
        if not seen:
            break
        found += [one.sequence_number for one in seen]
        after = place_in_order(seen[-1])
    return found


async def live(subject: Subject, queue: Queue, lives: list[Life]) -> None:
    """Let these messages come into being and meet their fates, then set their ages."""
    for life in lives:
        ttl = None if life.ttl is None else MINUTE
        (number,) = await subject.send(queue, b"body", priority=life.priority, ttl=ttl)
        if life.fate != "sent":
            taken = await subject.store.claim_these(claim(queue, 1), [number])
            if life.fate in ENDS:
                outcome, state = ENDS[life.fate]
                await subject.store.move([abandonment(m, outcome=outcome, state=state) for m in taken])
    # Relative to one moment, so that ages are exact and many messages share one.
    base = await subject.store.now()
    found = await subject.store.browse(queue.id, list(MessageState), 0, 1000)
    for message, life in zip(found, lives, strict=True):
        due = base - life.age * SECOND * 10
        expires = "NULL" if life.ttl is None else due + life.ttl * SECOND * 10
        await subject.execute(
            f"UPDATE message SET available_at = {due}, expires_at = {expires}"
            f" WHERE sequence_number = {message.sequence_number}"
        )


@pytest.mark.behaviour("S3.17")
async def test_an_abandoned_message_returns_to_the_front(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"a", b"b", b"c")
    (first,) = await subject.claim(queue, 1)
    await subject.store.move([abandonment(first)])
    assert bodies(await subject.claim(queue)) == [b"a", b"b", b"c"]


async def test_a_delayed_message_is_ordered_by_when_it_is_due(subject: Subject, queue: Queue) -> None:
    await subject.store.send([draft(queue, b"early"), draft(queue, b"due second", delay=20 * SECOND)])
    await subject.store.send([draft(queue, b"due first", delay=10 * SECOND)])
    await subject.pass_time(30)
    await subject.send(queue, b"late")
    await subject.store.awaken(100)
    assert bodies(await subject.claim(queue)) == [b"early", b"due first", b"due second", b"late"]


async def test_a_higher_priority_goes_first_whenever_it_was_sent(subject: Subject, queue: Queue) -> None:
    for place, priority in enumerate([4, 0, 9, 4, 9]):
        await subject.send(queue, b"%d" % place, priority=priority)
    assert bodies(await subject.claim(queue)) == [b"2", b"4", b"0", b"3", b"1"]
