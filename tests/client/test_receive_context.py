"""The life of one receive: which step is allowed when, what races end in, and what is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peeklock_client.errors import (
    InDoubt,
    LockLost,
    NotSerializable,
    TransactionRolledBack,
    VersionConflict,
    problem_of,
)
from peeklock_client.generated import answers, requests
from peeklock_client.messages import Message
from peeklock_client.receive_context import ReceiveContext, reason_of
from peeklock_client.receive_state import Receive, ReceiveState, WrongState
from peeklock_client.settling import Settlement

from tests.client.virtual_loop import run_virtually

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGE = Message("body", 1, "id", "locked", 4, NOW, NOW, 1, 0, False)
OUTCOMES = {
    "complete": "completed",
    "abandon": "abandoned",
    "dead_letter": "dead_lettered",
    "defer": "deferred",
    "release": "released",
}
ENDS = ("complete", "abandon", "dead_letter", "defer", "release")
GIVING_BACK = ("abandon", "dead_letter", "defer", "release")
R = ReceiveState
AFTER = {
    R.RECEIVED: {R.COMPLETING, R.COMPLETED, R.ABANDONING, R.ABANDONED, R.FAULTED},
    R.COMPLETING: {R.COMPLETED, R.FAULTED},
    R.ABANDONING: {R.ABANDONED, R.FAULTED},
}
"""The states that may follow each state, at once or through others."""

LOST = LockLost(problem_of(410, "The lock has ended.", "lock-lost"))
DOUBT = InDoubt("The answer was lost.")
CONFLICT = VersionConflict(problem_of(409, "Another version is newer.", "version-conflict"))
ROLLED_BACK = TransactionRolledBack(problem_of(409, "The deadline has passed.", "transaction-rolled-back"))


@dataclass
class Broker:
    """Implements the `Settler` of a receive: takes one settlement, as a server does, after a delay."""

    delay: float = 0.0
    error: Exception | None = None
    sent: list[Settlement] = field(default_factory=list)

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        self.sent.append(settlement)
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        action = type(settlement).__struct_config__.tag
        return answers.SettledResult(OUTCOMES[str(action)], 1, False, settlement.lock_token)

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        if self.error:
            raise self.error
        return answers.RenewedResult(NOW, 60_000, settlement.lock_token)

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.CommittedMessage:
        self.sent.append(requests.CompleteSettlement(lock_token))
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        return answers.CommittedMessage("completed", None, [], False, False)


@dataclass
class OpenTransaction:
    """Remembers the receives that have joined."""

    id: str = "t1"
    joined: list[Receive] = field(default_factory=list)

    def join(self, receive: Receive) -> None:
        self.joined.append(receive)


def receive(broker: Broker) -> ReceiveContext[str]:
    return ReceiveContext(MESSAGE, "1.token", 30.0, broker)


async def call(context: ReceiveContext[Any], step: str) -> BaseException | None:
    """Take a step, and return what it raised."""
    try:
        result = getattr(context, step)()
        if step != "fault":
            await result
    except (InDoubt, LockLost, WrongState) as error:
        return error
    return None


async def reach(state: ReceiveState) -> ReceiveContext[str]:
    """Return a receive in this state. One that is completing or abandoning waits for its broker."""
    context = receive(Broker(delay=5))
    steps = {R.COMPLETING: "complete", R.COMPLETED: "complete", R.ABANDONING: "abandon", R.ABANDONED: "abandon"}
    if state is R.FAULTED:
        context.fault()
    elif state in steps:
        task = asyncio.ensure_future(call(context, steps[state]))
        if state in (R.COMPLETED, R.ABANDONED):
            await task
        else:
            context.task = task  # type: ignore[attr-defined] # the loop keeps no reference to it
            await asyncio.sleep(1)
    assert context.state is state
    return context


# ---- which step is allowed when --------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.3")
async def test_a_fresh_receive_is_received() -> None:
    context = receive(Broker())
    assert (context.state, context.is_active, context.in_doubt) == (R.RECEIVED, True, False)


@pytest.mark.behaviour("S0.5", "S0.6")
@pytest.mark.parametrize("state", R)
def test_complete_is_allowed_in_received_only(state: ReceiveState) -> None:
    async def scenario() -> None:
        error = await call(await reach(state), "complete")
        assert isinstance(error, WrongState) == (state is not R.RECEIVED)

    run_virtually(scenario())


@pytest.mark.parametrize("step", ["commit", "renew"])
@pytest.mark.parametrize("state", R)
def test_commit_and_renew_are_allowed_in_received_only(state: ReceiveState, step: str) -> None:
    async def scenario() -> None:
        context = await reach(state)
        if state is R.RECEIVED:
            await take(context, step)
        else:
            with pytest.raises(WrongState, match=state.value):
                await take(context, step)
            assert context.state is state

    run_virtually(scenario())


async def take(context: ReceiveContext[Any], step: str) -> None:
    match step:
        case "commit":
            await context.commit(requests.CommitLock())
        case "join":
            await context.complete(transaction=OpenTransaction())
        case _:
            await getattr(context, step)()


@pytest.mark.behaviour("S0.12")
@pytest.mark.parametrize("step", GIVING_BACK)
@pytest.mark.parametrize("state", R)
def test_abandon_is_allowed_in_received_and_repeated_in_abandoning_and_abandoned(
    state: ReceiveState, step: str
) -> None:
    async def scenario() -> None:
        error = await call(await reach(state), step)
        allowed = (R.RECEIVED, R.ABANDONING, R.ABANDONED) if step == "abandon" else (R.RECEIVED,)
        assert isinstance(error, WrongState) == (state not in allowed)

    run_virtually(scenario())


@pytest.mark.behaviour("S0.17", "S0.18")
@pytest.mark.parametrize("state", R)
def test_fault_is_allowed_always_and_does_nothing_after_the_end(state: ReceiveState) -> None:
    async def scenario() -> None:
        context = await reach(state)
        context.fault()
        assert context.state is (state if state in (R.COMPLETED, R.ABANDONED) else R.FAULTED)

    run_virtually(scenario())


@pytest.mark.behaviour("S0.13")
@pytest.mark.parametrize("step", GIVING_BACK)
async def test_a_second_abandon_sends_and_calls_nothing(step: str) -> None:
    broker, calls = Broker(), list[str]()
    context = receive(broker)
    context.on_abandon(lambda: calls.append("abandon"))
    assert [await call(context, step), await call(context, step)] == [None, None]
    assert (len(broker.sent), calls, context.outcome) == (1, ["abandon"], OUTCOMES[step])


@pytest.mark.parametrize("first", GIVING_BACK)
async def test_another_step_after_an_abandon_is_refused_and_not_ignored(first: str) -> None:
    broker = Broker()
    context = receive(broker)
    await call(context, first)
    for step in set(GIVING_BACK) - {first}:
        assert isinstance(await call(context, step), WrongState)
    assert (len(broker.sent), context.outcome) == (1, OUTCOMES[first])


# ---- callbacks -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.9", "S0.10", "S0.11", "S0.15", "S0.16")
@pytest.mark.parametrize(
    ("step", "during", "after"),
    [("complete", R.COMPLETING, R.COMPLETED), *[(step, R.ABANDONING, R.ABANDONED) for step in GIVING_BACK]],
)
def test_a_callback_runs_once_before_the_message_is_settled(
    step: str, during: ReceiveState, after: ReceiveState
) -> None:
    async def scenario() -> None:
        broker, seen = Broker(delay=5), list[tuple[ReceiveState, int]]()
        context = receive(broker)

        async def callback() -> None:
            await asyncio.sleep(1)
            seen.append((context.state, len(broker.sent)))

        context.on_complete(callback)
        context.on_abandon(callback)
        task = asyncio.ensure_future(call(context, step))
        await asyncio.sleep(3)
        assert context.state is during
        await task
        assert (context.state, context.outcome) == (after, OUTCOMES[step])
        assert seen == [(during, 0)]

    run_virtually(scenario())


@pytest.mark.behaviour("S0.10")
@pytest.mark.parametrize("error", [RuntimeError("the disk is full"), CONFLICT, ROLLED_BACK], ids=repr)
@pytest.mark.parametrize("step", ["complete", "commit", "join"])
async def test_a_callback_that_raises_leaves_the_message_unsettled(step: str, error: Exception) -> None:
    """Also if it raises what a server could have answered: the callback was refused something, not this message."""
    broker = Broker()
    context = receive(broker)

    def fail() -> None:
        raise error

    context.on_complete(fail)
    with pytest.raises(type(error)):
        await take(context, step)
    assert (context.state, context.in_doubt, broker.sent) == (R.FAULTED, False, [])


@pytest.mark.parametrize("state", [state for state in R if state is not R.RECEIVED])
def test_a_callback_that_would_never_run_is_refused(state: ReceiveState) -> None:
    async def scenario() -> None:
        context = await reach(state)
        for declare in (context.on_complete, context.on_abandon):
            with pytest.raises(WrongState):
                declare(lambda: None)

    run_virtually(scenario())


@pytest.mark.parametrize("step", ["complete", "abandon", "dead_letter", "defer"])
async def test_a_value_that_is_no_json_changes_nothing(step: str) -> None:
    broker = Broker()
    context = receive(broker)
    value = {"reply": object()} if step == "complete" else {"properties": {"stream": object()}}
    with pytest.raises(NotSerializable):
        await getattr(context, step)(**value)
    assert (context.state, broker.sent) == (R.RECEIVED, [])


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.19")
@pytest.mark.parametrize("step", ENDS)
async def test_a_lost_answer_leaves_the_receive_in_doubt(step: str) -> None:
    context = receive(Broker(error=DOUBT))
    assert await call(context, step) is DOUBT
    assert (context.state, context.in_doubt, context.outcome) == (R.FAULTED, True, None)


@pytest.mark.parametrize("step", ENDS)
async def test_a_lost_lock_is_no_doubt(step: str) -> None:
    context = receive(Broker(error=LOST))
    assert await call(context, step) is LOST
    assert (context.state, context.in_doubt) == (R.FAULTED, False)


@pytest.mark.behaviour("S3.34")
async def test_a_renewal_that_finds_the_lock_lost_faults_the_receive() -> None:
    context = receive(Broker(error=LOST))
    with pytest.raises(LockLost):
        await context.renew()
    assert context.state is R.FAULTED


@pytest.mark.behaviour("S0.17")
async def test_a_fault_calls_each_of_its_callbacks_once_in_the_faulted_state() -> None:
    context, seen = receive(Broker()), list[tuple[int, ReceiveState]]()
    for number in (1, 2):
        context.on_fault(lambda number=number: seen.append((number, context.state)))
    context.fault(DOUBT)
    context.fault(LOST)
    assert seen == [(1, R.FAULTED), (2, R.FAULTED)]
    assert context.error is DOUBT


async def test_a_renewal_without_an_answer_leaves_the_receive_as_it_is() -> None:
    context = receive(Broker(error=DOUBT))
    with pytest.raises(InDoubt):
        await context.renew()
    assert (context.state, context.is_active) == (R.RECEIVED, True)


def test_a_renewal_prolongs_the_lock() -> None:
    async def scenario() -> None:
        context = receive(Broker())
        assert (context.lock_duration, context.lock_seconds) == (30, 30)
        await context.renew()
        assert (context.lock_duration, context.lock_seconds) == (60, 60)
        await asyncio.sleep(70)
        assert context.lock_seconds == 0

    run_virtually(scenario())


@pytest.mark.behaviour("S0.20", "S0.21", "S0.22", "S0.23")
@pytest.mark.parametrize("step", ENDS)
@pytest.mark.parametrize(
    ("fault_at", "is_sent", "end"), [(0.5, False, R.FAULTED), (1.5, True, R.FAULTED), (2.5, True, None)]
)
def test_fault_races_with_every_end(step: str, fault_at: float, is_sent: bool, end: ReceiveState | None) -> None:
    """A fault during the callback sends nothing: the lock ends at its time. Later the settlement may have won."""

    async def scenario() -> None:
        broker = Broker(delay=1)
        context = receive(broker)
        context.on_complete(lambda: asyncio.sleep(1))
        context.on_abandon(lambda: asyncio.sleep(1))
        task = asyncio.ensure_future(call(context, step))
        await asyncio.sleep(fault_at)
        context.fault()
        error = await task
        assert len(broker.sent) == is_sent
        assert context.state is (end or (R.COMPLETED if step == "complete" else R.ABANDONED))
        assert isinstance(error, InDoubt) == (end is R.FAULTED)

    run_virtually(scenario())


def test_a_cancelled_settlement_is_in_doubt() -> None:
    async def scenario() -> None:
        context = receive(Broker(delay=5))
        task = asyncio.ensure_future(context.complete())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert context.in_doubt

    run_virtually(scenario())


STEPS = st.lists(st.tuples(st.sampled_from([*ENDS, "fault"]), st.integers(0, 4)), min_size=1, max_size=6)


@pytest.mark.behaviour("S0.26")
@given(
    steps=STEPS,
    callback_delay=st.integers(0, 2),
    broker_delay=st.integers(0, 2),
    error=st.sampled_from([None, LOST, DOUBT]),
    seed=st.integers(0, 1 << 32),
)
def test_racing_steps_move_forward_and_send_one_settlement(
    steps: list[tuple[str, int]], callback_delay: int, broker_delay: int, error: Exception | None, seed: int
) -> None:
    async def scenario() -> None:
        broker, callbacks = Broker(broker_delay, error), list[ReceiveState]()
        states: list[ReceiveState] = [R.RECEIVED]
        context = receive(broker)

        async def callback() -> None:
            callbacks.append(context.state)
            await asyncio.sleep(callback_delay)

        context.on_complete(callback)
        context.on_abandon(callback)
        context.on_fault(lambda: callbacks.append(R.FAULTED))

        async def take(step: str, at: int) -> tuple[str, BaseException | None]:
            await asyncio.sleep(at)
            return step, await call(context, step)

        watcher = asyncio.ensure_future(observe(context, states))
        results = await asyncio.gather(*(take(*step) for step in steps))
        watcher.cancel()
        assert all(after in AFTER[before] for before, after in pairwise(states))
        assert len(broker.sent) <= 1
        assert len(callbacks) == len(set(callbacks))
        completed = [step for step, failure in results if step == "complete" and failure is None]
        assert len(completed) == (context.state is R.COMPLETED)
        assert (context.outcome is not None) == (context.state in (R.COMPLETED, R.ABANDONED))
        if context.outcome is not None:
            assert broker.sent
            assert error is None

    run_virtually(scenario(), seed)


def test_an_order_of_what_is_ready_at_once_repeats_by_its_seed() -> None:
    async def order() -> list[int]:
        seen: list[int] = []

        async def note(number: int) -> None:
            seen.append(number)

        await asyncio.gather(*map(note, range(10)))
        return seen

    first, again, other = [run_virtually(order(), seed) for seed in (1, 1, 2)]
    assert first == again != other
    assert sorted(first) == sorted(other) == [*range(10)]


async def observe(context: ReceiveContext[Any], states: list[ReceiveState]) -> None:
    """Note each state that the receive passes, as far as tasks can see it."""
    while True:
        if context.state is not states[-1]:
            states.append(context.state)
        await asyncio.sleep(0.1)


# ---- as a block ------------------------------------------------------------------------------------------------------


async def test_a_block_completes_its_message() -> None:
    async with receive(Broker()) as context:
        assert context.message.body == "body"
    assert context.outcome == "completed"


async def test_a_block_that_raises_abandons_its_message_with_the_reason() -> None:
    broker = Broker()
    with pytest.raises(ZeroDivisionError):
        async with receive(broker):
            raise ZeroDivisionError
    [settlement] = broker.sent
    assert isinstance(settlement, requests.AbandonSettlement)
    assert settlement.reason == "ZeroDivisionError"


def test_a_reason_is_no_longer_than_a_server_takes() -> None:
    assert reason_of(type("E" * 200, (Exception,), {})()) == "E" * 128


def test_a_cancelled_block_sends_nothing_and_leaves_its_message_in_doubt() -> None:
    """The task that was cancelled is not to wait for a server. The lock ends at its time."""

    async def scenario() -> None:
        broker = Broker(delay=5)
        context = receive(broker)

        async def work() -> None:
            async with context:
                await asyncio.sleep(3600)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert asyncio.get_running_loop().time() < 2
        assert (broker.sent, context.in_doubt) == ([], True)

    run_virtually(scenario())


async def test_a_block_leaves_a_message_that_it_has_settled() -> None:
    broker = Broker()
    async with receive(broker) as context:
        await context.defer()
    assert (context.outcome, len(broker.sent)) == ("deferred", 1)


# ---- commits ---------------------------------------------------------------------------------------------------------


async def test_a_refused_commit_leaves_the_receive_received() -> None:
    broker = Broker(error=CONFLICT)
    context = receive(broker)
    with pytest.raises(VersionConflict):
        await context.commit(requests.CommitLock())
    assert (context.state, context.is_active) == (R.RECEIVED, True)
    broker.error = None
    await context.abandon()
    assert context.outcome == "abandoned"


@pytest.mark.parametrize(("error", "in_doubt"), [(LOST, False), (DOUBT, True)])
async def test_a_commit_without_a_lock_or_an_answer_faults_the_receive(error: Exception, in_doubt: bool) -> None:
    context = receive(Broker(error=error))
    with pytest.raises(type(error)):
        await context.commit(requests.CommitLock())
    assert (context.state, context.in_doubt) == (R.FAULTED, in_doubt)


def test_a_fault_during_a_commit_leaves_the_receive_in_doubt() -> None:
    """The commit may have taken effect."""

    async def scenario() -> None:
        context = receive(Broker(delay=5))
        task = asyncio.ensure_future(context.commit(requests.CommitLock()))
        await asyncio.sleep(1)
        context.fault()
        with pytest.raises(InDoubt):
            await task
        assert (context.state, context.in_doubt, context.outcome) == (R.FAULTED, True, None)

    run_virtually(scenario())


def test_no_other_step_begins_during_a_commit() -> None:
    async def scenario() -> None:
        broker, states = Broker(delay=5), list[tuple[ReceiveState, int]]()
        context = receive(broker)
        context.on_complete(lambda: states.append((context.state, len(broker.sent))))
        task = asyncio.ensure_future(context.commit(requests.CommitLock()))
        await asyncio.sleep(1)
        for step in ENDS:
            assert isinstance(await call(context, step), WrongState)
        await task
        assert (context.state, context.outcome, states) == (R.COMPLETED, "completed", [(R.COMPLETING, 0)])

    run_virtually(scenario())


async def test_results_that_are_no_json_are_refused_before_the_callbacks() -> None:
    context, calls = receive(Broker()), list[str]()
    context.on_complete(lambda: calls.append("complete"))
    with pytest.raises(NotSerializable):
        await context.commit(requests.CommitLock([requests.SendEntry("orders", object())]))
    assert (context.state, calls) == (R.RECEIVED, [])


# ---- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.8", "S0.11", "S0.16")
@pytest.mark.parametrize("step", ENDS)
async def test_a_settlement_in_a_transaction_ends_the_receive_with_the_commit(step: str) -> None:
    context, transaction = receive(Broker()), OpenTransaction()
    await getattr(context, step)(transaction=transaction)
    during, after = (R.COMPLETING, R.COMPLETED) if step == "complete" else (R.ABANDONING, R.ABANDONED)
    assert (context.state, context.outcome, transaction.joined) == (during, None, [context])
    context.note_commit()
    assert (context.state, context.outcome) == (after, OUTCOMES[step])


@pytest.mark.behaviour("S0.8")
@pytest.mark.parametrize("step", ENDS)
@pytest.mark.parametrize("then", ENDS)
async def test_after_a_rollback_the_message_can_be_settled_in_any_way(step: str, then: str) -> None:
    broker = Broker()
    context = receive(broker)
    await getattr(context, step)(transaction=OpenTransaction())
    context.note_rollback()
    assert (context.state, context.outcome, context.is_active) == (R.RECEIVED, None, True)
    assert await call(context, then) is None
    assert (context.outcome, len(broker.sent)) == (OUTCOMES[then], 2)


@pytest.mark.parametrize(("fields", "asked"), [({}, True), ({"count": False}, False), ({"delay_seconds": 3}, False)])
async def test_a_worker_decides_about_abandons_that_count_and_have_no_delay(
    fields: dict[str, Any], asked: bool
) -> None:
    broker, decided = Broker(), requests.DeadLetterSettlement("token")
    context = receive(broker)
    context.decide_retries_by(lambda _settlement, _error: decided)
    await context.abandon(**fields)
    assert (broker.sent == [decided]) is asked


async def test_an_earlier_transaction_that_was_rolled_back_changes_nothing_any_more() -> None:
    context = receive(Broker())
    await context.complete(transaction=OpenTransaction())
    context.note_rollback()
    context.note_commit()
    assert (context.state, context.outcome) == (R.RECEIVED, None)


@pytest.mark.parametrize("step", ENDS)
async def test_a_transaction_that_was_rolled_back_before_leaves_the_receive_received(step: str) -> None:
    context, transaction = receive(Broker(error=ROLLED_BACK)), OpenTransaction()
    with pytest.raises(TransactionRolledBack):
        await getattr(context, step)(transaction=transaction)
    assert (context.state, transaction.joined) == (R.RECEIVED, [])


@pytest.mark.behaviour("S0.25")
@pytest.mark.parametrize("note", ["note_commit", "note_rollback"])
async def test_a_fault_stays_after_the_end_of_the_transaction(note: str) -> None:
    context = receive(Broker())
    await context.complete(transaction=OpenTransaction())
    context.fault(DOUBT)
    getattr(context, note)()
    assert (context.state, context.outcome, context.error) == (R.FAULTED, None, DOUBT)
