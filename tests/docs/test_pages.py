"""docs/sqs.md, docs/start, docs/understand and docs/guides: their commands and programs work as shown."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.databases import RunResources
from tests.docs import pages
from tests.docs.pages import ANSWERS, COMMANDS, DATABASES, DOCS, PAGES, PROGRAMS, REASONS
from tests.peeklock_process import PeeklockProcess

NEEDS_JAVA = ("start/java.md",)
"""Pages that need a JDK, which `dev.py test --sdks` installs."""

IN_EVERY_RUN = (
    "start/curl.md",
    "start/java.md",
    "start/python.md",
    "start/typescript.md",
    "understand/delivery.md",
    "understand/failures.md",
    "understand/message.md",
    "guides/databases.md",
    "guides/exactly-once.md",
    "guides/push.md",
    "guides/request-reply.md",
    "guides/workers.md",
    "sqs.md",
)
"""Pages with the operations that most pages show. Nightly runs work through all."""

MAX_NOT_EXECUTED = 10


def marks(page: str) -> list[pytest.MarkDecorator]:
    """The marks that keep a page from runs for which it is not made."""
    return [pytest.mark.sdks] * (page in NEEDS_JAVA) + [pytest.mark.nightly] * (page not in IN_EVERY_RUN)


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in PAGES])
def test_the_page_works_as_shown(
    page: str,
    serve_as_reader: Callable[..., PeeklockProcess],
    run_resources: RunResources,
    require_server: Callable[[str], str],
) -> None:
    shown = {address: require_server(kind) for address, kind in DATABASES.items() if _is_typed(address, page)}
    with ExitStack() as stack:
        real = {address: stack.enter_context(run_resources.empty_database(kind)) for address, kind in shown.items()}
        service = serve_as_reader()
        pages.check(PAGES[page], service, real)
        made = {name.partition(".")[0] for name in _names(service, "queues") | _names(service, "topics")}
        assert made - {"earlier"} <= pages.queues_and_topics(PAGES[page])


def _names(service: PeeklockProcess, kind: str) -> set[str]:
    return {item["name"] for item in httpx.get(f"{service.url}/v1/{kind}").raise_for_status().json()["items"]}


def _is_typed(address: str, page: str) -> bool:
    return any(address in block.text for block in pages.read(PAGES[page]) if block.is_typed)


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_executed_or_says_why_not(page: str) -> None:
    blocks = pages.read(PAGES[page])
    assert len(blocks) == PAGES[page].count("\n```") / 2  # no other form of fence
    typed = "".join(block.text for block in blocks if block.kind == COMMANDS)
    for block in blocks:
        assert block.reason in (None, *REASONS)
        assert block.kind in (COMMANDS, *ANSWERS, *PROGRAMS)
        if block.kind in PROGRAMS and block.is_typed:
            assert block.file, f"The paragraph above does not name the file of this program:\n{block.text}"
            assert block.file in typed or Path(block.file).stem in typed, f"no command runs {block.file}"


def test_each_page_has_queues_and_topics_of_its_own() -> None:
    """So that a reader can go through the pages on one server, in any order."""
    used = Counter(name for page in PAGES for name in pages.queues_and_topics(PAGES[page]))
    shared = {name for name, number in used.items() if number > 1}
    assert {page: found for page in PAGES if (found := shared & pages.queues_and_topics(PAGES[page]))} == {}


@pytest.mark.parametrize("page", PAGES)
def test_each_program_in_python_compiles(page: str) -> None:
    for block in pages.read(PAGES[page]):
        if block.kind == "python":
            ast.parse(block.text)


def test_the_index_of_the_documentation_has_each_reason() -> None:
    """A reason above a block is a comment, which a reader does not see."""
    index = " ".join((DOCS / "README.md").read_text().split())
    assert [reason for reason in REASONS if reason.removeprefix("needs ") not in index] == []


def test_few_blocks_are_not_executed() -> None:
    reasons = [block.reason for page in PAGES for block in pages.read(PAGES[page]) if block.reason]
    assert len(reasons) <= MAX_NOT_EXECUTED


def test_pages_of_every_run_exist() -> None:
    assert set(IN_EVERY_RUN) <= PAGES.keys()
