"""A server without a network that answers requests of AWS SDKs, next to its API."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx

from app.api.application import build_application
from app.broker.access.keys import create_key
from app.broker.access.signing_secret import signing_secret
from app.domain.access import Grant, Right
from app.http.access_log import with_access_log
from app.http.request_id import RequestIdMiddleware
from app.maintenance.dead_letters import DeadLetterForwarder
from app.maintenance.moves import advance_moves
from app.sqs.application import with_sqs
from tests.api.api_server import SQS_SECRET, ApiServer, open_api_server
from tests.bounds import bounded
from tests.sqs.signing import SignedBy

BASE_URL = "http://peeklock.test"


class SqsServer:
    """A server, its clock, and clients of both interfaces: `api` has that of the API. `auth` signs the requests of SQS."""

    def __init__(self, api: ApiServer, auth: SignedBy | None = None) -> None:
        self.api = api
        self.clock = api.clock
        both = with_sqs(build_application(api.context), api.context, url=None)
        transport = httpx.ASGITransport(RequestIdMiddleware(with_access_log(both)))
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE_URL, auth=auth)

    async def with_key(self, *rights: Right, patterns: tuple[str, ...] = ("*",)) -> "SqsServer":
        """Return the same server with a client that has a key with these rights, and signs with its secret."""
        created = await create_key(
            self.api.broker.store.keys, f"{rights} {patterns}", Grant(frozenset(rights), patterns), self.clock.now()
        )
        if self.api.authenticator is not None:
            self.api.authenticator.clear_cache()
        return SqsServer(self.api, SignedBy(created.key.id, signing_secret(SQS_SECRET, created.key), self.clock.now))

    async def form(self, action: str, parameters: Mapping[str, str] | None = None, path: str = "/") -> httpx.Response:
        """Send one action in the query protocol."""
        content = urlencode({"Action": action, "Version": "2012-11-05", **(parameters or {})})
        headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        return await self.http.post(path, content=content, headers=headers)

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

    async def fail(self, url: str) -> None:
        """Receive the next message, and return it as a failure."""
        (message,) = await self.receive(url)
        handle = message["ReceiptHandle"]
        await self.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)

    async def forward_dead_letters(self) -> None:
        """Run the background pass that moves dead letters to the queues of redrive policies."""
        await DeadLetterForwarder(self.api.broker.administration).step()

    async def run_moves(self) -> None:
        """Run the background passes of move tasks until none has more to do at this time."""
        for _ in bounded("the passes end"):
            if await advance_moves(self.api.broker.administration):
                return

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


def code_of(response: httpx.Response) -> str:
    """Return the code of a refusal in the query protocol."""
    assert response.status_code >= 400, response.text
    found = re.search("<Code>(.*?)</Code>", response.text)
    assert found is not None, response.text
    return found[1]


def arn(name: str) -> str:
    """Return the ARN of a queue, in the region of requests that name none."""
    return f"arn:aws:sqs:us-east-1:000000000000:{name}"


def redrive_policy(target: str, max_receives: int = 1) -> str:
    """Return the attribute RedrivePolicy."""
    return f'{{"deadLetterTargetArn":"{arn(target)}","maxReceiveCount":{max_receives}}}'
