"""Requests to topics in the query protocol of SNS, with members as SDKs name them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import httpx

from tests.sqs.sqs_server import SqsServer

NAMESPACE = "{http://sns.amazonaws.com/doc/2010-03-31/}"
FORM = {"content-type": "application/x-www-form-urlencoded"}
TOPIC = "arn:aws:sns:us-east-1:000000000000:orders"
BILLING = "arn:aws:sqs:us-east-1:000000000000:billing"


async def send_action(sqs: SqsServer, action: str, **members: Any) -> httpx.Response:
    """Send one action. A member that is a mapping is a map of attributes; its entries are `key` and `value`."""
    fields: dict[str, str] = {"Action": action, "Version": "2010-03-31"}
    for name, value in members.items():
        fields |= _attributes(name, value) if isinstance(value, Mapping) else {name: value}
    return await sqs.http.post("/", content=urlencode(fields), headers=FORM)


async def act(sqs: SqsServer, action: str, **members: Any) -> ElementTree.Element:
    """Return the answer of an action that must succeed."""
    response = await send_action(sqs, action, **members)
    assert response.status_code == 200, response.text
    return ElementTree.fromstring(response.text)


async def refusal(sqs: SqsServer, action: str, **members: Any) -> tuple[int, str, str]:
    """Return the status, the code and the sentence of an action that must be refused."""
    response = await send_action(sqs, action, **members)
    error = ElementTree.fromstring(response.text)
    return response.status_code, text_of(error, "Code"), text_of(error, "Message")


def text_of(answer: ElementTree.Element, name: str) -> str:
    """Return the text of an element of an answer, wherever it is."""
    found = answer.find(f".//{NAMESPACE}{name}")
    assert found is not None, ElementTree.tostring(answer)
    return found.text or ""


def attributes_of(answer: ElementTree.Element) -> dict[str, str]:
    """Return the attributes in an answer."""
    entries = answer.iter(f"{NAMESPACE}entry")
    return {text_of(entry, "key"): text_of(entry, "value") for entry in entries}


def _attributes(name: str, values: Mapping[str, str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for number, (key, value) in enumerate(values.items(), 1):
        fields |= {f"{name}.entry.{number}.key": key, f"{name}.entry.{number}.value": value}
    return fields
