"""The load of the SQS interface: requests with the bytes that boto3 sends.

botocore makes one request of each action, and the headers that it sends are kept. Each request of the load has a body of
its own and is signed with less work than botocore takes: the client competes with the servers for the CPU.
"""

import hmac
import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

import botocore.session
from botocore import xform_name
from botocore.exceptions import ClientError

from benchmarks.load import BODY, Connection, Target, expect_status

REGION = "eu-central-1"
SCOPE = f"{REGION}/sqs/aws4_request"
MESSAGE_BODY = json.dumps(BODY)
BATCH_SIZE = 10
"""Messages in a batch, the most that SQS takes."""
WAIT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The access key id and the secret of a client."""

    key_id: str
    secret: str


class SignedForm:
    """The headers of an action as botocore has sent them, and the request with any body."""

    def __init__(self, headers: Sequence[tuple[str, str]], host: str, secret: str) -> None:
        """Keep the headers but those that depend on the body, the time and the server."""
        self._secret = secret
        self._signing_keys: dict[str, bytes] = {}
        given = dict(headers)
        signed = given["Authorization"].partition("SignedHeaders=")[2].partition(",")[0]
        credential = given["Authorization"].partition("Credential=")[2].partition("/")[0]
        changed = {
            "Host": host,
            "X-Amz-Date": "{time}",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}/{{date}}/{SCOPE}, SignedHeaders={signed}, "
            "Signature={signature}",
            "Content-Length": "{length}",
        }
        lines = [(name, changed.get(name, value)) for name, value in headers]
        self._head = "POST / HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines) + "\r\n"
        values = {name.lower(): value for name, value in lines}
        self._canonical = (
            "POST\n/\n\n" + "".join(f"{name}:{values[name]}\n" for name in signed.split(";")) + f"\n{signed}\n"
        )

    def request(self, body: bytes, seconds: float) -> bytes:
        """Return the bytes of a request that is signed at this time, in seconds since 1970."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))
        canonical = self._canonical.format(time=now) + sha256(body).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{now}\n{now[:8]}/{SCOPE}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(now[:8]), text.encode(), sha256).hex()
        return self._head.format(time=now, date=now[:8], signature=signature, length=len(body)).encode() + body

    def _signing_key(self, date: str) -> bytes:
        if date not in self._signing_keys:
            key = f"AWS4{self._secret}".encode()
            for part in (date, *SCOPE.split("/")):
                key = hmac.digest(key, part.encode(), sha256)
            self._signing_keys[date] = key
        return self._signing_keys[date]


@dataclass
class SqsTarget(Target):
    """A server that speaks SQS, and the key that signs its requests."""

    key: SigningKey = SigningKey("test", "test")
    _forms: dict[str, SignedForm] = field(default_factory=dict)

    @property
    def queue_url(self) -> str:
        """The URL of the queue."""
        return f"http://{self.host}:{self.port}/000000000000/{self.queue}"

    def request(self, action: str, members: Mapping[str, Any]) -> bytes:
        """Return the bytes of a request about the queue, with members in the order of the caller."""
        body = json.dumps({"QueueUrl": self.queue_url, **members}).encode()
        return self.form(action).request(body, time.time())

    def form(self, action: str) -> SignedForm:
        """Return the form of requests of this action."""
        if action not in self._forms:
            headers = recorded(action, EXAMPLES[action], self.key).headers
            self._forms[action] = SignedForm(headers, f"{self.host}:{self.port}", self.key.secret)
        return self._forms[action]


SEND: Mapping[str, Any] = {"MessageBody": MESSAGE_BODY}
RECEIVE: Mapping[str, Any] = {"WaitTimeSeconds": WAIT_SECONDS}
SEND_BATCH: Mapping[str, Any] = {
    "Entries": [{"Id": str(number), "MessageBody": MESSAGE_BODY} for number in range(BATCH_SIZE)]
}
RECEIVE_BATCH: Mapping[str, Any] = {"MaxNumberOfMessages": BATCH_SIZE}


def deletions(handles: Sequence[str]) -> Mapping[str, Any]:
    """Return the members of DeleteMessageBatch."""
    return {"Entries": [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)]}


EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "CreateQueue": {"QueueName": "queue"},
    "SendMessage": {"QueueUrl": "queue", **SEND},
    "ReceiveMessage": {"QueueUrl": "queue", **RECEIVE},
    "DeleteMessage": {"QueueUrl": "queue", "ReceiptHandle": "handle"},
    "ChangeMessageVisibility": {"QueueUrl": "queue", "ReceiptHandle": "handle", "VisibilityTimeout": 0},
    "SendMessageBatch": {"QueueUrl": "queue", **SEND_BATCH},
    "DeleteMessageBatch": {"QueueUrl": "queue", **deletions(["handle"])},
}
"""By action: members of the request whose headers are kept. They do not depend on the members."""


async def create_queue(target: SqsTarget) -> None:
    """Create the queue of the load on a server that creates none when a message is sent."""
    connection = await target.connect()
    body = json.dumps({"QueueName": target.queue}).encode()
    status, answer = await connection.exchange(target.form("CreateQueue").request(body, time.time()))
    expect_status(status, 200, answer)
    await target.release(connection)


async def sqs_lifecycle(connection: Connection, target: SqsTarget) -> int:
    """Send, receive, delete: one message each. A caller that finds the queue empty receives again."""
    await _call(connection, target, "SendMessage", SEND)
    messages: Sequence[Any] = ()
    while not messages:
        messages = await _receive(connection, target, RECEIVE)
    await _call(connection, target, "DeleteMessage", {"ReceiptHandle": messages[0]["ReceiptHandle"]})
    return 1


async def sqs_batch_lifecycle(connection: Connection, target: SqsTarget) -> int:
    """Ten messages sent, received and deleted in three calls."""
    await _call(connection, target, "SendMessageBatch", SEND_BATCH)
    handles = [message["ReceiptHandle"] for message in await _receive(connection, target, RECEIVE_BATCH)]
    if handles:
        await _call(connection, target, "DeleteMessageBatch", deletions(handles))
    return len(handles)


async def _receive(connection: Connection, target: SqsTarget, members: Mapping[str, Any]) -> Sequence[Any]:
    answer = await _call(connection, target, "ReceiveMessage", members)
    messages: Sequence[Any] = json.loads(answer).get("Messages", ())
    return messages


async def _call(connection: Connection, target: SqsTarget, action: str, members: Mapping[str, Any]) -> bytes:
    status, answer = await connection.exchange(target.request(action, members))
    expect_status(status, 200, answer)
    return answer


def recorded(action: str, members: Mapping[str, Any], key: SigningKey) -> "RecordedRequest":
    """Return the request that botocore sends for an action, under the name of boto3."""
    session = botocore.session.Session()
    session.user_agent_name, session.user_agent_extra = "Boto3", f"Botocore/{botocore.__version__}"
    with _Recorder() as recorder:
        url = f"http://127.0.0.1:{recorder.server_port}"
        client = session.create_client(
            "sqs", REGION, endpoint_url=url, aws_access_key_id=key.key_id, aws_secret_access_key=key.secret
        )
        answering = threading.Thread(target=recorder.handle_request)
        answering.start()
        with suppress(ClientError):
            getattr(client, xform_name(action))(**members)
        answering.join()
        client.close()
        return recorder.requests[0]


class RecordedRequest(NamedTuple):
    """The headers and the body of a request."""

    headers: Sequence[tuple[str, str]]
    body: bytes


class _Recorder(HTTPServer):
    """Keeps requests, and refuses them so that no client sends them again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RecordingHandler)
        self.timeout = 10
        self.requests: list[RecordedRequest] = []


class _RecordingHandler(BaseHTTPRequestHandler):
    server: _Recorder

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(RecordedRequest(self.headers.items(), body))
        self.send_response_only(400)
        self.send_header("Content-Length", "0")
        self.end_headers()
