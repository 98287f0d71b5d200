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
from tests.guides import after_each, blocks_of, printed, rows_of
from tests.peeklock_process import PeeklockProcess

GUIDE = {page.stem: page.read_text() for page in sorted((ROOT / "docs/http").glob("*.md"))}
"""The pages of the guide by their names."""
CONTENTS = (ROOT / "docs/http.md").read_text()
DEFAULT = re.compile(r"Default: `(.*)`\.")
ABOUT_THE_STORE = ("health", "capabilities")
"""Pages whose answers name the engine of the database."""
COMMAND = re.compile(r"curl [^\n|]*")
METHOD = re.compile(r"-X (\w+)")
PATH = re.compile(r"localhost:8080([^\s'\"?]*)")
NUMBER = re.compile(r'("(?:sequence_number|lock_token)": ?"?)\d+')
VARIABLE = re.compile(r"\{\w+\}")
WITH_EXAMPLES = [name for name, page in GUIDE.items() if "```sh" in page]
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r'^ *- (?:<a id="([\w-]+)"></a>)?\[(.*)\]\(http/([\w-]+)\.md(?:#([\w-]+))?\)$', re.MULTILINE)
"""An entry of the contents: the anchor of an old link, the heading, its page and its anchor there."""


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_the_examples_are_answered_as_shown(serve_as_reader: Callable[..., PeeklockProcess], page: str) -> None:
    check_examples(serve_as_reader(), page)


@pytest.mark.quick
@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if page not in ABOUT_THE_STORE])
@pytest.mark.parametrize(("database", "locks"), [("postgresql", "redis"), ("mariadb", "database")])
def test_servers_answer_the_examples_as_sqlite_does(
    serve: Callable[..., PeeklockProcess],
    run_resources: RunResources,
    require_server: Callable[[str], str],
    request: pytest.FixtureRequest,
    database: str,
    locks: str,
    page: str,
) -> None:
    """Apart from their sequence numbers, which may have gaps there."""
    redis = {"redis_url": request.getfixturevalue("redis_url")} if locks == "redis" else {}
    with run_resources.migrated_database(require_server(database)) as url:
        check_examples(serve(database_url=url, auto_create_queues=1, **redis), page, without_numbers)


def test_the_examples_run_every_operation() -> None:
    shown = [block for page in WITH_EXAMPLES for kind, block in blocks_of(GUIDE[page]) if kind == "sh"]
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


def check_examples(service: PeeklockProcess, page: str, form: Callable[[str], str] = str) -> None:
    """Run the examples of a page, and compare this form of their answers with that of the guide."""
    shown_here = blocks_of(GUIDE[page], KINDS)
    said = printed(service, [block for kind, block in shown_here if kind == "sh"])
    for (kind, shown), answer in zip(after_each("sh", shown_here), said, strict=True):
        if kind in ("", "sh"):
            assert not answer.strip()
        else:
            check_answer(kind, form(answer), form(shown))


def test_the_contents_list_every_page_and_heading_in_order() -> None:
    listed = [(page, heading) for _, heading, page, _ in ENTRY.findall(CONTENTS)]
    pages = list(dict.fromkeys(page for page, _ in listed))
    assert sorted(pages) == sorted(GUIDE)
    assert listed == [(page, heading) for page in pages for heading in HEADING.findall(FENCED.sub("", GUIDE[page]))]


def test_an_old_link_to_a_heading_leads_to_its_new_page() -> None:
    """The guide was one page, and its headings had these anchors."""
    entries = ENTRY.findall(CONTENTS)
    assert len(entries) == len(CONTENTS.split("\n- ")) - 1 + CONTENTS.count("\n    - ")
    for old, heading, _, anchor in entries:
        assert anchor in ("", anchor_of(heading))
        assert old in ("", anchor_of(heading))
    old_anchors = [old for old, *_ in entries if old]
    assert len(old_anchors) == len(set(old_anchors)) == 86


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_rights_are_those_of_the_code() -> None:
    assert {row[0] for row in rows_of(GUIDE["access"], "right")} == {f"`{right}`" for right in Right}


def test_the_settings_of_a_queue_have_these_defaults() -> None:
    members = SCHEMAS["QueueSettingsBody"]["properties"]
    shown = {row[0].strip("`"): row[1].strip("`") for row in rows_of(GUIDE["queues"], "setting")}
    assert shown.keys() == members.keys()
    objects: dict[str, dict[str, str]] = {"retry": {"kind": "none"}, "labels": {}}
    for name, text in shown.items():
        found = DEFAULT.search(members[name].get("description", ""))
        wanted = objects[name] if name in objects else found and json.loads(found[1])
        assert (text if text in ("active", "automatic") else json.loads(text)) == wanted, name


def test_a_receive_has_these_members() -> None:
    shown = {row[0].strip("`") for row in rows_of(GUIDE["receive"], "member of the request")}
    assert shown == SCHEMAS["ReceiveMessages"]["properties"].keys()


def test_the_names_that_a_filter_knows_are_listed() -> None:
    text = " ".join(GUIDE["filters"].split())
    known = text.partition("Its fields are ")[2].partition(". ")[0]
    callable_ = text.partition("It can call ")[2].partition(". ")[0]
    assert re.findall(r"`(\w+)`", known) == list(FIELDS)
    assert re.findall(r"`(\w+)`", callable_) == sorted(ALLOWED_FUNCTIONS)


def test_the_filters_match_what_the_guide_says(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve()
    printed(service, [next(block for kind, block in blocks_of(GUIDE["filters"]) if kind == "sh")])
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for source, matches in rows_of(GUIDE["filters"], "filter"):
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
    problems = [
        {kind: content["schema"] for kind, content in answer["content"].items()}
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status == "default" or status >= "400"
    ]
    problem = {"application/problem+json": {"$ref": "#/components/schemas/Problem"}}
    assert problems == [problem] * len(problems)
