"""Requests of a page as commands of curl and as programs in Python, to copy.

Every value is quoted for the shell or for Python, because bodies and names are chosen by senders.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import Request

from app.console.access import is_over_https
from app.console.bodies import MAX_SHOWN_BYTES, text_of
from app.domain.message import DEFAULT_PRIORITY, SENDER_TEXTS, BodyKind, Message
from app.http.asgi import root_path

AUTHORIZATION = ' \\\n  -H "Authorization: Bearer $PEEKLOCK_API_KEY"'
HOST = re.compile(r"[\w.:\[\]-]+", re.ASCII)

PYTHON = """import asyncio

from peeklock_client import Client


async def main() -> None:
    async with Client({url!r}) as client:
        await client.queue({queue!r}).send({arguments})


asyncio.run(main())
"""


def server_url(scheme: str, host: str, root_path: str) -> str:
    """Return the URL of this server, as the browser names it."""
    return f"{scheme}://{host if HOST.fullmatch(host) else 'localhost:8080'}{root_path}"


def page_url(request: Request) -> str:
    """Return the URL of this server as the browser has it."""
    scheme = "https" if is_over_https(request) else "http"
    return server_url(scheme, request.headers.get("host", ""), root_path(request.scope))


def curl_first_send(url: str, needs_key: bool) -> str:
    """Return the command that makes a queue by a send."""
    return f"""{_curl(f"{url}/v1/queues/orders/messages", needs_key)} -d '{{"body": "hello"}}'"""


def curl_first_topic(url: str, needs_key: bool) -> str:
    """Return the commands that make a topic and a subscription."""
    topic = f"{url}/v1/topics/orders"
    return "\n".join(f"{_curl(made, needs_key)} -X PUT -d '{{}}'" for made in (topic, f"{topic}/subscriptions/billing"))


def curl_browse(url: str, queue: str, states: Sequence[str], expression: str, needs_key: bool) -> str:
    """Return the command that lists the same messages."""
    lines = [f"curl -sG {shlex.quote(f'{url}/v1/queues/{queue}/messages')}"]
    lines += [f"--data-urlencode state={shlex.quote(state)}" for state in states]
    if expression:
        lines.append(f"--data-urlencode {shlex.quote(f'filter={expression}')}")
    return " \\\n  ".join(lines) + (AUTHORIZATION if needs_key else "")


def curl_send(url: str, queue: str, message: Message, needs_key: bool) -> str | None:
    """Return the command that sends such a message again; None if its body is too large for a command."""
    body = _json_body(message)
    if body is None:
        return None
    payload = _json_object({**body, **{name: json.dumps(value) for name, value in _fields(message).items()}})
    return f"{_curl(f'{url}/v1/queues/{queue}/messages', needs_key)} \\\n  -d {shlex.quote(payload)}"


def _curl(url: str, needs_key: bool) -> str:
    return f"curl -s {shlex.quote(url)}{AUTHORIZATION if needs_key else ''}"


def python_send(url: str, queue: str, message: Message) -> str | None:
    """Return the program that sends such a message again; None if its body is too large for a program."""
    if len(message.body) > MAX_SHOWN_BYTES:
        return None
    try:
        body = repr(_python_body(message))
    except (msgspec.DecodeError, RecursionError):
        return None
    arguments = [body, *(f"{name}={value!r}" for name, value in _fields(message).items())]
    return PYTHON.format(url=url, queue=queue, arguments=", ".join(arguments))


def _python_body(message: Message) -> Any:
    match message.body_kind:
        case BodyKind.NONE:
            return None
        case BodyKind.JSON:
            return msgspec.json.decode(message.body)
        case BodyKind.BYTES:
            return message.body


def _json_body(message: Message) -> Mapping[str, str] | None:
    """Return the member with the body, encoded; None if it is too large."""
    if len(message.body) > MAX_SHOWN_BYTES:
        return None
    if message.body_kind is BodyKind.NONE:
        return {}
    if message.body_kind is BodyKind.JSON:
        text = text_of(message.body)
        return None if text is None else {"body": text}
    return {"body_base64": msgspec.json.encode(message.body).decode()}


def _json_object(members: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in members.items()) + "}"


def _fields(message: Message) -> dict[str, Any]:
    """Return the sender's fields that have a value, without its id and trace: such a message is a new one."""
    envelope = message.envelope
    names = [name for name in SENDER_TEXTS if name not in ("message_id", "traceparent")]
    fields: dict[str, Any] = {name: value for name in names if (value := envelope.text(name)) is not None}
    if message.priority != DEFAULT_PRIORITY:
        fields["priority"] = message.priority
    if envelope.properties:
        fields["properties"] = msgspec.json.decode(envelope.properties)
    return fields
