"""A program with every part of the client, with the annotations that a user writes. Type checkers read it; nothing runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime

from peeklock_client import (
    AckPolicy,
    BlockingClient,
    BlockingQueue,
    BlockingReceive,
    Client,
    CloudEvent,
    ExponentialRetry,
    HandlerContext,
    InDoubt,
    LockLost,
    Message,
    NewMessage,
    NoRetry,
    PendingSend,
    Plan,
    Queue,
    ReceiveContext,
    ReceiveState,
    Refusal,
    Sender,
    SubscriberOptions,
    Topic,
    Transaction,
    Worker,
    WorkerReport,
)


@dataclass
class Order:
    number: int
    article: str


@dataclass
class Stock:
    left: int = 0


worker = Worker(Client("http://localhost:8080", "key"), grace_seconds=10)
options = SubscriberOptions(max_workers=4, retry={ConnectionError: ExponentialRetry(1), Exception: NoRetry()})


# ---- handlers --------------------------------------------------------------------------------------------------------


@worker.on("orders", max_workers=20)
async def invoice(order: Order) -> NewMessage:
    return NewMessage({"order": order.number}, queue="invoices")


@worker.on("orders", "returns", options=options)
async def pack(context: ReceiveContext, message: Message) -> list[NewMessage]:
    if message.delivery_count > 3:
        await context.dead_letter("too-often", f"last failure: {message.last_failure}")
        return []
    await context.renew(60)
    return [NewMessage(message.body, topic="parcels", group_id=message.group_id)]


@worker.on("orders", ack_policy=AckPolicy.MANUAL)
async def check(context: ReceiveContext[Order]) -> None:
    context.on_fault(lambda: print("lost", context.state is ReceiveState.FAULTED))
    if context.message.body.article:
        await context.complete(reply={"accepted": True})
    else:
        await context.abandon(delay_seconds=5, reason="no-article")


@worker.on("events")
async def note(event: CloudEvent) -> None:
    print(event.type, event.data)


@worker.on("letters")
def read(text: str) -> None:
    print(text.upper())


@worker.on_state("orders", key=lambda order: f"stock.{order.article}", state=Stock, logic="1")
def take(stock: Stock, order: Order, context: HandlerContext) -> NewMessage | None:
    stock.left -= 1
    at: datetime = context.now()
    return NewMessage({"article": order.article, "at": at}, queue="supply") if stock.left < 0 else None


@worker.on_state("returns", key=lambda order: f"stock.{order.article}", state=Stock)
async def put_back(stock: Stock, order: Order, context: HandlerContext) -> None:
    stock.left += 1


# ---- queues ----------------------------------------------------------------------------------------------------------


class Shop:
    """Sends orders, and reads what became of them."""

    def __init__(self, client: Client) -> None:
        self.orders: Queue = client.queue("orders")
        self.news: Topic = client.topic("news")
        self.pending: list[PendingSend] = []

    async def sell(self, orders: Iterable[Order]) -> list[int | None]:
        sent = [await self.orders.send(order, priority=7, properties={"region": "eu"}) for order in orders]
        return [one.sequence_number for one in sent]

    async def sell_all(self, sender: Sender, orders: Iterable[Order]) -> None:
        self.pending += [await sender.post(order) for order in orders]

    async def move(self, transaction: Transaction, received: ReceiveContext) -> None:
        await self.orders.send(received.message.body, transaction=transaction)
        await self.news.publish("moved", transaction=transaction)
        await received.complete(transaction=transaction)

    async def late(self) -> list[Message]:
        return [message async for message in self.orders.browse(filter="message.delivery_count > 1")]

    async def price(self, order: Order) -> float:
        answer = await self.orders.request(order, wait_seconds=5)
        return float(answer["price"])


async def deferred(queue: Queue, numbers: list[int]) -> list[ReceiveContext]:
    return await queue.receive(10, sequence_numbers=numbers)


async def clean(queue: Queue) -> Plan:
    removed: int = await queue.purge(states=["dead_lettered"], limit=100)
    print(removed, (await queue.status()).counts.available)
    return await queue.plan_redrive()


async def main() -> None:
    async with Client() as client, Sender(client.queue("orders"), max_in_flight=100) as sender:
        shop = Shop(client)
        await shop.sell_all(sender, [Order(17, "shirt")])
        for received in await shop.orders.receive(10, wait_seconds=20):
            try:
                async with received, received.auto_renew(), await client.transaction() as transaction:
                    await shop.move(transaction, received)
            except LockLost as lost:
                print(lost)
            except (Refusal, InDoubt) as error:
                print("not moved", error)
    running: AbstractAsyncContextManager[None] = worker.lifespan()
    async with running:
        report: WorkerReport = worker.report
        print(report.completed)


# ---- without an event loop -------------------------------------------------------------------------------------------


def settle(received: BlockingReceive) -> None:
    with received, received.auto_renew():
        print(received.message.sequence_number)


def drain(client: BlockingClient) -> int:
    queue: BlockingQueue = client.queue("orders")
    queue.send(NewMessage(Order(18, "socks"), delay_seconds=1.5))
    messages: list[Message] = queue.receive_and_delete(10)
    for received in queue.receive(10):
        settle(received)
    return len(messages) + sum(1 for _ in queue.browse())


if __name__ == "__main__":
    asyncio.run(main())
