"""A server on a free port, and the clients of botocore for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from botocore.config import Config
from botocore.session import Session

from app.testing.server import EmbeddedServer, serve

REGION = "eu-central-1"
Result = TypeVar("Result")


class AwsServer:
    """A server with its data in memory, and the clients of both services. A call of a client runs in a thread."""

    def __init__(self, embedded: EmbeddedServer, url: str) -> None:
        self.embedded = embedded
        self.url = url
        self._session = Session()
        self.sns = self._client("sns")
        self.sqs = self._client("sqs")

    def _client(self, service: str) -> Any:
        return self._session.create_client(
            service,
            REGION,
            endpoint_url=self.url,
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )

    async def call(self, method: Callable[..., Result], **members: Any) -> Result:
        """Call a method of a client."""
        return await asyncio.to_thread(method, **members)

    async def topic(self, name: str = "orders", **attributes: str) -> str:
        """Create a topic and return its ARN."""
        arn: str = (await self.call(self.sns.create_topic, Name=name, Attributes=attributes))["TopicArn"]
        return arn

    async def queue(self, name: str = "billing", **attributes: str) -> tuple[str, str]:
        """Create a queue and return its URL and its ARN."""
        url: str = (await self.call(self.sqs.create_queue, QueueName=name, Attributes=attributes))["QueueUrl"]
        found = await self.call(self.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["QueueArn"])
        return url, found["Attributes"]["QueueArn"]

    async def subscribed(self, topic_arn: str, name: str = "billing", **attributes: str) -> str:
        """Create a queue, subscribe it to a topic, and return the URL of the queue."""
        url, arn = await self.queue(name)
        members = {"TopicArn": topic_arn, "Protocol": "sqs", "Endpoint": arn, "Attributes": attributes}
        await self.call(self.sns.subscribe, **members)
        return url

    async def receive(self, url: str, **members: Any) -> list[Any]:
        """Receive up to ten messages."""
        answer = await self.call(self.sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=10, **members)
        messages: list[Any] = answer.get("Messages", [])
        return messages


@asynccontextmanager
async def open_aws_server() -> AsyncIterator[AwsServer]:
    """A server that needs no key."""
    embedded = EmbeddedServer()
    async with serve(embedded) as url:
        yield AwsServer(embedded, url)
