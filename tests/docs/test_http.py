"""The HTTP guide is true: its examples are answered as it shows, and its tables are those of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import httpx
import pytest

from app.broker.filtering.filters import FIELDS
from app.domain.access import Right
from app.domain.filter_expression import ALLOWED_FUNCTIONS
from developing.reference.contract import DOCUMENT, ROOT, SCHEMAS
from tests.answers import KINDS, check_answer
from tests.databases import RunResources
from tests.guides import after_each, blocks, printed, section, table
from tests.peeklock_process import PeeklockProcess

GUIDE = (ROOT / "docs" / "http.md").read_text()
DEFAULT = re.compile(r"Default: `(.*)`\.")
HEADINGS = re.findall("^## (.*)$", GUIDE, re.MULTILINE)
ABOUT_THE_STORE = ("Health", "Capabilities")
"""Sections whose answers name the engine of the database."""
COMMAND = re.compile(r"curl [^\n|]*")
METHOD = re.compile(r"-X (\w+)")
PATH = re.compile(r"localhost:8080([^\s'\"?]*)")
NUMBER = re.compile(r'("(?:sequence_number|lock_token)": ?"?)\d+')
VARIABLE = re.compile(r"\{\w+\}")
WITH_EXAMPLES = [heading for heading in HEADINGS if "```sh" in section(GUIDE, heading)]


@pytest.mark.parametrize("heading", WITH_EXAMPLES)
def test_the_examples_are_answered_as_shown(serve_as_reader: Callable[..., PeeklockProcess], heading: str) -> None:
    check_examples(serve_as_reader(), heading)


@pytest.mark.quick
@pytest.mark.parametrize("heading", [heading for heading in WITH_EXAMPLES if heading not in ABOUT_THE_STORE])
@pytest.mark.parametrize(("database", "locks"), [("postgresql", "redis"), ("mariadb", "database")])
def test_servers_answer_the_examples_as_sqlite_does(
    serve: Callable[..., PeeklockProcess],
    run_resources: RunResources,
    require_server: Callable[[str], str],
    request: pytest.FixtureRequest,
    database: str,
    locks: str,
    heading: str,
) -> None:
    """Apart from their sequence numbers, which may have gaps there."""
    redis = {"redis_url": request.getfixturevalue("redis_url")} if locks == "redis" else {}
    with run_resources.migrated_database(require_server(database)) as url:
        check_examples(serve(database_url=url, auto_create_queues=1, **redis), heading, without_numbers)


def test_the_examples_run_every_operation() -> None:
    shown = [block for heading in WITH_EXAMPLES for kind, block in blocks(GUIDE, heading) if kind == "sh"]
    asked = [asked_by(command) for block in shown for command in COMMAND.findall(block.replace("\\\n", " "))]
    operations = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
    assert [one for one in operations if not any(is_of(request, one) for request in asked)] == []


def asked_by(command: str) -> tuple[str, str]:
    """Return the method and the path of a command of curl."""
    method, path = METHOD.search(command), PATH.search(command)
    assert path, command
    return method[1] if method else "POST" if " -d " in command or "--data" in command else "GET", path[1]


def is_of(request: tuple[str, str], operation: tuple[str, str]) -> bool:
    """Return whether a request is one to this operation."""
    (method, path), (its_method, template) = request, operation
    return method == its_method and re.fullmatch(VARIABLE.sub("[^/]+", template), path) is not None


def without_numbers(text: str) -> str:
    """Replace the sequence numbers of an answer, also those in lock tokens."""
    return NUMBER.sub(r"\g<1>0", text)


def check_examples(service: PeeklockProcess, heading: str, form: Callable[[str], str] = str) -> None:
    """Run the examples of a section, and compare this form of their answers with that of the guide."""
    shown_here = blocks(GUIDE, heading, KINDS)
    said = printed(service, [block for kind, block in shown_here if kind == "sh"])
    for (kind, shown), answer in zip(after_each("sh", shown_here), said, strict=True):
        if kind in ("", "sh"):
            assert not answer.strip()
        else:
            check_answer(kind, form(answer), form(shown))


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
