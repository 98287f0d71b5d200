"""The commands of the table, as they are typed."""

from __future__ import annotations

from collections.abc import Iterator

from app.cli.lazy_commands import Commands, Group


def typed_words(commands: Commands) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command."""
    for name, entry in commands.items():
        if isinstance(entry, Group):
            yield from ((name, *words) for words in typed_words(entry.commands))
        else:
            yield (name,)


def modules(commands: Commands) -> set[str]:
    """Return the modules of the commands."""
    inner = [modules(entry.commands) for entry in commands.values() if isinstance(entry, Group)]
    own = {f"app.cli.{entry.partition(':')[0]}" for entry in commands.values() if isinstance(entry, str)}
    return own.union(*inner)
