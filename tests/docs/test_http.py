"""The HTTP guide is true: its examples are answered as it shows, and its tables are those of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import httpx
import pytest

from app.broker.filters import FIELDS
from app.domain.access import Right
from app.domain.filter_expression import ALLOWED_FUNCTIONS
from developing.reference.contract import DOCUMENT, ROOT, SCHEMAS
from tests.answers import KINDS, check_answer
from tests.guides import after_each, blocks, printed, section, table
from tests.peeklock_process import PeeklockProcess

GUIDE = (ROOT / "docs" / "http.md").read_text()
DEFAULT = re.compile(r"Default: `(.*)`\.")
HEADINGS = re.findall("^## (.*)$", GUIDE, re.MULTILINE)
WITH_EXAMPLES = [heading for heading in HEADINGS if "```sh" in section(GUIDE, heading)]


@pytest.mark.parametrize("heading", WITH_EXAMPLES)
def test_the_examples_are_answered_as_shown(serve_as_reader: Callable[..., PeeklockProcess], heading: str) -> None:
    shown_here = blocks(GUIDE, heading, KINDS)
    said = printed(serve_as_reader(), [block for kind, block in shown_here if kind == "sh"])
    for (kind, shown), answer in zip(after_each("sh", shown_here), said, strict=True):
        if kind in ("", "sh"):
            assert not answer.strip()
        else:
            check_answer(kind, answer, shown)


def test_the_rights_are_those_of_the_code() -> None:
    assert {row[0] for row in table(GUIDE, "Access", "right")} == {f"`{right}`" for right in Right}


def test_the_settings_of_a_queue_have_these_defaults() -> None:
    members = SCHEMAS["QueueSettingsBody"]["properties"]
    shown = {row[0].strip("`"): row[1].strip("`") for row in table(GUIDE, "Queues", "setting")}
    assert shown.keys() == members.keys()
    for name, text in shown.items():
        found = DEFAULT.search(members[name].get("description", ""))
        wanted = {"kind": "none"} if name == "retry" else found and json.loads(found[1])
        assert (text if text in ("active", "automatic") else json.loads(text)) == wanted, name


def test_a_receive_has_these_members() -> None:
    shown = {row[0].strip("`") for row in table(GUIDE, "Receive", "member of the request")}
    assert shown == SCHEMAS["ReceiveMessages"]["properties"].keys()


def test_the_names_that_a_filter_knows_are_listed() -> None:
    text = " ".join(section(GUIDE, "Filters").split())
    known = text.partition("Its fields are ")[2].partition(". ")[0]
    callable_ = text.partition("It can call ")[2].partition(". ")[0]
    assert re.findall(r"`(\w+)`", known) == list(FIELDS)
    assert re.findall(r"`(\w+)`", callable_) == sorted(ALLOWED_FUNCTIONS)


def test_the_filters_match_what_the_guide_says(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve()
    printed(service, [next(block for kind, block in blocks(GUIDE, "Filters") if kind == "sh")])
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for source, matches in table(GUIDE, "Filters", "filter"):
            asked = {"filter": source.strip("`").replace("\\|", "|")}
            items = client.get("/v1/queues/orders/messages", params=asked).json()["items"]
            assert ", ".join(item["message_id"] for item in items) == matches, source


def test_the_document_is_as_makers_of_clients_are_told() -> None:
    members = {name: schema["discriminator"]["propertyName"] for name, schema in SCHEMAS.items() if "oneOf" in schema}
    assert members == {
        "SendResult": "result",
        "SettlementResult": "result",
        "Settlement": "action",
        "TransactionSettlement": "action",
        "RetrySettings": "kind",
    }
    problems = [response["content"] for response in DOCUMENT["components"]["responses"].values()]
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert problems == [problem] * len(problems)
