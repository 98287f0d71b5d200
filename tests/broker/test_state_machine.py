"""Random histories of every verb, against the reference model: the same answers, the same messages left."""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from app.broker.abandon import Abandonment, abandon
from app.broker.complete import complete
from app.broker.dead_letter import dead_letter
from app.broker.defer import defer
from app.broker.filters import Everything
from app.broker.purge import Choice, redrive
from app.broker.receive import Wish, receive
from app.broker.renew import renew
from app.broker.send import send
from app.broker.settling import Ask, settle
from app.domain.instant import SECOND
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import AlreadySettled, LockLost, Refusal
from app.domain.sending import Letter
from app.domain.settlement import LockToken, Settled
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import retire_messages
from app.maintenance.schedule import awaken_scheduled
from app.store.migrate import migrate
from tests.broker.model import Model
from tests.clock import VirtualClock
from tests.rooms import sqlite_broker

LIMIT = 2
LOCK = 30 * SECOND
Answer = TypeVar("Answer")


class Histories(RuleBasedStateMachine):
    """Every verb of one queue over SQLite; time moves only when a rule moves it."""

    tokens = Bundle("tokens")

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        url = f"sqlite:///{Path(self.folder.name) / 'peeklock.db'}"
        migrate(url)
        self.clock = VirtualClock()
        self.house = sqlite_broker(url, self.clock)
        self.broker = self.run(self.house.__aenter__())
        self.queue: Queue
        settings_ = QueueSettings(max_delivery_count=LIMIT, lock_duration=LOCK)
        self.queue, _ = self.run(self.broker.store.queues.create("orders", settings_))
        self.model = Model(LIMIT, self.clock.now())

    def teardown(self) -> None:
        if hasattr(self, "house"):
            self.run(self.house.__aexit__(None, None, None))
            self.runner.close()
            self.folder.cleanup()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.runner.run(work)

    @rule(
        priorities=st.lists(st.integers(0, 9), min_size=1, max_size=3),
        delay=st.sampled_from([0, 0, 10]),
        ttl=st.sampled_from([None, None, 40]),
    )
    def send(self, priorities: list[int], delay: int, ttl: int | None) -> None:
        life = None if ttl is None else ttl * SECOND
        letters = [Letter(Envelope(""), priority=one, delay=delay * SECOND, ttl=life) for one in priorities]
        for receipt, priority in zip(self.run(send(self.broker, self.queue, letters)), priorities, strict=True):
            self.model.sent(receipt.sequence_number, priority, delay * SECOND, life)

    @precondition(lambda self: self.model.next(1))
    @rule(target=tokens, most=st.integers(1, 3))
    def receive(self, most: int) -> Any:
        return self._receive(Wish(most=most), self.model.next(most))

    @precondition(lambda self: self.model.deferred())
    @rule(target=tokens)
    def receive_deferred(self) -> Any:
        numbers = self.model.deferred()
        return self._receive(Wish(most=len(numbers), numbers=numbers), numbers)

    @precondition(lambda self: self.model.dead())
    @rule(target=tokens)
    def receive_dead(self) -> Any:
        return self._receive(Wish(most=1, source=MessageState.DEAD_LETTERED), self.model.dead()[:1])

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
        said = Abandonment(counted=counted, delay=delay * SECOND)
        ask = abandon(self.broker, self.queue, LockToken.parse(token), said)
        self._settle(ask, self.model.abandon(token, delay * SECOND, counted))

    @rule(token=tokens)
    def renew(self, token: str) -> None:
        assert self.run(self._renew(token)) == self.model.renew(token, LOCK)

    @rule(seconds=st.sampled_from([1, 11, 31]), sweeps=st.booleans())
    def time_passes(self, seconds: int, sweeps: bool) -> None:
        """Time moves, and the background passes come round or are late."""
        self.run(self.clock.advance(seconds))
        self.model.now = self.clock.now()
        if sweeps:
            self.run(self._sweep())
            self.model.sweep()
            self.model.awaken()
            self.model.retire()

    @precondition(lambda self: self.model.dead())
    @rule()
    def redrive(self) -> None:
        choice = Choice([MessageState.DEAD_LETTERED], Everything())
        assert self.run(redrive(self.broker, self.queue, self.queue, choice, None)) == self.model.redrive()

    @invariant()
    def the_same_messages_are_in_the_same_states(self) -> None:
        if not hasattr(self, "house"):
            return
        stored = self.run(self.broker.store.browse(self.queue.id, list(MessageState), 0, 1000))
        assert {
            message.sequence_number: (message.state, message.delivery_count, message.failure_count)
            for message in stored
        } == {
            letter.number: (letter.state, letter.deliveries, letter.failures) for letter in self.model.letters.values()
        }

    async def _sweep(self) -> None:
        await expire_locks(self.broker)
        await awaken_scheduled(self.broker)
        await retire_messages(self.broker)

    async def _renew(self, token: str) -> str:
        try:
            await renew(self.broker, self.queue, LockToken.parse(token))
        except Refusal as refusal:
            return _word(refusal)
        return "renewed"

    def _receive(self, wish: Wish, expected: list[int]) -> Any:
        messages = self.run(receive(self.broker, self.queue, wish))
        assert [message.sequence_number for message in messages] == expected
        tokens: list[str] = []
        for message in messages:
            token = str(LockToken(message.sequence_number, message.lock_token or b""))
            self.model.locked(message.sequence_number, token, LOCK)
            tokens.append(token)
        return multiple(*tokens)

    def _settle(self, ask: Ask, expected: str) -> None:
        (answer,) = self.run(settle(self.broker, self.queue, [ask]))
        assert _word(answer) == expected


def _word(answer: Settled | Refusal) -> str:
    match answer:
        case Settled(replayed=True):
            return f"{answer.outcome} replayed"
        case Settled():
            return answer.outcome
        case AlreadySettled():
            return f"already {answer.outcome}"
        case LockLost():
            return "lock-lost"
        case _:
            return answer.code


Histories.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_histories = Histories.TestCase
