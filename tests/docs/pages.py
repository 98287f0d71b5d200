"""Runs docs/sqs.md and the pages of docs/start, docs/understand and docs/guides from top to bottom, as a reader does.

The language of a fenced block says what happens to it:

- `sh` is typed into one bash, from the first block of the page to the last.
- A program (`python`, `ts`, `java`, `bash`, ...) is saved under the name that ends the paragraph above it: "Save this as `x.py`:".
- `json`, `http` and `text` show what the commands above have printed; `...` stands for what varies.
- A block below `<!-- executed by nightly runs -->` uses another broker. `test_other_brokers.py` runs it.
- A block below `<!-- not executed: REASON -->` is left alone. `REASONS` lists what may stand there.

The server of the page listens on localhost:8080, and has had messages before, as after another page. A page that starts
another server uses localhost:8081. Addresses of databases in `DATABASES` are replaced by those of real ones. At its end the
page has stopped what it has started, and taken back the settings of its shell.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import httpx

from developing.environment import node
from tests.answers import check_answer, masked
from tests.guides import END_OF_BLOCK, GUIDE_ADDRESS
from tests.peeklock_process import PeeklockProcess
from tests.reader import reader_environment
from tests.servers import TIMEOUT_SECONDS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    str(page.relative_to(DOCS)): page.read_text()
    for files in ("start/*.md", "understand/*.md", "guides/*.md", "sqs.md")
    for page in sorted(DOCS.glob(files))
}
"""The text of each page, by its name."""

FENCE = re.compile(
    r"(?:^<!-- (?:not executed: (?P<reason>[^\n]*)|(?P<nightly>executed by nightly runs)) -->\n)?"
    r"^```(?P<kind>\S+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FILE_ABOVE = re.compile(r"`([\w.-]+)`:\s*\Z")
SECOND_PORT = "8081"
COMMANDS = "sh"
ANSWERS = ("json", "http", "text")
PROGRAMS = ("python", "ts", "java", "sql", "bash")
REASONS = (
    "the test has started the server",
    "needs an account of Azure",
    "needs an extension that the system's package manager does not have",
    "needs a cluster",
    "needs a superuser of the database",
    "needs the AWS SDK for Java",
)
DATABASES = {
    "postgresql://peeklock:secret@localhost:5432/peeklock": "postgresql",
    "postgresql://peeklock:secret@localhost:5432/restored": "postgresql",
    "redis://localhost:6379/0": "redis",
}
"""The kind of server behind each address that a page may show. Each is empty at the start of the page."""
MESSAGES_BEFORE = 3
"""How many messages the server has had when the page begins. The numbers that a page shows are those of a new server."""
SEQUENCE_NUMBER = re.compile(r'("sequence_number": ?|"lock_token": ?"|\bsent |\bmessage )(\d+)')
QUEUE_OR_TOPIC = re.compile(
    r"""(?:/(?:queues|topics)/|\.(?:queue|topic)\("|@worker\.on(?:_state)?\("|\bqueue="|"queue": "|--queue """
    r"""|\bpeeklock (?:(?:queue|topic|subscription|dead-letter) [a-z]+|send|receive|publish|browse|explain|restore|history) )"""
    r"""([a-z][\w-]*)"""
)
"""The first part of the name of a queue or a topic, where a command or a program has it."""
FIRST_COMMANDS = "compgen -e PEEKLOCK_ > settings-before || true\n"
LAST_COMMANDS = """
[ -z "$(jobs -rp)" ] || { echo "At the end of the page this still runs: $(jobs -r)" >&2; exit 1; }
left=$(compgen -e PEEKLOCK_ | grep -vxFf settings-before || true)
[ -z "$left" ] || { echo "The page leaves these settings in its shell: $left" >&2; exit 1; }
"""
LONGEST_RUN_SECONDS = 2 * TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    kind: str
    text: str
    reason: str | None
    """Why it is not executed, or None."""
    is_nightly: bool
    """Whether only nightly runs execute it."""
    file: str | None
    """Under which name a reader saves it, or None."""

    @property
    def is_typed(self) -> bool:
        """Whether it is executed, or compared, where the page is run from top to bottom."""
        return self.reason is None and not self.is_nightly


def read(text: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    blocks: list[Block] = []
    for found in FENCE.finditer(text):
        file = FILE_ABOVE.search(text[: found.start()])
        blocks.append(Block(found["kind"], found["text"], found["reason"], bool(found["nightly"]), file and file[1]))
    return blocks


def check(text: str, service: PeeklockProcess, addresses: Mapping[str, str] | None = None) -> None:
    """Run a page against a server of its own. All that a command prints must be shown below it.

    `addresses` has the address of a real server for addresses that the page shows.
    """
    executed = [block for block in read(text) if block.is_typed]
    batch = {"messages": [{}] * MESSAGES_BEFORE}
    httpx.post(f"{service.url}/v1/queues/earlier/messages/batch", json=batch).raise_for_status()
    outputs = iter(_printed(service, executed, addresses or {}))
    for block, below in zip_longest(executed, executed[1:]):
        if block.kind == COMMANDS:
            _check_output(next(outputs), below if below and below.kind in ANSWERS else None)


def queues_and_topics(text: str) -> set[str]:
    """Return the names of the queues and topics that the commands and programs of a page use, up to their first dot."""
    typed = (block.text for block in read(text) if block.is_typed and block.kind not in ANSWERS)
    return {name for block in typed for name in QUEUE_OR_TOPIC.findall(block)}


def _check_output(output: str, block: Block | None) -> None:
    if block is None:
        assert not output.strip(), f"the page does not show this output:\n{output}"
        return
    shown = SEQUENCE_NUMBER.sub(lambda found: f"{found[1]}{int(found[2]) + MESSAGES_BEFORE}", block.text)
    if block.kind == "text":
        assert _is_shown(output.strip(), shown.strip()), f"printed:\n{output}\nshown:\n{shown}"
    else:
        check_answer(block.kind, output, shown)


def _is_shown(output: str, shown: str) -> bool:
    """Whether a text is printed as shown. `...` stands for any characters, over several lines if it is alone on one."""
    pattern = re.escape(masked(shown)).replace(r"\.\.\.", "...")
    pattern = re.sub(r"^\.\.\.$", r"[\\s\\S]*", pattern, flags=re.MULTILINE).replace("...", ".*")
    return re.fullmatch(pattern, masked(output)) is not None


def _printed(service: PeeklockProcess, blocks: Sequence[Block], addresses: Mapping[str, str]) -> list[str]:
    """Return what each block of commands has printed."""
    output, errors = service.directory / "typed.out", service.directory / "typed.log"
    with (
        output.open("wb") as out,
        errors.open("wb") as log,
    ):  # pipes would stay open as long as a server of the page runs
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", "".join(_typed(service, blocks, addresses))],
            env=_environment(service),
            cwd=service.directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )
        try:
            status = shell.wait(LONGEST_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _kill_session(shell)
    assert status == 0, f"status {status}: {errors.read_text()}\nprinted before:\n{output.read_text()}"
    return output.read_text().split(END_OF_BLOCK)[:-1]


def _typed(service: PeeklockProcess, blocks: Sequence[Block], addresses: Mapping[str, str]) -> Iterator[str]:
    """Yield what a reader types for each block: its commands, or the saving of a program."""
    yield FIRST_COMMANDS
    real = {GUIDE_ADDRESS: service.url.removeprefix("http://"), SECOND_PORT: str(_free_port()), **addresses}
    for number, block in enumerate(blocks):
        text = replaced(block.text, real)
        if block.kind == COMMANDS:
            yield f"{text}\necho '{END_OF_BLOCK}'\n"
        elif block.kind in PROGRAMS:
            (service.directory / f"block-{number}").write_text(text)
            yield f"mv block-{number} {block.file}\n"
    yield LAST_COMMANDS


def replaced(text: str, real: Mapping[str, str]) -> str:
    """Return a text with real addresses instead of those that a page shows."""
    return re.sub("|".join(map(re.escape, real)), lambda found: real[found[0]], text) if real else text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(service: PeeklockProcess) -> dict[str, str]:
    """Return the environment in which `python3`, `peeklock` and `peeklock-worker` are those of the server's copy.

    Node.js is another thing that a page requires of its reader. The tests have one.
    """
    return reader_environment(service.programs, node().parent, url=service.url) | {"HOME": str(service.directory)}


def _kill_session(shell: subprocess.Popen[str]) -> None:
    """End what the page has left running."""
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    shell.wait()
