"""The runner of pages notices a page that is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.docs import pages
from tests.peeklock_process import PeeklockProcess

SEND = "```sh\ncurl -s localhost:8080/v1/queues/orders/messages -d '{\"body\": 1}'\n```\n"
RIGHT = '```json\n{"sequence_number": 1, "state": "available", ...}\n```\n'
PROGRAM = 'Save this as `a.py`:\n\n```python\nprint("one")\nprint("two 17")\n```\n\n```sh\npython3 a.py\n```\n'


@pytest.mark.parametrize(
    "page",
    [
        SEND + RIGHT,
        PROGRAM + "```text\none\ntwo ...\n```\n",
        PROGRAM + "```text\n...\ntwo 17\n```\n",
        "<!-- not executed: needs root -->\n```sh\nfalse\n```\n",
        "<!-- executed by nightly runs -->\n```sh\nfalse\n```\n",
        "```sh\nsleep 60 &\nkill $!\nwait $! || true\n```\n",
        "```sh\nexport PEEKLOCK_PORT=1\nunset PEEKLOCK_PORT\n```\n",
    ],
)
def test_a_page_that_is_right_passes(page: str, serve: Callable[[], PeeklockProcess]) -> None:
    pages.check(page, serve())


@pytest.mark.parametrize(
    "page",
    [
        SEND,  # does not show what is printed
        SEND + RIGHT.replace("available", "locked"),
        SEND + RIGHT.replace("sequence_number", "number"),
        PROGRAM + "```text\none\nthree\n```\n",
        PROGRAM + "```text\none\n```\n",
        "```sh\nfalse\n```\n",
        "```sh\nfalse | cat\n```\n",
        "```sh\necho $UNKNOWN\n```\n",
        "```sh\nsleep 60 &\n```\n",  # still runs at the end
        "```sh\nexport PEEKLOCK_PORT=1\n```\n",  # would change the next page
    ],
)
def test_a_page_that_is_wrong_fails(page: str, serve: Callable[[], PeeklockProcess]) -> None:
    service = serve()
    with pytest.raises(AssertionError):
        pages.check(page, service)


def test_queues_and_topics_are_found_in_commands_and_programs() -> None:
    commands = "```sh\npeeklock queue create bills.eu\npeeklock send mails x\ncurl localhost:8080/v1/topics/news\n```\n"
    program = 'Save this as `b.py`:\n\n```python\n@worker.on("tasks")\nNewMessage(1, queue="results")\n```\n'
    assert pages.queues_and_topics(commands + program) == {"bills", "mails", "news", "tasks", "results"}


def test_a_block_between_two_marked_blocks_is_executed() -> None:
    marked = "<!-- not executed: needs root -->\n```sh\nfalse\n```\n\n"
    assert [block.reason for block in pages.read(marked + SEND + marked)] == ["needs root", None, "needs root"]


def test_a_block_for_nightly_runs_is_not_typed_and_has_no_reason() -> None:
    [later, now] = pages.read("<!-- executed by nightly runs -->\n```sh\nfalse\n```\n\n" + SEND)
    assert (later.is_nightly, later.is_typed, later.reason) == (True, False, None)
    assert (now.is_nightly, now.is_typed, now.reason) == (False, True, None)


def test_a_marked_block_keeps_its_reason_and_a_program_its_name() -> None:
    [marked, program, _] = pages.read("<!-- not executed: needs root -->\n```sh\nfalse\n```\n\n" + PROGRAM)
    assert (marked.reason, marked.file) == ("needs root", None)
    assert (program.reason, program.file) == (None, "a.py")
