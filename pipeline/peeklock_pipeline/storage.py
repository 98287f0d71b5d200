"""The place of a lake: a local or shared directory, or a URI of an object store.

deltalake and the file system below take the same storage options. So the log and the files of a table are always in one
place, with one set of credentials.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from peeklock_pipeline.refusals import BadLake, BadOption, LakeUnavailable

OBJECT_STORES = {"s3": "AWS_", "gs": "GOOGLE_", "abfss": "AZURE_"}
"""The schemes of object stores whose commits are exclusive without a further service, and the prefix of their options in
the environment."""

OF_ONE_MACHINE = "AWS_CONTAINER_"
"""The prefix of variables that are valid in one container, and not for the executors elsewhere."""

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""The start of a URI, also after `Path` has merged its slashes."""

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Storage:
    """A directory: an absolute path, or a URI. It holds no connection, so it can be sent to executors."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may be credentials

    @classmethod
    def at(cls, place: "str | Path | Storage", options: Mapping[str, str] = NO_OPTIONS) -> "Storage":
        """Return the storage of a path or URI. Options that are not given come from the environment of this process.

        So executors, which have another environment, use the same. Refuses with `BadLake` another scheme.
        """
        if isinstance(place, Storage):
            return place
        found = SCHEME.match(str(place))
        if found and found[1] not in ("file", *OBJECT_STORES):
            schemes = ", ".join(f"{scheme}://" for scheme in OBJECT_STORES)
            raise BadLake(f"A lake is a directory, or a URI that begins with {schemes} or file://: {place} does not.")
        if found and found[1] != "file":
            if not urlsplit(str(place)).netloc:
                raise BadLake(f"{place} names no bucket: a lake's URI looks like {found[1]}://bucket/path.")
            found_options = _options_of_environment(OBJECT_STORES[found[1]]) | dict(options)
            return cls(str(place).rstrip("/"), tuple(sorted(found_options.items())))
        path = Path(unquote(urlsplit(str(place)).path)) if found else Path(place)
        return cls(str(path.absolute()))

    def __str__(self) -> str:
        return self.uri

    @property
    def is_local(self) -> bool:
        """Whether this is a directory of a mounted file system, which Spark can read."""
        return "://" not in self.uri

    def under(self, name: str) -> "Storage":
        """Return a directory below this one."""
        return Storage(f"{self.uri}/{name}", self.options)

    def storage_options(self) -> dict[str, str] | None:
        """Return the options as deltalake takes them."""
        return dict(self.options) or None

    def filesystem(self) -> FileSystem:
        """Return a file system in which paths are relative to this directory."""
        if self.is_local:
            return SubTreeFileSystem(self.uri, LocalFileSystem())
        handler: Any = DeltaStorageHandler(self.uri, self.storage_options())
        return PyFileSystem(handler)

    def names(self) -> list[str]:
        """Return the names of directories and files directly below this one; none if it does not exist."""
        with self.refusals():
            below = self.filesystem().get_file_info(FileSelector("", allow_not_found=True))
        return sorted(Path(info.path).name for info in below)

    def is_file(self) -> bool:
        """Whether a file is in this place, where a directory is needed."""
        return self.is_local and LocalFileSystem().get_file_info(self.uri).type == FileType.File

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Refuse with `LakeUnavailable` if the object store does not answer, or refuses."""
        try:
            yield
        except OSError as error:
            raise LakeUnavailable(f"{self.uri} cannot be read or written: {_reason(error)}") from error


def _options_of_environment(prefix: str) -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(prefix) and not name.startswith(OF_ONE_MACHINE)
    }


def parse_options(given: list[str] | None) -> dict[str, str]:
    """Parse options of the form KEY=VALUE. Refuses with `BadOption`."""
    pairs = [option.partition("=") for option in given or ()]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise BadOption(f"A storage option is KEY=VALUE, such as AWS_REGION=eu-west-1, not {wrong[0]!r}.")
    return {name: value for name, _, value in pairs}


TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m")


def _reason(error: OSError) -> str:
    """Return an error of deltalake in one line, from its first cause to the last."""
    return " ".join(TERMINAL_CODES.sub("", str(error)).replace("↳", "").split())
