"""An attempt takes effect once, even if it is repeated often or concurrently."""

import asyncio
import json
import secrets
from functools import partial
from typing import cast

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt
from app.broker.ports.store import Store
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Draft, Envelope, MessageState
from app.domain.queue import Queue
from app.domain.refusals import KeyReused
from app.domain.settlement import Outcome
from app.domain.transaction_refusals import TransactionEnded
from app.domain.work_unit import WorkUnit
from tests.contract.store_fixture import (
    LOCK_DURATION,
    StoreFixture,
    abandonment,
    claim,
    completion,
    draft,
    numbers,
    retry_until_answered,
    token,
)
from tests.contract.test_open_transactions import opened
from tests.virtual_clock import run_advancing


def attempt(keep: int = HOUR) -> Attempt:
    """A new attempt."""
    return Attempt(secrets.token_bytes(32), secrets.token_bytes(32), keep)


def with_other_fingerprint(first: Attempt) -> Attempt:
    """The same key with another request."""
    return Attempt(first.key, secrets.token_bytes(32), first.retention)


# ---- sending ---------------------------------------------------------------------------------------------------------


async def test_a_repeated_send_gets_the_first_answer_and_stores_nothing(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    drafts = [draft(queue, b"a"), draft(queue, b"b", delay=HOUR), draft(queue, b"c", "id", duplicate_window=MINUTE)]
    drafts.append(drafts[2])
    this_attempt = attempt()
    first = await store_fixture.store.send_or_replay(drafts, this_attempt)
    assert not first.replayed
    assert [receipt.duplicate for receipt in first.result] == [False, False, False, True]
    again = await store_fixture.store.send_or_replay(drafts, this_attempt)
    assert again.replayed
    assert again.result == first.result
    assert len(await store_fixture.store.browse(queue.id, list(MessageState), 0, 10)) == 3


@pytest.fixture
async def duplicate_of_ended(store_fixture: StoreFixture, queue: Queue) -> Draft:
    """A draft whose message id is that of a message that has been completed."""
    duplicate = draft(queue, message_id="id", duplicate_window=HOUR)
    await store_fixture.store.send([duplicate])
    (message,) = await store_fixture.claim(queue)
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    return duplicate


async def test_a_repeat_gets_the_state_that_the_first_message_of_a_duplicate_has_now(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    duplicate, this_attempt = draft(queue, message_id="id", duplicate_window=HOUR), attempt()
    await store_fixture.store.send([duplicate])
    first = await store_fixture.store.send_or_replay([duplicate], this_attempt)
    assert [receipt.state for receipt in first.result] == [MessageState.AVAILABLE]
    await store_fixture.claim(queue)
    again = await store_fixture.store.send_or_replay([duplicate], this_attempt)
    assert [receipt.state for receipt in again.result] == [MessageState.LOCKED]


async def test_a_repeat_of_a_duplicate_says_that_the_first_message_has_ended(
    store_fixture: StoreFixture, duplicate_of_ended: Draft
) -> None:
    sent, executed = attempt(), attempt()
    once = await store_fixture.store.send_or_replay([duplicate_of_ended], sent)
    unit = await store_fixture.store.execute(WorkUnit(drafts=[duplicate_of_ended]), executed)
    assert [receipt.state for receipt in once.result] == [None]
    assert await store_fixture.store.find_send_result(sent) == once.result == unit.result.receipts
    assert await store_fixture.store.find_execution_result(executed) == unit.result
    again = await store_fixture.store.send_or_replay([duplicate_of_ended], sent)
    assert (again.replayed, again.result) == (True, once.result)
    repeated = await store_fixture.store.execute(WorkUnit(drafts=[duplicate_of_ended]), executed)
    assert (repeated.replayed, repeated.result) == (True, unit.result)


async def test_older_servers_can_read_the_stored_answer_of_a_duplicate_of_an_ended_message(
    store_fixture: StoreFixture, duplicate_of_ended: Draft
) -> None:
    await store_fixture.store.send_or_replay([duplicate_of_ended], attempt())
    await store_fixture.store.execute(WorkUnit(drafts=[duplicate_of_ended]), attempt())
    answers = [json.loads(answer) for (answer,) in await store_fixture.execute("SELECT answer FROM attempt")]
    for answer in answers:
        ((*_, state, is_duplicate),) = answer if isinstance(answer, list) else answer["receipts"]
        assert is_duplicate
        # Older servers know the states of messages in queues, and no other number.
        assert MessageState(state)
    assert len(answers) == 2


async def test_different_attempts_are_different_sends(store_fixture: StoreFixture, queue: Queue) -> None:
    answers = [await store_fixture.store.send_or_replay([draft(queue)], attempt()) for _ in range(2)]
    assert [once.replayed for once in answers] == [False, False]
    assert len(await store_fixture.claim(queue)) == 2


async def test_a_key_with_another_payload_is_refused_and_stores_nothing(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    this_attempt = attempt()
    await store_fixture.store.send_or_replay([draft(queue)], this_attempt)
    with pytest.raises(KeyReused):
        await store_fixture.store.send_or_replay([draft(queue)], with_other_fingerprint(this_attempt))
    with pytest.raises(KeyReused):
        await store_fixture.store.claim_or_replay(claim(queue), with_other_fingerprint(this_attempt))
    assert len(await store_fixture.claim(queue)) == 1


async def test_a_check_of_a_key_refuses_another_payload_and_changes_nothing(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    this_attempt = attempt()
    await store_fixture.store.check_attempt(this_attempt)
    await store_fixture.store.check_attempt(with_other_fingerprint(this_attempt))
    await store_fixture.send(queue, b"body")
    assert not (await store_fixture.store.claim_or_replay(claim(queue), this_attempt)).replayed
    await store_fixture.store.check_attempt(this_attempt)
    with pytest.raises(KeyReused):
        await store_fixture.store.check_attempt(with_other_fingerprint(this_attempt))
    await store_fixture.advance_time(HOUR // SECOND + 1)
    await store_fixture.store.check_attempt(with_other_fingerprint(this_attempt))


async def test_the_answer_of_a_send_can_be_read_until_it_expires(store_fixture: StoreFixture, queue: Queue) -> None:
    this_attempt = attempt()
    assert await store_fixture.store.find_send_result(this_attempt) is None
    once = await store_fixture.store.send_or_replay([draft(queue), draft(queue, delay=HOUR)], this_attempt)
    assert await store_fixture.store.find_send_result(this_attempt) == once.result
    with pytest.raises(KeyReused):
        await store_fixture.store.find_send_result(with_other_fingerprint(this_attempt))
    await store_fixture.advance_time(HOUR // SECOND + 1)
    assert await store_fixture.store.find_send_result(this_attempt) is None


async def test_a_refused_attempt_affects_no_other_request(store_fixture: StoreFixture, queue: Queue) -> None:
    this_attempt = attempt()
    await store_fixture.store.send_or_replay([draft(queue)], this_attempt)
    sends = [store_fixture.store.send([draft(queue)]) for _ in range(4)]
    outcomes = await asyncio.gather(
        *sends,
        store_fixture.store.send_or_replay([draft(queue)], with_other_fingerprint(this_attempt)),
        return_exceptions=True,
    )
    assert isinstance(outcomes[-1], KeyReused)
    assert len(await store_fixture.claim(queue)) == 5


async def test_a_failed_attempt_may_be_made_again(store_fixture: StoreFixture, queue: Queue) -> None:
    this_attempt = attempt()
    without_id = Envelope(cast("str", None))
    bad = replace(draft(queue), envelope=without_id)
    with pytest.raises(Exception, match=r".") as failure:
        await store_fixture.store.send_or_replay([draft(queue), bad], this_attempt)
    assert not isinstance(failure.value, KeyReused)
    once = await store_fixture.store.send_or_replay([draft(queue, b"good")], this_attempt)
    assert not once.replayed
    assert [message.body for message in await store_fixture.claim(queue)] == [b"good"]


@pytest.mark.fence("time")
async def test_an_attempt_is_forgotten_after_its_time(store_fixture: StoreFixture, queue: Queue) -> None:
    this_attempt = attempt(keep=HOUR)
    first = await store_fixture.store.send_or_replay([draft(queue)], this_attempt)
    await store_fixture.advance_time(59 * 60)
    assert (await store_fixture.store.send_or_replay([draft(queue)], this_attempt)).replayed
    await store_fixture.advance_time(61)
    second = await store_fixture.store.send_or_replay([draft(queue)], this_attempt)
    assert not second.replayed
    assert second.result[0].sequence_number > first.result[0].sequence_number
    await store_fixture.advance_time(HOUR // SECOND + 1)
    assert not (await store_fixture.store.send_or_replay([draft(queue)], with_other_fingerprint(this_attempt))).replayed
    assert len(await store_fixture.claim(queue)) == 3


async def test_of_concurrent_tries_of_one_send_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for _ in range(5):
        this_attempt = attempt()
        sends = (partial(stores[index % 2].send_or_replay, [draft(queue)], this_attempt) for index in range(12))
        answers = await run_advancing(store_fixture.clock, asyncio.gather(*map(retry_until_answered, sends)))
        assert sum(not once.replayed for once in answers) == 1
        assert len({once.result[0].sequence_number for once in answers}) == 1
    assert len(await store_fixture.claim(queue)) == 5


# ---- receiving -------------------------------------------------------------------------------------------------------


async def test_a_repeated_receive_gets_the_same_messages_with_the_same_tokens(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"low", b"second", priority=1)
    await store_fixture.send(queue, b"high", b"left", priority=5)
    this_attempt = attempt()
    first = await store_fixture.store.claim_or_replay(claim(queue, 3, receiver_id="worker"), this_attempt)
    await store_fixture.advance_time(5)
    again = await store_fixture.store.claim_or_replay(claim(queue, 3, receiver_id="worker"), this_attempt)
    assert (first.replayed, again.replayed) == (False, True)
    assert [message.body for message in first.result] == [b"high", b"left", b"low"]
    assert [token(message) for message in again.result] == [token(message) for message in first.result]
    assert {(message.delivery_count, message.receiver_id) for message in again.result} == {(1, "worker")}
    assert all(
        message.locked_until and message.locked_until - message.read_at < LOCK_DURATION for message in again.result
    )
    assert len(await store_fixture.claim(queue)) == 1


@pytest.mark.fence("time")
async def test_a_repeated_receive_gets_only_messages_that_its_locks_still_hold(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"done", b"given back", b"held")
    this_attempt = attempt()
    first = await store_fixture.store.claim_or_replay(claim(queue), this_attempt)
    done, back, held = first.result
    await store_fixture.store.remove([completion(queue, done)])
    await store_fixture.store.move([abandonment(back, outcome=Outcome.RELEASED, failures=0)])
    (other,) = await store_fixture.claim(queue)
    assert other.sequence_number == back.sequence_number
    assert numbers((await store_fixture.store.claim_or_replay(claim(queue), this_attempt)).result) == [
        held.sequence_number
    ]
    await store_fixture.advance_time(LOCK_DURATION // SECOND + 1)
    late = await store_fixture.store.claim_or_replay(claim(queue), this_attempt)
    assert late.replayed
    assert late.result == []


async def test_a_repeat_of_an_empty_receive_may_find_messages(store_fixture: StoreFixture, queue: Queue) -> None:
    this_attempt = attempt()
    empty = await store_fixture.store.claim_or_replay(claim(queue), this_attempt)
    assert (empty.result, empty.replayed) == ([], False)
    await store_fixture.send(queue, b"body")
    found = await store_fixture.store.claim_or_replay(claim(queue), this_attempt)
    assert not found.replayed
    assert [message.body for message in found.result] == [b"body"]


async def test_a_receive_with_the_key_of_another_is_refused_and_locks_nothing(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"a", b"b")
    this_attempt = attempt()
    await store_fixture.store.claim_or_replay(claim(queue, 1), this_attempt)
    with pytest.raises(KeyReused):
        await store_fixture.store.claim_or_replay(claim(queue, 1), with_other_fingerprint(this_attempt))
    assert len(await store_fixture.claim(queue)) == 1


async def test_concurrent_tries_of_one_receive_get_the_same_messages(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for _ in range(5):
        await store_fixture.send(queue, *[b"body"] * 6)
        this_attempt = attempt()
        claims = (partial(stores[index % 2].claim_or_replay, claim(queue, 3), this_attempt) for index in range(12))
        answers = await run_advancing(store_fixture.clock, asyncio.gather(*map(retry_until_answered, claims)))
        assert sum(not once.replayed for once in answers) == 1
        assert len({tuple(token(message) for message in once.result) for once in answers}) == 1
        assert {len(once.result) for once in answers} == {3}
        rest = await store_fixture.claim(queue)
        assert len(rest) == 3
        taken = [*answers[0].result, *rest]
        assert await store_fixture.store.remove([completion(queue, message) for message in taken]) == [True] * 6


# ---- joining a transaction -------------------------------------------------------------------------------------------


async def test_a_repeated_join_gets_the_first_answer_and_joins_once(store_fixture: StoreFixture, queue: Queue) -> None:
    transactions = store_fixture.store.transactions
    key, this_attempt = await opened(store_fixture), attempt()
    sends = [(queue.name, draft(queue, b"a", "1")), (queue.name, draft(queue, b"b", "2"))]
    assert await transactions.find_join_result(this_attempt) is None
    first = await transactions.join_sends(key, sends, this_attempt)
    assert (first.result, first.replayed) == (["1", "2"], False)
    made_again = [(queue.name, draft(queue, b"a", "3")), (queue.name, draft(queue, b"b", "4"))]
    again = await transactions.join_sends(key, made_again, this_attempt)
    assert (again.result, again.replayed) == (["1", "2"], True)
    assert (await transactions.find(key)).member_count == 2
    await transactions.commit(key)
    assert (await transactions.join_sends(key, sends, this_attempt)).replayed
    assert await transactions.find_join_result(this_attempt) == ["1", "2"]
    assert len(await store_fixture.claim(queue)) == 2


async def test_a_join_without_a_send_is_answered_again(store_fixture: StoreFixture, queue: Queue) -> None:
    transactions = store_fixture.store.transactions
    key, this_attempt = await opened(store_fixture), attempt()
    assert (await transactions.join_sends(key, [], this_attempt)).result == []
    again = await transactions.join_sends(key, [(queue.name, draft(queue))], this_attempt)
    assert (again.result, again.replayed) == ([], True)
    assert (await transactions.find(key)).member_count == 0


async def test_a_join_with_the_key_of_another_is_refused_and_joins_nothing(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    transactions = store_fixture.store.transactions
    key, this_attempt = await opened(store_fixture), attempt()
    await transactions.join_sends(key, [(queue.name, draft(queue))], this_attempt)
    with pytest.raises(KeyReused):
        await transactions.join_sends(key, [(queue.name, draft(queue))], with_other_fingerprint(this_attempt))
    with pytest.raises(KeyReused):
        await transactions.find_join_result(with_other_fingerprint(this_attempt))
    assert (await transactions.find(key)).member_count == 1


async def test_a_join_that_is_refused_may_be_made_again(store_fixture: StoreFixture, queue: Queue) -> None:
    transactions = store_fixture.store.transactions
    ended, key, this_attempt = await opened(store_fixture), await opened(store_fixture), attempt()
    await transactions.commit(ended)
    with pytest.raises(TransactionEnded):
        await transactions.join_sends(ended, [(queue.name, draft(queue))], this_attempt)
    assert await transactions.find_join_result(this_attempt) is None
    assert not (await transactions.join_sends(key, [(queue.name, draft(queue))], this_attempt)).replayed


async def test_of_concurrent_tries_of_one_join_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for _ in range(5):
        key, this_attempt = await opened(store_fixture), attempt()
        joins = (
            partial(
                stores[index % 2].transactions.join_sends,
                key,
                [(queue.name, draft(queue, b"body", f"{index}"))],
                this_attempt,
            )
            for index in range(12)
        )
        answers = await run_advancing(store_fixture.clock, asyncio.gather(*map(retry_until_answered, joins)))
        assert sum(not once.replayed for once in answers) == 1
        assert len({tuple(once.result) for once in answers}) == 1
        assert (await store_fixture.store.transactions.find(key)).member_count == 1
