"""Ten receivers wait on one queue, and one of them is cancelled. Prints what the others get of the messages sent then."""

import asyncio
import contextlib
import json
import sys

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

RECEIVERS = 10
MESSAGES = 60


async def main():
    config = AioConfig(max_pool_connections=RECEIVERS + 2, retries={"total_max_attempts": 1})
    async with get_session().create_client("sqs", config=config) as sqs:
        url = (await sqs.create_queue(QueueName="concurrent", Attributes={"VisibilityTimeout": "600"}))["QueueUrl"]
        bodies: list[str] = []
        receivers = [asyncio.create_task(receive_all(sqs, url, bodies)) for _ in range(RECEIVERS)]
        cancelled = receivers.pop()
        await until_waiting(RECEIVERS)
        cancelled.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await cancelled
        await until_waiting(RECEIVERS - 1)
        for first in range(0, MESSAGES, 10):
            entries = [{"Id": str(place), "MessageBody": str(place)} for place in range(first, first + 10)]
            await sqs.send_message_batch(QueueUrl=url, Entries=entries)
        await until_counted(sqs, url, bodies, MESSAGES)
        for receiver in receivers:
            receiver.cancel()
        await asyncio.gather(*receivers, return_exceptions=True)
        print(json.dumps({"cancelled": cancelled.cancelled(), "bodies": sorted(bodies, key=int)}))


async def receive_all(sqs, url, bodies):
    while True:
        answer = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, MaxNumberOfMessages=2)
        for message in answer.get("Messages", []):
            await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            bodies.append(message["Body"])


async def until_waiting(number):
    """Return when this number of receivers waits. The caller ends the program if it never does."""
    metrics_url, api_key = sys.argv[1:]
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {api_key}"}) as session:
        while True:
            async with session.get(metrics_url) as answer:
                if f"\npeeklock_waiting_receivers {number}.0\n" in await answer.text():
                    return


async def until_counted(sqs, url, bodies, number):
    """Return when this number of messages has been deleted, and the queue has none. The caller ends the program if it never does."""
    while True:
        counts = (await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]))["Attributes"]
        visible, locked = counts["ApproximateNumberOfMessages"], counts["ApproximateNumberOfMessagesNotVisible"]
        if len(bodies) >= number and (visible, locked) == ("0", "0"):
            return


asyncio.run(main())
