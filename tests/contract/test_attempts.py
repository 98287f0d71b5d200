"""An attempt takes effect once, however often and however closely it is repeated."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest

from app.broker.ports import Attempt, Store
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.refusals import KeyReused, RequestInProgress
from app.domain.settlement import Outcome
from tests.bounds import bounded
from tests.clock import through
from tests.contract.subject import LOCK, Subject, abandonment, claim, completion, draft, numbers, token

Answer = TypeVar("Answer")


def attempt(keep: int = HOUR) -> Attempt:
    """An attempt that nobody has made."""
    return Attempt(secrets.token_bytes(32), secrets.token_bytes(32), keep)


def with_another_payload(first: Attempt) -> Attempt:
    """The same key with something else behind it."""
    return Attempt(first.key, secrets.token_bytes(32), first.keep)


async def until_answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask again, as a client does, while another one's try is under way."""
    for _ in bounded("the attempt is answered"):
        with suppress(RequestInProgress):
            return await ask()
    raise AssertionError


# ---- sending ---------------------------------------------------------------------------------------------------------


async def test_a_repeated_send_hears_the_first_answer_and_stores_nothing(subject: Subject, queue: Queue) -> None:
    drafts = [draft(queue, b"a"), draft(queue, b"b", delay=HOUR), draft(queue, b"c", "id", duplicate_window=MINUTE)]
    drafts.append(drafts[2])
    one = attempt()
    first = await subject.store.send_once(drafts, one)
    assert not first.replayed
    assert [receipt.duplicate for receipt in first.answer] == [False, False, False, True]
    again = await subject.store.send_once(drafts, one)
    assert again.replayed
    assert again.answer == first.answer
    assert len(await subject.store.browse(queue.id, list(MessageState), 0, 10)) == 3


async def test_different_attempts_are_different_sends(subject: Subject, queue: Queue) -> None:
    answers = [await subject.store.send_once([draft(queue)], attempt()) for _ in range(2)]
    assert [once.replayed for once in answers] == [False, False]
    assert len(await subject.claim(queue)) == 2


async def test_a_key_with_another_payload_is_refused_and_stores_nothing(subject: Subject, queue: Queue) -> None:
    one = attempt()
    await subject.store.send_once([draft(queue)], one)
    with pytest.raises(KeyReused):
        await subject.store.send_once([draft(queue)], with_another_payload(one))
    with pytest.raises(KeyReused):
        await subject.store.claim_once(claim(queue), with_another_payload(one))
    assert len(await subject.claim(queue)) == 1


async def test_a_look_at_a_key_refuses_another_payload_and_changes_nothing(subject: Subject, queue: Queue) -> None:
    one = attempt()
    await subject.store.check(one)
    await subject.store.check(with_another_payload(one))
    await subject.send(queue, b"body")
    assert not (await subject.store.claim_once(claim(queue), one)).replayed
    await subject.store.check(one)
    with pytest.raises(KeyReused):
        await subject.store.check(with_another_payload(one))
    await subject.pass_time(HOUR // SECOND + 1)
    await subject.store.check(with_another_payload(one))


async def test_a_send_that_was_answered_can_be_asked_for_until_it_is_forgotten(subject: Subject, queue: Queue) -> None:
    one = attempt()
    assert await subject.store.sent_before(one) is None
    once = await subject.store.send_once([draft(queue), draft(queue, delay=HOUR)], one)
    assert await subject.store.sent_before(one) == once.answer
    with pytest.raises(KeyReused):
        await subject.store.sent_before(with_another_payload(one))
    await subject.pass_time(HOUR // SECOND + 1)
    assert await subject.store.sent_before(one) is None


async def test_a_refused_attempt_spoils_nothing_beside_it(subject: Subject, queue: Queue) -> None:
    one = attempt()
    await subject.store.send_once([draft(queue)], one)
    sends = [subject.store.send([draft(queue)]) for _ in range(4)]
    outcomes = await asyncio.gather(
        *sends, subject.store.send_once([draft(queue)], with_another_payload(one)), return_exceptions=True
    )
    assert isinstance(outcomes[-1], KeyReused)
    assert len(await subject.claim(queue)) == 5


async def test_a_failed_attempt_may_be_made_again(subject: Subject, queue: Queue) -> None:
    one = attempt()
    bad = draft(queue, message_id="x" * 10)
    object.__setattr__(bad.envelope, "message_id", None)
    with pytest.raises(Exception, match=r".") as failure:
        await subject.store.send_once([draft(queue), bad], one)
    assert not isinstance(failure.value, KeyReused)
    once = await subject.store.send_once([draft(queue, b"good")], one)
    assert not once.replayed
    assert [message.body for message in await subject.claim(queue)] == [b"good"]


async def test_an_attempt_is_forgotten_after_its_time(subject: Subject, queue: Queue) -> None:
    one = attempt(keep=MINUTE)
    first = await subject.store.send_once([draft(queue)], one)
    await subject.pass_time(59)
    assert (await subject.store.send_once([draft(queue)], one)).replayed
    await subject.pass_time(2)
    second = await subject.store.send_once([draft(queue)], with_another_payload(one))
    assert not second.replayed
    assert second.answer[0].sequence_number > first.answer[0].sequence_number
    assert len(await subject.claim(queue)) == 2


async def test_of_many_who_make_one_send_at_once_one_takes_effect(
    subject: Subject, stores: list[Store], queue: Queue
) -> None:
    for _ in range(5):
        one = attempt()
        sends = (partial(stores[place % 2].send_once, [draft(queue)], one) for place in range(12))
        answers = await through(subject.clock, asyncio.gather(*map(until_answered, sends)))
        assert sum(not once.replayed for once in answers) == 1
        assert len({once.answer[0].sequence_number for once in answers}) == 1
    assert len(await subject.claim(queue)) == 5


# ---- receiving -------------------------------------------------------------------------------------------------------


async def test_a_repeated_receive_gets_the_same_messages_by_the_same_tokens(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"low", b"second", priority=1)
    await subject.send(queue, b"high", b"left", priority=5)
    one = attempt()
    first = await subject.store.claim_once(claim(queue, 3, receiver_id="worker"), one)
    await subject.pass_time(5)
    again = await subject.store.claim_once(claim(queue, 3, receiver_id="worker"), one)
    assert (first.replayed, again.replayed) == (False, True)
    assert [message.body for message in first.answer] == [b"high", b"left", b"low"]
    assert [token(message) for message in again.answer] == [token(message) for message in first.answer]
    assert {(message.delivery_count, message.receiver_id) for message in again.answer} == {(1, "worker")}
    assert all(message.locked_until and message.locked_until - message.read_at < LOCK for message in again.answer)
    assert len(await subject.claim(queue)) == 1


async def test_a_repeat_gets_only_what_is_still_locked_for_it(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"done", b"given back", b"held")
    one = attempt()
    first = await subject.store.claim_once(claim(queue), one)
    done, back, held = first.answer
    await subject.store.remove([completion(queue, done)])
    await subject.store.move([abandonment(back, outcome=Outcome.RELEASED, failures=0)])
    (other,) = await subject.claim(queue)
    assert other.sequence_number == back.sequence_number
    assert numbers((await subject.store.claim_once(claim(queue), one)).answer) == [held.sequence_number]
    await subject.pass_time(LOCK // SECOND + 1)
    late = await subject.store.claim_once(claim(queue), one)
    assert late.replayed
    assert late.answer == []


async def test_an_attempt_that_found_nothing_may_still_find_something(subject: Subject, queue: Queue) -> None:
    one = attempt()
    empty = await subject.store.claim_once(claim(queue), one)
    assert (empty.answer, empty.replayed) == ([], False)
    await subject.send(queue, b"body")
    found = await subject.store.claim_once(claim(queue), one)
    assert not found.replayed
    assert [message.body for message in found.answer] == [b"body"]


async def test_a_receive_with_the_key_of_another_is_refused_and_locks_nothing(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"a", b"b")
    one = attempt()
    await subject.store.claim_once(claim(queue, 1), one)
    with pytest.raises(KeyReused):
        await subject.store.claim_once(claim(queue, 1), with_another_payload(one))
    assert len(await subject.claim(queue)) == 1


async def test_of_many_who_make_one_receive_at_once_all_get_the_same(
    subject: Subject, stores: list[Store], queue: Queue
) -> None:
    for _ in range(5):
        await subject.send(queue, *[b"body"] * 6)
        one = attempt()
        claims = (partial(stores[place % 2].claim_once, claim(queue, 3), one) for place in range(12))
        answers = await through(subject.clock, asyncio.gather(*map(until_answered, claims)))
        assert sum(not once.replayed for once in answers) == 1
        assert len({tuple(token(message) for message in once.answer) for once in answers}) == 1
        assert {len(once.answer) for once in answers} == {3}
        rest = await subject.claim(queue)
        assert len(rest) == 3
        taken = [*answers[0].answer, *rest]
        assert await subject.store.remove([completion(queue, message) for message in taken]) == [True] * 6
