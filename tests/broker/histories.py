"""Random histories of every verb on one queue, held against the reference model after each step."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from app.broker.abandon import Abandonment, abandon
from app.broker.complete import complete
from app.broker.dead_letter import dead_letter
from app.broker.defer import defer
from app.broker.edit import cancel, edit
from app.broker.filters import CelFilter
from app.broker.ports import Attempt, Edit
from app.broker.purge import Choice, purge, redrive
from app.broker.queues import delete_queue, put_queue
from app.broker.receive import Wish, receive, receive_and_delete, receive_once
from app.broker.renew import renew
from app.broker.send import send, send_each, send_once
from app.broker.settling import Ask, settle
from app.domain.instant import MINUTE, SECOND, Duration
from app.domain.message import DEFAULT_PRIORITY, BodyKind, Envelope, Message, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import AlreadySettled, Refusal
from app.domain.sending import Letter
from app.domain.settlement import LockToken, Settled
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import retire_messages
from app.maintenance.schedule import awaken_scheduled
from tests.broker.model import Letter as Expected
from tests.broker.model import Model
from tests.contract.subject import Subject
from tests.rooms import assemble

NAME = "orders"
LIMIT = 2
ROOM = 8
UNIT: Duration = 20 * MINUTE
"""All times of a history are multiples of this: far more than a server's own clock moves while one runs."""
LOCK = 30 * UNIT
KEEP = 35 * UNIT
LARGEST = 100
SETTINGS = QueueSettings(max_delivery_count=LIMIT, lock_duration=LOCK, max_messages=ROOM, max_message_bytes=LARGEST)
BODIES = {"fits": b"x" * LARGEST, "is too large": b"x" * (LARGEST + 1)}

Answer = TypeVar("Answer")
priorities = st.integers(0, 9)
lowest = st.sampled_from([0, 0, 5])
limits = st.sampled_from([None, None, 1, 2])
keys = st.integers(1, 2)
picks = st.integers(0, 1000)
stale = st.sampled_from([False, False, False, True])


class Histories(RuleBasedStateMachine):
    """Every verb of one queue; time moves only when a rule moves it."""

    tokens = Bundle("tokens")

    def __init__(self, make_subject: Callable[[], Subject]) -> None:
        super().__init__()
        self.make_subject = make_subject

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.subject = self.make_subject()
        self.run(self.subject.begin())
        self.clock = self.subject.clock
        self.broker = assemble(self.subject.store, self.clock)
        self.queue: Queue
        self.queue, _ = self.run(put_queue(self.broker, NAME, SETTINGS))
        self.model = Model(LIMIT, ROOM, self.clock.now())
        self._fill()

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.run(self.broker.outbox.close())
            self.run(self.broker.catalogue.close())
            self.run(self.subject.end())
            self.runner.close()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.runner.run(work)

    def _fill(self) -> None:
        """Begin with a message in every unlocked state, or few histories are long enough to come to all of them."""
        for set_aside in (self.dead_letter, self.defer):
            (receipt,) = self.run(send(self.broker, self.queue, [Letter(Envelope(""))]))
            self.model.sent(receipt.sequence_number, DEFAULT_PRIORITY, 0, None)
            (token,) = self._locked(self.run(receive(self.broker, self.queue, Wish())), [receipt.sequence_number])
            set_aside(token)
        self.send([2, 7], 0, None)
        self.send([5], 10, 40)

    # ---- sending -----------------------------------------------------------------------------------------------------

    @rule(
        priorities=st.lists(priorities, min_size=1, max_size=3),
        delay=st.sampled_from([0, 0, 10]),
        ttl=st.sampled_from([None, None, 40]),
    )
    def send(self, priorities: list[int], delay: int, ttl: int | None) -> None:
        life = None if ttl is None else ttl * UNIT
        letters = [Letter(Envelope(""), priority=one, delay=delay * UNIT, ttl=life) for one in priorities]
        said = self._said(send(self.broker, self.queue, letters))
        if not self.model.has_room(len(letters)):
            assert said == "queue-full"
            return
        assert not isinstance(said, str)
        for receipt, priority in zip(said, priorities, strict=True):
            self.model.sent(receipt.sequence_number, priority, delay * UNIT, life)

    @rule(batch=st.lists(st.tuples(priorities, st.sampled_from([*BODIES, "fits"])), min_size=1, max_size=4))
    def send_each(self, batch: list[tuple[int, str]]) -> None:
        """Each message of a batch has its own receipt or refusal."""
        letters = [Letter(Envelope(""), BODIES[size], BodyKind.BYTES, priority) for priority, size in batch]
        said = self.run(send_each(self.broker, self.queue, letters))
        for one, (priority, size) in zip(said, batch, strict=True):
            if size == "is too large":
                assert _word(one) == "message-too-large"
            elif not self.model.has_room(1):
                assert _word(one) == "queue-full"
            else:
                assert isinstance(one, Receipt)
                self.model.sent(one.sequence_number, priority, 0, None)

    @rule(key=keys, priority=st.sampled_from([2, 7]))
    def send_once(self, key: int, priority: int) -> None:
        """A repeat under the same key hears the first answer and stores nothing."""
        letters = [Letter(Envelope(""), priority=priority)]
        said = self._said(send_once(self.broker, NAME, letters, _attempt("send", key, priority)))
        match self.model.earlier("send", key, priority):
            case None if not self.model.has_room(1):
                assert said == "queue-full"
            case None:
                assert not isinstance(said, str)
                assert not said.replayed
                (receipt,) = said.answer
                self.model.sent(receipt.sequence_number, priority, 0, None)
                self.model.keep("send", key, priority, [receipt.sequence_number], KEEP)
            case str(refusal):
                assert said == refusal
            case numbers:
                assert not isinstance(said, str)
                assert said.replayed
                assert [receipt.sequence_number for receipt in said.answer] == numbers

    # ---- receiving ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.next(1))
    @rule(target=tokens, most=st.integers(1, 3))
    def receive(self, most: int) -> Any:
        return self._receive(Wish(most=most), self.model.next(most))

    @rule(target=tokens, most=st.integers(1, 3), lowest_priority=st.integers(1, 9))
    def receive_through_a_filter(self, most: int, lowest_priority: int) -> Any:
        wish = Wish(most=most, matching=_at_least(lowest_priority))
        return self._receive(wish, self.model.next(most, lowest_priority))

    @precondition(lambda self: self.model.deferred())
    @rule(target=tokens)
    def receive_deferred(self) -> Any:
        numbers = self.model.deferred()
        return self._receive(Wish(most=len(numbers), numbers=numbers), numbers)

    @precondition(lambda self: self.model.dead())
    @rule(target=tokens, most=st.integers(1, 2))
    def receive_dead(self, most: int) -> Any:
        return self._receive(Wish(most=most, source=MessageState.DEAD_LETTERED), self.model.dead()[:most])

    @rule(target=tokens, key=keys, most=st.integers(1, 3))
    def receive_once(self, key: int, most: int) -> Any:
        """A repeat under the same key gets what is still locked for the first one, and counts no delivery."""
        said = self._said(receive_once(self.broker, self.queue, Wish(most=most), _attempt("receive", key, most)))
        match self.model.earlier("receive", key, most):
            case None:
                assert not isinstance(said, str)
                assert not said.replayed
                tokens = self._locked(said.answer, self.model.next(most))
                if tokens:
                    self.model.keep("receive", key, most, tokens, KEEP)
                return multiple(*tokens)
            case str(refusal):
                assert said == refusal
            case tokens:
                assert not isinstance(said, str)
                assert said.replayed
                assert [_token(message) for message in said.answer] == self.model.receive_again(tokens, LOCK)
        return multiple()

    @precondition(lambda self: self.model.remembered("receive"))
    @rule(target=tokens, pick=picks)
    def repeat_a_receive(self, pick: int) -> Any:
        """By chance alone, few histories make an attempt twice while it is remembered."""
        attempts = self.model.remembered("receive")
        key, most = attempts[pick % len(attempts)]
        return self.receive_once(key, most)

    @rule(most=st.integers(1, 2))
    def receive_and_delete(self, most: int) -> None:
        expected = self.model.next(most)
        messages = self.run(receive_and_delete(self.broker, self.queue, Wish(most=most)))
        assert [message.sequence_number for message in messages] == expected
        for number in expected:
            self.model.taken(number)

    # ---- ending deliveries -------------------------------------------------------------------------------------------

    @rule(token=tokens)
    def complete(self, token: str) -> None:
        self._settle(complete(self.queue, LockToken.parse(token)), self.model.complete(token))

    @rule(token=tokens)
    def dead_letter(self, token: str) -> None:
        self._settle(dead_letter(self.queue, LockToken.parse(token), "bad", None), self.model.dead_letter(token))

    @rule(token=tokens)
    def defer(self, token: str) -> None:
        self._settle(defer(self.queue, LockToken.parse(token)), self.model.defer(token))

    @rule(token=tokens, delay=st.sampled_from([0, 0, 10]), counted=st.sampled_from([True, True, False]))
    def abandon(self, token: str, delay: int, counted: bool) -> None:
        said = Abandonment(counted=counted, delay=delay * UNIT)
        ask = abandon(self.broker, self.queue, LockToken.parse(token), said)
        self._settle(ask, self.model.abandon(token, delay * UNIT, counted))

    @rule(token=tokens)
    def renew(self, token: str) -> None:
        said = self._said(renew(self.broker, self.queue, LockToken.parse(token)))
        assert (said if isinstance(said, str) else "renewed") == self.model.renew(token, LOCK)

    # ---- what time does ----------------------------------------------------------------------------------------------

    @rule(units=st.sampled_from([1, 11, 31]), sweeps=st.booleans())
    def time_passes(self, units: int, sweeps: bool) -> None:
        """Time moves, and the background passes run or are late."""
        self.run(self.subject.pass_time(units * UNIT / SECOND))
        self.model.now = self.clock.now()
        if sweeps:
            self.run(self._sweep())
            self.model.sweep()
            self.model.awaken()
            self.model.retire()

    # ---- what an administrator does ----------------------------------------------------------------------------------

    @rule(states=st.sets(st.sampled_from(MessageState), min_size=1), lowest_priority=lowest, limit=limits)
    def purge(self, states: set[MessageState], lowest_priority: int, limit: int | None) -> None:
        chosen = self.model.chosen(states, lowest_priority, limit)
        choice = Choice(sorted(states), _at_least(lowest_priority), limit)
        assert self.run(purge(self.broker, self.queue, choice)) == self.model.purge(chosen)

    @precondition(lambda self: self.model.dead())
    @rule(lowest_priority=lowest, limit=limits)
    def redrive(self, lowest_priority: int, limit: int | None) -> None:
        dead = [MessageState.DEAD_LETTERED]
        chosen = self.model.chosen(dead, lowest_priority, limit)
        choice = Choice(dead, _at_least(lowest_priority), limit)
        assert self.run(redrive(self.broker, self.queue, self.queue, choice, None)) == self.model.redrive(chosen)

    @precondition(lambda self: self.model.known())
    @rule(
        pick=picks,
        is_stale=stale,
        priority=st.none() | priorities,
        delay=st.sampled_from([None, None, 0, 10]),
    )
    def edit(self, pick: int, is_stale: bool, priority: int | None, delay: int | None) -> None:
        number = self._picked(pick)
        due_in = None if delay is None else delay * UNIT

        def change(seen: Message) -> Edit:
            return Edit(seen, delay=due_in, priority=priority)

        said = self._said(edit(self.broker, self.queue, number, change, _wanted(is_stale)))
        assert (said if isinstance(said, str) else "edited") == self.model.edit(number, is_stale, priority, due_in)

    @precondition(lambda self: self.model.known())
    @rule(pick=picks, is_stale=stale)
    def cancel(self, pick: int, is_stale: bool) -> None:
        number = self._picked(pick)
        said = self._said(cancel(self.broker, self.queue, number, _wanted(is_stale)))
        assert (said or "cancelled") == self.model.cancel(number, is_stale)

    @precondition(lambda self: len(self.model.known()) > ROOM)
    @rule()
    def delete_the_queue_and_make_it_again(self) -> None:
        self.run(delete_queue(self.broker, self.queue))
        before = self.queue
        self.queue, made = self.run(put_queue(self.broker, NAME, SETTINGS))
        assert made
        assert self.queue.id != before.id
        self.model.recreate()

    # ---- what must hold after each step ------------------------------------------------------------------------------

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
                _token(message) if message.lock_token else None,
                _life(message),
            )
            for message in stored
        } == {
            letter.number: (
                letter.state,
                letter.priority,
                letter.deliveries,
                letter.failures,
                letter.token,
                _life(letter),
            )
            for letter in self.model.letters.values()
        }
        # Two steps are never at the same time, as on a server.
        self.run(self.clock.advance(0.000_001))
        self.model.now = self.clock.now()

    # ---- steps of these ----------------------------------------------------------------------------------------------

    def _picked(self, pick: int) -> int:
        known = self.model.known()
        return known[pick % len(known)]

    async def _sweep(self) -> None:
        await expire_locks(self.broker)
        await awaken_scheduled(self.broker)
        await retire_messages(self.broker)

    def _said(self, work: Coroutine[Any, Any, Answer]) -> Answer | str:
        """What a verb answers, or the code of its refusal."""
        try:
            return self.run(work)
        except Refusal as refusal:
            return _word(refusal)

    def _receive(self, wish: Wish, expected: list[int]) -> Any:
        return multiple(*self._locked(self.run(receive(self.broker, self.queue, wish)), expected))

    def _locked(self, messages: list[Message], expected: list[int]) -> list[str]:
        """The tokens of received messages, which must be those expected."""
        assert [message.sequence_number for message in messages] == expected
        for message in messages:
            self.model.locked(message.sequence_number, _token(message), LOCK)
        return [_token(message) for message in messages]

    def _settle(self, ask: Ask, expected: str) -> None:
        (answer,) = self.run(settle(self.broker, self.queue, [ask]))
        assert _word(answer) == expected


def _attempt(verb: str, key: int, payload: object) -> Attempt:
    key_digest, payload_digest = (hashlib.sha256(repr(one).encode()).digest() for one in ((verb, key), payload))
    return Attempt(key_digest, payload_digest, KEEP)


def _at_least(lowest_priority: int) -> CelFilter:
    return CelFilter(f"message.priority >= {lowest_priority}")


def _life(message: Message | Expected) -> int | None:
    """The units from when the message can be received to the end of its life; a server's clock moves less than one."""
    return None if message.expires_at is None else round((message.expires_at - message.available_at) / UNIT)


def _wanted(is_stale: bool) -> set[str] | None:
    return {"the edition before the last"} if is_stale else None


def _token(message: Message) -> str:
    return str(LockToken(message.sequence_number, message.lock_token or b""))


def _word(answer: Receipt | Settled | Refusal) -> str:
    match answer:
        case Settled(replayed=True):
            return f"{answer.outcome} replayed"
        case Settled():
            return answer.outcome
        case AlreadySettled():
            return f"already {answer.outcome}"
        case Refusal():
            return answer.code
        case _:
            return "stored"
