"""An edit keeps concurrent changes, unless its request names the ETag that it has read."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.administration.edit import _MAX_TRIES, MessageChange, cancel, edit
from app.broker.ports.maintaining import Edit
from app.broker.ports.store import Store
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import dead_letter, defer
from app.broker.settling.settle import settle_one
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import Conflict, MessageLocked, PreconditionFailed
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, token_of
from tests.brokers import OpenBroker, result_of


class InterruptedStore:
    """A store in which something happens once, right after the message was read."""

    def __init__(self, store: Any, interrupt: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._interrupt: Callable[[], Awaitable[object]] | None = interrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, queue_id: int, sequence_number: int) -> Message | None:
        found = await self._store.read(queue_id, sequence_number)
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            await interrupt()
        return found


@pytest.fixture
async def message(broker: OpenBroker, queue: Queue) -> Message:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (message,) = await broker.store.browse(queue.id, list(MessageState), 0, 10)
    return message


def append_to_properties(text: bytes) -> MessageChange:
    """Return a change that appends a text to the current properties."""
    return lambda message: Edit(message, properties=message.envelope.properties + text)


async def test_concurrent_edits_are_both_applied(broker: OpenBroker, queue: Queue, message: Message) -> None:
    number = message.sequence_number
    late = replace(
        broker,
        store=InterruptedStore(
            broker.store, lambda: edit(broker.administration, queue, number, append_to_properties(b"a"))
        ),
    )
    assert (await edit(late.administration, queue, number, append_to_properties(b"b"))).envelope.properties == b"ab"


async def test_an_edit_with_a_stale_etag_is_refused(broker: OpenBroker, queue: Queue, message: Message) -> None:
    number = message.sequence_number
    for operation in (
        edit(broker.administration, queue, number, append_to_properties(b"a")),
        edit(broker.administration, queue, number, append_to_properties(b"c")),
    ):
        current = await broker.store.read(queue.id, number)
        assert current is not None
        late = replace(broker, store=InterruptedStore(broker.store, lambda operation=operation: operation))
        with pytest.raises(PreconditionFailed):
            await edit(late.administration, queue, number, append_to_properties(b"b"), [current.etag])
    left = await broker.store.read(queue.id, number)
    assert left is not None
    assert left.envelope.properties == b"ac"


async def test_cancel_with_a_stale_etag_is_refused(broker: OpenBroker, queue: Queue, message: Message) -> None:
    number = message.sequence_number
    late = replace(
        broker,
        store=InterruptedStore(
            broker.store, lambda: edit(broker.administration, queue, number, append_to_properties(b"a"))
        ),
    )
    with pytest.raises(PreconditionFailed):
        await cancel(late.administration, queue, number, [message.etag])
    assert await broker.store.read(queue.id, number) is not None


async def test_a_cancel_without_an_etag_succeeds_after_a_concurrent_edit(
    broker: OpenBroker, queue: Queue, message: Message
) -> None:
    number = message.sequence_number
    late = replace(
        broker,
        store=InterruptedStore(
            broker.store, lambda: edit(broker.administration, queue, number, append_to_properties(b"a"))
        ),
    )
    await cancel(late.administration, queue, number)
    assert await broker.store.read(queue.id, number) is None


async def test_a_message_received_meanwhile_is_neither_edited_nor_cancelled(
    broker: OpenBroker, queue: Queue, message: Message
) -> None:
    number = message.sequence_number
    late = replace(
        broker,
        store=InterruptedStore(broker.store, lambda: result_of(receive(broker.receiving, queue, ReceiveRequest()))),
    )
    with pytest.raises(MessageLocked):
        await edit(late.administration, queue, number, append_to_properties(b"b"))
    with pytest.raises(MessageLocked):
        await cancel(broker.administration, queue, number)


class BusyStore:
    """A store in which another request always changes the message first; it counts the tries."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.tries = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def edit(self, _change: Edit) -> Message | None:
        self.tries += 1

    async def cancel(self, _seen: Message, _queue: Queue) -> bool:
        self.tries += 1
        return False


EDIT_AND_CANCEL = pytest.mark.parametrize(
    "operation",
    [lambda *arguments: edit(*arguments, append_to_properties(b"a")), cancel],
    ids=["edit", "cancellation"],
)


@EDIT_AND_CANCEL
async def test_a_message_that_keeps_changing_is_busy(
    broker: OpenBroker, queue: Queue, message: Message, operation: Callable[[OpenBroker, Queue, int], Awaitable[object]]
) -> None:
    store = BusyStore(broker.store)
    with pytest.raises(MessageLocked, match="kept changing"):
        await operation(replace(broker, store=cast("Store", store)).administration, queue, message.sequence_number)
    assert store.tries == _MAX_TRIES


@EDIT_AND_CANCEL
async def test_a_locked_message_is_refused_at_once(
    broker: OpenBroker, queue: Queue, message: Message, operation: Callable[[OpenBroker, Queue, int], Awaitable[object]]
) -> None:
    await receive(broker.receiving, queue, ReceiveRequest())
    store = BusyStore(broker.store)
    with pytest.raises(MessageLocked):
        await operation(replace(broker, store=cast("Store", store)).administration, queue, message.sequence_number)
    assert store.tries == 0


async def test_edit_and_cancel_with_the_current_etag_succeed(
    broker: OpenBroker, queue: Queue, message: Message
) -> None:
    number = message.sequence_number
    edited = await edit(broker.administration, queue, number, append_to_properties(b"a"), [message.etag])
    assert edited.envelope.properties == b"a"
    await cancel(broker.administration, queue, number, [edited.etag])
    assert await broker.store.read(queue.id, number) is None


@pytest.mark.parametrize("due", [{"delay": HOUR}, {"available_at": 1_900_000_000_000_000}], ids=["delay", "time"])
async def test_an_available_or_scheduled_message_takes_a_due_time(
    broker: OpenBroker, queue: Queue, message: Message, due: dict[str, int]
) -> None:
    number = message.sequence_number
    for _ in range(2):
        edited = await edit(broker.administration, queue, number, lambda message: Edit(message, **due))
        assert edited.state is MessageState.SCHEDULED


@pytest.mark.parametrize("due", [{"delay": 0}, {"available_at": 1_900_000_000_000_000}], ids=["delay", "time"])
@pytest.mark.parametrize("set_aside", [defer, lambda queue, token: dead_letter(queue, token, None, None)])
async def test_a_deferred_or_dead_lettered_message_takes_no_due_time(
    broker: OpenBroker,
    queue: Queue,
    message: Message,
    due: dict[str, int],
    set_aside: Callable[[Queue, LockToken], Any],
) -> None:
    number = message.sequence_number
    (received,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    await settle_one(broker.settling, queue, set_aside(queue, token_of(received)))
    with pytest.raises(Conflict):
        await edit(broker.administration, queue, number, lambda message: Edit(message, **due))
    assert (await edit(broker.administration, queue, number, append_to_properties(b"a"))).envelope.properties == b"a"


@pytest.mark.parametrize("is_absolute", [False, True])
async def test_a_due_time_of_now_is_no_delay(
    broker: OpenBroker, queue: Queue, message: Message, is_absolute: bool
) -> None:
    now = await broker.store.now()

    def change(current: Message) -> Edit:
        return Edit(current, available_at=now) if is_absolute else Edit(current, delay=0)

    edited = await edit(broker.administration, queue, message.sequence_number, change)
    assert (edited.state, edited.available_at) == (MessageState.AVAILABLE, now)
