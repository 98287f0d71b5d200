"""The file of contexts: servers by name, each with its URL and its API key."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec


class NoSuchContext(Exception):
    """A name that no context has."""


class BadContextFile(Exception):
    """A file that has no contexts."""


class StoredContext(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A server, and the key of its user."""

    url: str
    api_key: str | None = None


class Contexts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All contexts by name, and the one to use."""

    current: str | None = None
    contexts: dict[str, StoredContext] = {}


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file that only its owner can read."""

    path: Path

    @classmethod
    def of_user(cls) -> "ContextFile":
        """Return the file of the user, in the XDG directory for configuration."""
        directory = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return cls(Path(directory) / "peeklock" / "contexts.json")

    def read(self) -> Contexts:
        """Return the contexts; none if the file does not exist. Raises `BadContextFile`."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Contexts)
        except (FileNotFoundError, NotADirectoryError):
            return Contexts()
        except (OSError, msgspec.MsgspecError) as error:
            raise BadContextFile(f"{self.path} cannot be read: {error}") from None

    def find(self, name: str | None) -> StoredContext | None:
        """Return the context of this name, or the current one. Raises `NoSuchContext` and `BadContextFile`."""
        stored = self.read()
        if name is None and stored.current is None:
            return None
        return named(stored.contexts, name or stored.current or "")

    def write(self, contexts: Contexts) -> None:
        """Replace the file as a whole. A crash leaves the old one."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The file is made with mode 0600.
        with NamedTemporaryFile(dir=self.path.parent, prefix=".contexts-", delete=False) as file:
            file.write(msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n")
        Path(file.name).replace(self.path)


def named(contexts: Mapping[str, StoredContext], name: str) -> StoredContext:
    """Return the context of this name. Raises `NoSuchContext`."""
    if name not in contexts:
        raise NoSuchContext(f"Context {name} does not exist. Contexts: {', '.join(sorted(contexts)) or 'none'}.")
    return contexts[name]
