"""docs/command-line.md: its commands work from top to bottom, and it names every option group that it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases import RunResources
from tests.guides import blocks, printed
from tests.peeklock_process import services
from tests.reader import clone_that_runs

PAGE = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
SECTIONS = ("Queues", "Messages", "Output formats", "Watch queues", "Purge", "Contexts")


@pytest.fixture(scope="module")
def outputs(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of each block. All run in one shell, as a reader would type them."""
    typed = [block for heading in SECTIONS for _, block in blocks(PAGE, heading)]
    with services(tmp_path_factory.mktemp("guide"), clone_that_runs(run_resources)) as start:
        return printed(start(), typed)


def test_the_sections_of_the_guide_are_run() -> None:
    assert [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")] == [*SECTIONS]


def test_the_commands_of_the_guide_work(outputs: list[str]) -> None:
    queues, messages, tokens, forms, live, purges, contexts = outputs
    assert "max_delivery_count" in queues
    assert "sent 2\n" in messages
    assert "no-such-article" in tokens
    assert "\nname: orders\n" in forms
    assert len([line for line in live.splitlines() if "available" in line]) == 2
    assert purges.strip().splitlines()[0].startswith("3 messages of ")
    assert purges.endswith("3 removed\n")
    assert "pk_secret" not in contexts
