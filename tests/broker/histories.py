"""Random histories of every operation on one queue, compared with the reference model after each step."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from app.broker.administration.edit import cancel, edit
from app.broker.administration.purge import purge
from app.broker.administration.queues import change_queue, delete_queue, put_queue
from app.broker.administration.redrive import redrive
from app.broker.administration.select_messages import MessageSelection
from app.broker.ports.maintaining import Edit
from app.broker.receiving.receive import ReceiveMode, ReceiveRequest, receive
from app.broker.sending.send import send, send_each
from app.broker.settling.change_lock import change_lock
from app.broker.settling.outcomes import Abandonment, abandon, complete, dead_letter, defer, release
from app.broker.settling.renew import renew
from app.broker.settling.settle import SettlementRequest, settle
from app.domain.instant import SECOND, Instant
from app.domain.message import DEFAULT_PRIORITY, BodyKind, Envelope, Message, MessageState, Receipt
from app.domain.queue import HeldLocks, Queue, QueueSettings
from app.domain.refusals import Refusal
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import expire_overdue
from app.maintenance.schedule import promote_scheduled
from tests.broker.reference_model import Model
from tests.broker.reference_model import ModelMessage as Expected
from tests.broker.short_forms import (
    ATTEMPT_RETENTION,
    TIME_UNIT,
    at_least,
    attempt,
    if_match,
    in_time_units,
    result_code,
    token_text,
)
from tests.brokers import build_broker, result_of
from tests.contract.store_fixture import StoreFixture

NAME = "orders"
MAX_DELIVERY_COUNT = 2
MAX_MESSAGES = 8
LOCK_DURATION = 30 * TIME_UNIT
MAX_MESSAGE_BYTES = 100
SETTINGS = QueueSettings(
    max_delivery_count=MAX_DELIVERY_COUNT,
    lock_duration=LOCK_DURATION,
    max_messages=MAX_MESSAGES,
    max_message_bytes=MAX_MESSAGE_BYTES,
)
UNLOCKED = [state for state in MessageState if state is not MessageState.LOCKED]
BODIES = {"fits": b"x" * MAX_MESSAGE_BYTES, "is too large": b"x" * (MAX_MESSAGE_BYTES + 1)}

Result = TypeVar("Result")
priorities = st.integers(0, 9)
lowest_priorities = st.sampled_from([0, 0, 5])
limits = st.sampled_from([None, None, 1, 2])
keys = st.integers(1, 2)
picks = st.integers(0, 1000)
delays = st.sampled_from([None, 0, 0, 10])
default_delays = st.sampled_from([None, None, 10])
groups = st.sampled_from([None, "a", "a", "b"])
group_limits = st.sampled_from([None, 1, 1, 2])
is_stale_choices = st.sampled_from([False, False, False, True])


class VerbHistories(RuleBasedStateMachine):
    """Every operation on one queue; time moves only when a rule moves it."""

    tokens = Bundle("tokens")
    make_model: Callable[..., Any] = Model

    def __init__(self, make_store_fixture: Callable[[], StoreFixture]) -> None:
        super().__init__()
        self.make_store_fixture = make_store_fixture

    @initialize(group_in_flight=group_limits, default_delay=default_delays)
    def open(self, group_in_flight: int | None, default_delay: int | None) -> None:
        self.settings = replace(SETTINGS, group_in_flight=group_in_flight, default_delay=in_time_units(default_delay))
        self.runner = asyncio.Runner()
        self.subject = self.make_store_fixture()
        self.run(self.subject.open())
        self.clock = self.subject.clock
        self.broker = build_broker(self.subject.store, self.clock)
        self.create_queues()
        self.model = self.make_model(
            MAX_DELIVERY_COUNT, MAX_MESSAGES, self.clock.now(), group_in_flight, self.settings.default_delay
        )
        self._send_initial_messages()

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.run(self.broker.volatile_buffer.close())
            self.run(self.broker.topic_cache.close())
            self.run(self.broker.queue_cache.close())
            self.run(self.subject.close())
            self.runner.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    def create_queues(self) -> None:
        self.queue: Queue
        self.queue, _ = self.run(put_queue(self.broker.administration, NAME, self.settings))

    def _send_initial_messages(self) -> None:
        """Start with a message in every unlocked state: few random histories are long enough to reach all of them."""
        for set_aside in (self.dead_letter, self.defer):
            new_message = NewMessage(Envelope(""), delay=0)
            (receipt,) = self.run(result_of(send(self.broker.sending, self.queue.name, [new_message])))
            self.model.sent(receipt.sequence_number, DEFAULT_PRIORITY, 0, None)
            (token,) = self.check_locked(
                self.run(result_of(receive(self.broker.receiving, self.queue, ReceiveRequest()))),
                [receipt.sequence_number],
            )
            set_aside(token)
        self.send([2, 7], 0, None, "a")
        self.send([5], 10, 40, "a")

    # ---- sending -----------------------------------------------------------------------------------------------------

    @rule(
        priorities=st.lists(priorities, min_size=1, max_size=3),
        delay=delays,
        ttl=st.sampled_from([None, None, 40]),
        group=groups,
    )
    def send(self, priorities: list[int], delay: int | None, ttl: int | None, group: str | None) -> None:
        own_delay, time_to_live = in_time_units(delay), in_time_units(ttl)
        new_messages = [
            NewMessage(Envelope("", group_id=group), priority=one, delay=own_delay, ttl=time_to_live)
            for one in priorities
        ]
        result = self.result_or_code(result_of(send(self.broker.sending, self.queue.name, new_messages)))
        if not self.model.has_room(len(new_messages)):
            assert result == "queue-full"
            return
        assert not isinstance(result, str)
        for receipt, priority in zip(result, priorities, strict=True):
            state = self.model.sent(receipt.sequence_number, priority, own_delay, time_to_live, group)
            assert receipt.state is state

    @rule(
        batch=st.lists(st.tuples(priorities, st.sampled_from([*BODIES, "fits"])), min_size=1, max_size=4), group=groups
    )
    def send_each(self, batch: list[tuple[int, str]], group: str | None) -> None:
        """Each message of a batch has its own receipt or refusal."""
        envelope = Envelope("", group_id=group)
        new_messages = [NewMessage(envelope, BODIES[size], BodyKind.BYTES, priority) for priority, size in batch]
        result = self.run(send_each(self.broker.sending, self.queue.name, new_messages))
        for one, (priority, size) in zip(result, batch, strict=True):
            if size == "is too large":
                assert result_code(one) == "message-too-large"
            elif not self.model.has_room(1):
                assert result_code(one) == "queue-full"
            else:
                assert isinstance(one, Receipt)
                assert one.state is self.model.sent(one.sequence_number, priority, None, None, group)

    @rule(key=keys, priority=st.sampled_from([2, 7]))
    def send_or_replay(self, key: int, priority: int) -> None:
        """A repeat with the same key gets the first result and stores no message."""
        # The group belongs to the payload, so that a repeat has the same.
        group = "a" if priority == 2 else None
        new_messages = [NewMessage(Envelope("", group_id=group), priority=priority)]
        result = self.result_or_code(send(self.broker.sending, NAME, new_messages, attempt("send", key, priority)))
        match self.model.earlier_answer("send", key, priority):
            case None if not self.model.has_room(1):
                assert result == "queue-full"
            case None:
                assert not isinstance(result, str)
                assert not result.replayed
                (receipt,) = result.result
                assert receipt.state is self.model.sent(receipt.sequence_number, priority, None, None, group)
                self.model.remember("send", key, priority, [receipt.sequence_number], ATTEMPT_RETENTION)
            case str(refusal):
                assert result == refusal
            case numbers:
                assert not isinstance(result, str)
                assert result.replayed
                assert [receipt.sequence_number for receipt in result.result] == numbers

    # ---- settings --------------------------------------------------------------------------------------------------------

    @rule(lock_duration=st.sampled_from([20, 30, 40]), limit=st.sampled_from([1, MAX_DELIVERY_COUNT, 3]))
    def change_settings_and_keep_locks(self, lock_duration: int, limit: int) -> None:
        """Change what holders of locks rely on. They keep their locks, and what follows goes by the new settings."""
        self.settings = replace(self.settings, lock_duration=lock_duration * TIME_UNIT, max_delivery_count=limit)
        changing = change_queue(self.broker.administration, self.queue, lambda _: self.settings, locks=HeldLocks.KEEP)
        self.queue = self.run(changing)
        self.model.max_delivery_count = limit

    # ---- receiving ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.next(1))
    @rule(target=tokens, most=st.integers(1, 3))
    def receive(self, most: int) -> Any:
        return self._receive(ReceiveRequest(max_messages=most), self.model.next(most))

    @rule(target=tokens, most=st.integers(1, 3), lowest_priority=st.integers(1, 9))
    def receive_through_a_filter(self, most: int, lowest_priority: int) -> Any:
        request = ReceiveRequest(max_messages=most, message_filter=at_least(lowest_priority))
        return self._receive(request, self.model.next(most, lowest_priority))

    @precondition(lambda self: self.model.deferred())
    @rule(target=tokens)
    def receive_deferred(self) -> Any:
        numbers = self.model.deferred()
        return self._receive(ReceiveRequest(max_messages=len(numbers), sequence_numbers=numbers), numbers)

    @precondition(lambda self: self.model.dead())
    @rule(target=tokens, most=st.integers(1, 2))
    def receive_dead_lettered(self, most: int) -> Any:
        return self._receive(
            ReceiveRequest(max_messages=most, source=MessageState.DEAD_LETTERED), self.model.dead()[:most]
        )

    @rule(target=tokens, key=keys, most=st.integers(1, 3))
    def receive_or_replay(self, key: int, most: int) -> Any:
        """A repeat with the same key gets the messages still locked for the first one, and counts no delivery."""
        result = self.result_or_code(
            receive(self.broker.receiving, self.queue, ReceiveRequest(max_messages=most), attempt("receive", key, most))
        )
        match self.model.earlier_answer("receive", key, most):
            case None:
                assert not isinstance(result, str)
                assert not result.replayed
                tokens = self.check_locked(result.result, self.model.next(most))
                if tokens:
                    self.model.remember("receive", key, most, tokens, ATTEMPT_RETENTION)
                return multiple(*tokens)
            case str(refusal):
                assert result == refusal
            case tokens:
                assert not isinstance(result, str)
                assert result.replayed
                assert [token_text(message) for message in result.result] == self.model.receive_again(
                    tokens, self.settings.lock_duration
                )
        return multiple()

    @precondition(lambda self: self.model.remembered_attempts("receive"))
    @rule(target=tokens, pick=picks)
    def repeat_a_receive(self, pick: int) -> Any:
        """Repeat a stored attempt: at random, few histories do so while it is stored."""
        attempts = self.model.remembered_attempts("receive")
        key, most = attempts[pick % len(attempts)]
        return self.receive_or_replay(key, most)

    @rule(most=st.integers(1, 2))
    def receive_and_delete(self, most: int) -> None:
        expected = self.model.next(most)
        messages = self.run(
            result_of(
                receive(
                    self.broker.receiving,
                    self.queue,
                    ReceiveRequest(max_messages=most, mode=ReceiveMode.RECEIVE_AND_DELETE),
                )
            )
        )
        assert [message.sequence_number for message in messages] == expected
        self.model.received_and_deleted(expected)

    # ---- settling deliveries -----------------------------------------------------------------------------------------

    @rule(token=tokens)
    def complete(self, token: str) -> None:
        self._settle(complete(self.queue, LockToken.parse(token)), self.model.complete(token))

    @rule(token=tokens)
    def dead_letter(self, token: str) -> None:
        self._settle(dead_letter(self.queue, LockToken.parse(token), "bad", None), self.model.dead_letter(token))

    @rule(token=tokens)
    def defer(self, token: str) -> None:
        self._settle(defer(self.queue, LockToken.parse(token)), self.model.defer(token))

    @rule(token=tokens)
    def release(self, token: str) -> None:
        self._settle(release(self.queue, LockToken.parse(token)), self.model.release(token))

    @rule(token=tokens, delay=st.sampled_from([0, 0, 10]), counted=st.sampled_from([True, True, False]))
    def abandon(self, token: str, delay: int, counted: bool) -> None:
        abandonment = Abandonment(counted=counted, delay=delay * TIME_UNIT)
        request = abandon(self.queue, LockToken.parse(token), abandonment)
        self._settle(request, self.model.abandon(token, delay * TIME_UNIT, counted))

    @rule(token=tokens)
    def renew(self, token: str) -> None:
        result = self.result_or_code(renew(self.broker.settling, self.queue, LockToken.parse(token)))
        assert (result if isinstance(result, str) else "renewed") == self.model.renew(
            token, self.settings.lock_duration
        )

    @rule(token=tokens, units=st.sampled_from([5, 20, 60]))
    def change_lock(self, token: str, units: int) -> None:
        duration = units * TIME_UNIT
        result = self.result_or_code(change_lock(self.broker.settling, self.queue, LockToken.parse(token), duration))
        expected = self.model.change_lock(token, duration)
        if isinstance(result, str) or isinstance(expected, str):
            assert result == expected
        else:
            assert result.duration == expected - self.model.now, "a server has a clock of its own"

    # ---- time --------------------------------------------------------------------------------------------------------

    @rule(units=st.sampled_from([1, 11, 31]), sweeps=st.booleans())
    def time_passes(self, units: int, sweeps: bool) -> None:
        """Move the clock; the background loops run or are late."""
        self.run(self.subject.advance_time(units * TIME_UNIT / SECOND))
        self.model.now = self.clock.now()
        if sweeps:
            for run_pass, expect in self.loops():
                self.run(run_pass)
                expect()
                self._pass_a_microsecond()

    def loops(self) -> list[tuple[Coroutine[Any, Any, object], Callable[[], object]]]:
        """Return a pass of each background loop, and what it does to the model."""
        return [
            (expire_locks(self.broker.settling), self.model.sweep),
            (promote_scheduled(self.broker.administration), self.model.promote),
            (expire_overdue(self.broker.administration), self.model.expire),
        ]

    # ---- administration ----------------------------------------------------------------------------------------------

    @rule(
        states=st.just({MessageState.LOCKED}) | st.sets(st.sampled_from(UNLOCKED), min_size=1),
        lowest_priority=lowest_priorities,
        limit=limits,
    )
    def purge(self, states: set[MessageState], lowest_priority: int, limit: int | None) -> None:
        selection = MessageSelection(sorted(states), at_least(lowest_priority), limit)
        purged = self.run(purge(self.broker.administration, self.queue, selection))
        assert purged == self.model.purge(states, lowest_priority, limit)

    @precondition(lambda self: self.model.dead())
    @rule(lowest_priority=lowest_priorities, limit=limits)
    def redrive(self, lowest_priority: int, limit: int | None) -> None:
        dead_lettered_states = [MessageState.DEAD_LETTERED]
        chosen = self.model.select(dead_lettered_states, lowest_priority, limit)
        selection = MessageSelection(dead_lettered_states, at_least(lowest_priority), limit)
        assert self.run(
            redrive(self.broker.administration, self.queue, self.queue, selection, None)
        ) == self.model.redrive(chosen)

    @precondition(lambda self: self.model.known_numbers())
    @rule(
        pick=picks,
        is_stale=is_stale_choices,
        priority=st.none() | priorities,
        delay=st.sampled_from([None, None, 0, 10]),
    )
    def edit(self, pick: int, is_stale: bool, priority: int | None, delay: int | None) -> None:
        number = self._picked(pick)
        due_in = None if delay is None else delay * TIME_UNIT

        def change(message: Message) -> Edit:
            return Edit(message, delay=due_in, priority=priority)

        result = self.result_or_code(edit(self.broker.administration, self.queue, number, change, if_match(is_stale)))
        assert (result if isinstance(result, str) else "edited") == self.model.edit(number, is_stale, priority, due_in)

    @precondition(lambda self: self.model.known_numbers())
    @rule(pick=picks, is_stale=is_stale_choices)
    def cancel(self, pick: int, is_stale: bool) -> None:
        number = self._picked(pick)
        result = self.result_or_code(cancel(self.broker.administration, self.queue, number, if_match(is_stale)))
        assert (result or "cancelled") == self.model.cancel(number, is_stale)

    @precondition(lambda self: len(self.model.known_numbers()) > MAX_MESSAGES)
    @rule()
    def delete_the_queue_and_make_it_again(self) -> None:
        self.run(delete_queue(self.broker.administration, self.queue))
        before = self.queue
        self.queue, made = self.run(put_queue(self.broker.administration, NAME, self.settings))
        assert made
        assert self.queue.id != before.id
        self.model.recreate()

    # ---- invariants --------------------------------------------------------------------------------------------------

    @invariant()
    def the_same_messages_are_in_the_same_states(self) -> None:
        if not hasattr(self, "broker"):
            return
        stored = self.run(self.broker.store.browse(self.queue.id, list(MessageState), 0, 1000))
        assert {
            message.sequence_number: (
                message.state,
                message.priority,
                message.delivery_count,
                message.failure_count,
                _since(message.first_delivered_at, message.read_at),
                token_text(message) if message.lock_token else None,
                _lifetime(message),
            )
            for message in stored
        } == {
            expected.number: (
                expected.state,
                expected.priority,
                expected.delivery_count,
                expected.failure_count,
                _since(expected.first_delivered_at, self.model.now),
                expected.token,
                _lifetime(expected),
            )
            for expected in self.model.messages.values()
        }
        self._pass_a_microsecond()

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def _picked(self, pick: int) -> int:
        """Pick a message of the queue, or one of the last two that left it."""
        known = sorted([*self.model.messages, *sorted(self.model.removed)[-2:]])
        return known[pick % len(known)]

    def _pass_a_microsecond(self) -> None:
        """Advance the clock, because on a server two steps never happen at the same time."""
        self.run(self.clock.advance(0.000_001))
        self.model.now = self.clock.now()

    def result_or_code(self, work: Coroutine[Any, Any, Result]) -> Result | str:
        """Return the result of an operation, or the code of its refusal."""
        try:
            return self.run(work)
        except Refusal as refusal:
            return result_code(refusal)

    def _receive(self, request: ReceiveRequest, expected: list[int]) -> Any:
        return multiple(
            *self.check_locked(self.run(result_of(receive(self.broker.receiving, self.queue, request))), expected)
        )

    def check_locked(self, messages: list[Message], expected: list[int]) -> list[str]:
        """Check the numbers of received messages and return their tokens."""
        assert [message.sequence_number for message in messages] == expected
        for message in messages:
            self.model.locked(message.sequence_number, token_text(message), self.settings.lock_duration)
        return [token_text(message) for message in messages]

    def _settle(self, request: SettlementRequest, expected: str) -> None:
        (answer,) = self.run(settle(self.broker.settling, self.queue, [request]))
        assert result_code(answer) == expected


def _lifetime(message: Message | Expected) -> int | None:
    """Return the time units from available_at to expires_at; a server's clock moves by less than one."""
    return None if message.expires_at is None else round((message.expires_at - message.available_at) / TIME_UNIT)


def _since(instant: Instant | None, now: Instant) -> int | None:
    """Return how many time units have passed since then, None if never."""
    return None if instant is None else round((now - instant) / TIME_UNIT)
