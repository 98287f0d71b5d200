"""An explanation asks the lock store about renewed locks only, because it has no record of others."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.explain import explain_one_message
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.renew import renew
from app.domain.explanation import EndedMessage, RecordedPromise
from app.domain.instant import SECOND
from app.domain.message import Envelope
from app.domain.queue import Queue
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from tests.brokers import ChangedStore, OpenBroker
from tests.virtual_clock import VirtualClock


@pytest.mark.parametrize(("is_renewed", "held_for"), [(True, 7 * SECOND), (False, 30 * SECOND)])
async def test_the_lock_store_is_asked_about_a_renewed_lock(
    broker: OpenBroker, queue: Queue, clock: VirtualClock, is_renewed: bool, held_for: int
) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    if is_renewed:
        await renew(broker.settling, queue, token_of(message))
    asked: list[LockToken] = []

    async def promises(tokens: Sequence[LockToken]) -> list[RecordedPromise]:
        asked.extend(tokens)
        return [RecordedPromise(1, 7 * SECOND)]

    locks: Any = ChangedStore(broker.lock_store, promises=promises)
    ports = replace(broker, lock_store=locks).administration
    explanation = await explain_one_message(ports, queue, message.sequence_number, "client")
    assert not isinstance(explanation, EndedMessage)
    assert explanation.locked_until == clock.now() + held_for
    assert asked == ([token_of(message)] if is_renewed else [])
