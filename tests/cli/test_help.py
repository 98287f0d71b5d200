"""The lists of commands say in a whole sentence what each command does."""

from __future__ import annotations

from collections.abc import Iterator

from app.cli.lazy_commands import COMMANDS, Commands, Group
from tests.cli.conftest import CommandLine


def groups(commands: Commands, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each list of commands."""
    yield words
    for name, entry in commands.items():
        if isinstance(entry, Group):
            yield from groups(entry.commands, *words, name)


def test_no_sentence_of_a_list_of_commands_is_cut_off(command_line: CommandLine) -> None:
    for words in groups(COMMANDS):
        listed = command_line.run_ok(*words, "--help").partition("Commands:")[2]
        assert listed
        assert [line for line in listed.splitlines() if line.endswith("...")] == []
