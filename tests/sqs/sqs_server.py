"""A server without a network that answers requests of AWS SDKs in JSON, next to its API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from app.api.application import build_application
from app.http.access_log import with_access_log
from app.http.request_id import RequestIdMiddleware
from app.sqs.application import SqsOptions, with_sqs
from tests.api.api_server import ApiServer, open_api_server

BASE_URL = "http://peeklock.test"
SERVER_SECRET = "a text of more than thirty-two characters"


class SqsServer:
    """A server, its clock, and clients of both interfaces: `api` has that of the API."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.clock = api.clock
        both = with_sqs(build_application(api.context), api.context, SqsOptions(SERVER_SECRET, None))
        transport = httpx.ASGITransport(RequestIdMiddleware(with_access_log(both)))
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE_URL)

    async def request(self, action: str, **members: Any) -> httpx.Response:
        """Send one action. Members have the names of SQS."""
        headers = {"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"}
        return await self.http.post("/", json=members, headers=headers)

    async def call(self, action: str, **members: Any) -> Any:
        """Return the answer of an action that must succeed."""
        response = await self.request(action, **members)
        assert response.status_code == 200, response.text
        return response.json()

    async def refusal(self, action: str, **members: Any) -> tuple[str, str]:
        """Return the name of the exception of an action that must be refused, and its sentence."""
        response = await self.request(action, **members)
        assert response.status_code >= 400, response.text
        body = response.json()
        return body["__type"].removeprefix("com.amazonaws.sqs#"), body["message"]

    async def create(self, name: str = "orders", **attributes: str) -> str:
        """Create a queue and return its URL."""
        if name.endswith(".fifo"):
            attributes = {"FifoQueue": "true", **attributes}
        url: str = (await self.call("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"]
        return url

    async def send(self, url: str, body: str = "hello", **members: Any) -> Any:
        """Send a message."""
        return await self.call("SendMessage", QueueUrl=url, MessageBody=body, **members)

    async def receive(self, url: str, **members: Any) -> list[Any]:
        """Receive messages."""
        answer = await self.call("ReceiveMessage", QueueUrl=url, **members)
        messages: list[Any] = answer.get("Messages", [])
        return messages

    async def delete(self, url: str, message: Any) -> None:
        """Delete a received message."""
        await self.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    async def attributes(self, url: str, *names: str) -> dict[str, str]:
        """Return attributes of a queue."""
        answer = await self.call("GetQueueAttributes", QueueUrl=url, AttributeNames=list(names) or ["All"])
        found: dict[str, str] = answer.get("Attributes", {})
        return found


@asynccontextmanager
async def open_sqs_server(**options: Any) -> AsyncIterator[SqsServer]:
    """A server on an empty database. The options are those of `open_api_server`."""
    async with open_api_server(**options) as api:
        server = SqsServer(api)
        async with server.http:
            yield server
