"""What type checkers know of the client. `dev.py check` reads this module; nothing runs it.

Each use that must not pass has a comment that ignores its error. A comment that ignores nothing is an error itself.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_type

from peeklock_client import (
    BlockingReceive,
    Client,
    CloudEvent,
    HandlerContext,
    Message,
    NewMessage,
    PendingSend,
    ReceiveContext,
    Sender,
    SubscriberOptions,
    Worker,
    WorkerReport,
)
from peeklock_client.blocking import BlockingClient
from peeklock_client.generated import answers


@dataclass
class Order:
    number: int


@dataclass
class Account:
    balance: int = 0


worker = Worker()


# ---- handlers --------------------------------------------------------------------------------------------------------


@worker.on("orders", max_workers=20)
async def with_a_body(order: Order) -> None:
    assert_type(order.number, int)


@worker.on("orders", options=SubscriberOptions(max_workers=20))
async def with_a_message(message: Message[Order]) -> NewMessage:
    assert_type(message.body, Order)
    assert_type(message.delivery_count, int)
    return NewMessage(message.body, queue="invoices")


@worker.on("orders", "returns")
async def with_a_receive(context: ReceiveContext[Order], order: Order) -> list[NewMessage]:
    assert_type(context.message.body.number, int)
    await context.dead_letter("no stock")
    return [NewMessage(order, topic="audit")]


@worker.on("events")
async def with_an_event(event: CloudEvent[Order]) -> NewMessage:
    assert_type(event.data, Order)
    assert_type(event.source, str)
    return CloudEvent("order.invoiced", "/invoices", event.data).to_message(topic="audit")


@worker.on("orders")
def in_a_thread(order: Order) -> tuple[NewMessage, ...]:
    return (NewMessage(order, queue="invoices"),)


@worker.on("orders")  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
async def with_a_result_that_is_no_message(order: Order) -> int:
    return order.number


@worker.on("orders", max_worker=20)  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def with_an_option_that_does_not_exist(order: Order) -> None: ...


@worker.on_state("deposits", key=lambda order: f"account.{order.number}", state=Account)
def with_a_state(account: Account, order: Order, context: HandlerContext) -> NewMessage:
    account.balance += order.number
    assert_type(context.new_id(), str)
    assert_type(context.random(), float)
    return NewMessage(account.balance, queue="receipts")


@worker.on_state("deposits", key=lambda order: f"account.{order.number}", state=Account)  # pyright: ignore[reportArgumentType]
def with_another_state(account: Order, order: Order, context: HandlerContext) -> None: ...


def a_type_without_a_body_has_any_body(
    message: Message, context: ReceiveContext, received: BlockingReceive, event: CloudEvent
) -> None:
    assert_type(message, Message[Any])
    assert_type(context, ReceiveContext[Any])
    assert_type(received.message.body, Any)
    assert_type(event.data, Any)


async def a_sender_alone_sends_to_a_queue(sender: Sender, pending: PendingSend) -> None:
    assert_type(await sender.send("text"), answers.SentMessage)
    assert_type(await pending, answers.SentMessage)


async def handlers_keep_their_types(context: HandlerContext) -> None:
    assert_type(await with_a_message(Message[Order]), NewMessage)  # pyright: ignore[reportArgumentType]
    assert_type(in_a_thread(Order(1)), tuple[NewMessage, ...])
    assert_type(with_a_state(Account(), Order(1), context), NewMessage)


async def a_worker_reports() -> None:
    assert_type(await worker.stop(), WorkerReport)
    assert_type(worker.report.completed, int)


# ---- queues ----------------------------------------------------------------------------------------------------------


async def queues() -> None:
    async with Client() as client:
        assert_type(client, Client)
        queue = client.queue("orders")
        sent = await queue.send(Order(1), message_id="order-1", properties={"region": "eu"}, delay_seconds=60)
        assert_type(sent, answers.SentMessage)
        assert_type(await queue.send_batch([Order(1), NewMessage(2)]), list[answers.SentMessage])
        await queue.send(Order(1), priorty=9)  # pyright: ignore[reportCallIssue]
        await queue.send(Order(1), priority="high")  # pyright: ignore[reportArgumentType]
        for received in await queue.receive(10, wait_seconds=20):
            async with received as context:
                assert_type(context.lock_seconds, float)
        async for message in queue.browse(filter="message.priority > 4"):
            assert_type(message.sequence_number, int)
        async with await client.transaction() as transaction:
            await queue.send(Order(1), transaction=transaction)
        assert_type((await client.topic("news").publish("text")).stored, bool)


async def senders(client: Client) -> None:
    async with Sender(client.queue("orders"), max_in_flight=100) as sender:
        pending = await sender.post(Order(1), group_id="eu")
        assert_type(pending, PendingSend[answers.SentMessage])
        assert_type(await pending, answers.SentMessage)
    async with Sender(client.topic("news")) as publisher:
        assert_type(await publisher.send("text"), answers.PublishedMessage)


def without_an_event_loop(orders: Sequence[Order]) -> None:
    with BlockingClient() as client:
        queue = client.queue("orders")
        for order in orders:
            assert_type(queue.send(order, priority=9), answers.SentMessage)
        for received in queue.receive(10):
            with received:
                assert_type(received.message.sequence_number, int)
