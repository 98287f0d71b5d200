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

import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from peeklock_pipeline.refusals import BadLake, BadOption, LakeUnavailable
from peeklock_pipeline.uris import without_credentials

OBJECT_STORES = {"s3": "AWS_", "gs": "GOOGLE_", "abfss": "AZURE_"}
"""The schemes of object stores whose commits are exclusive without a further service, and the prefix of their options in
the environment."""

OF_ONE_MACHINE = "AWS_CONTAINER_"
"""The prefix of variables that are valid in one container, and not for the executors elsewhere."""

OPTION_PREFIX = re.compile("aws_|google_|azure_storage_|azure_")

SAME_OPTIONS = {
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint",
    "session_token": "token",
    "bearer_token": "token",
    "access_key": "account_key",
    "master_key": "account_key",
    "sas_key": "sas_token",
    "authority_id": "tenant_id",
    "service_account_path": "service_account",
}
"""Other names of an option, without their prefix."""

EXAMPLES = {"abfss": "abfss://container@account.dfs.core.windows.net/path"}
"""What a lake's URI looks like, if it is not `scheme://bucket/path`."""

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""The start of a URI, also after `Path` has merged its slashes."""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that deltalake accepts in no path."""

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Storage:
    """A directory: an absolute path, or a URI. It holds no connection, so it can be sent to executors."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may be credentials

    @classmethod
    def at(cls, place: "str | Path | Storage", options: Mapping[str, str] = NO_OPTIONS) -> "Storage":
        """Return the storage of a path or URI. Options that are not given come from the environment of this process.

        So executors, which have another environment, use the same. Refuses with `BadLake` another scheme and places that
        deltalake would not understand, and with `BadOption`.
        """
        if isinstance(place, Storage):
            return place
        found = SCHEME.match(str(place))
        scheme = found[1] if found else ""
        if not str(place) or scheme not in ("", "file", *OBJECT_STORES):
            schemes = ", ".join(f"{scheme}://" for scheme in OBJECT_STORES)
            shown = without_credentials(str(place))
            raise BadLake(f"A lake is a directory, or a URI that begins with {schemes} or file://: {shown} does not.")
        if CONTROL.search(unquote(str(place))):
            raise BadLake(
                f"{without_credentials(str(place))!r} has a control character, which a lake's place must not have."
            )
        if scheme in OBJECT_STORES:
            return cls(_object_store_uri(str(place), scheme), _all_options(OBJECT_STORES[scheme], options))
        if options:
            raise BadOption(f"{place} is a directory, and storage options are for object stores.")
        return cls(str(_path(str(place), is_uri=bool(scheme))))

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
        try:
            handler: Any = DeltaStorageHandler(self.uri, self.storage_options())
        except DeltaError as error:
            raise BadOption(f"The storage options of {self.uri} are wrong: {_reason(error)}") from error
        return PyFileSystem(handler)

    def names(self) -> list[str]:
        """Return the names of directories and files directly below this one; none if it does not exist."""
        with self.refusals():
            below = self.filesystem().get_file_info(FileSelector("", allow_not_found=True))
        return sorted(Path(info.path).name for info in below)

    def is_file(self) -> bool:
        """Whether a file is in this place, where a directory is needed."""
        with self.refusals():
            return self.is_local and LocalFileSystem().get_file_info(self.uri).type == FileType.File

    @contextmanager
    def refusals(self, path: str = "") -> Iterator[None]:
        """Refuse with `LakeUnavailable`, which names the file of this path below, if the object store or file system does not
        answer or refuses, or a file is damaged."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            place = f"{self.uri}/{path}" if path else self.uri
            raise LakeUnavailable(f"{place} cannot be read or written: {_reason(error)}") from error


def _object_store_uri(place: str, scheme: str) -> str:
    """Return a URI that the log and the files of a table understand alike."""
    host = place.partition("://")[2].partition("/")[0]
    container, at, account = host.partition("@")
    if ":" in host or "@" in account or (at and scheme != "abfss"):  # a password may have a slash
        raise BadLake(
            "A lake's URI has no credentials, because it is printed, and no port: give them as storage options."
        )
    parts, shown = urlsplit(place), without_credentials(place)
    if not container or (at and not account):
        example = EXAMPLES.get(scheme, f"{scheme}://bucket/path")
        raise BadLake(f"{shown} names no {'account' if container else 'bucket'}: a lake's URI looks like {example}.")
    if parts.query or parts.fragment or place[-1] in "?#" or "//" in parts.path.rstrip("/"):
        raise BadLake(f"{shown} has a ?, a # or an empty directory, which a lake's URI must not have.")
    return place.rstrip("/")


def _path(place: str, *, is_uri: bool) -> Path:
    if not is_uri:
        path = place
    elif urlsplit(place).netloc in ("", "localhost"):
        path = unquote(urlsplit(place).path)
    else:
        raise BadLake(f"{place} names another machine: the URI of a directory looks like file:///srv/lake.")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BadLake("The name of a lake's directory is in UTF-8, and this one is not.") from None
    if "\\" in path:
        raise BadLake(f"{place}: a lake's directory has no backslash, which deltalake takes for a /.")
    if unquote(path) != path:
        raise BadLake(f"{place}: a lake's directory has no % before two digits, which deltalake takes for an encoding.")
    return Path(path).absolute()


def _all_options(prefix: str, given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the options of the environment, replaced by the given ones, even if these have another spelling."""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(prefix) and not name.startswith(OF_ONE_MACHINE)
    }
    spelling = {_meaning(name): name for name in found}
    chosen = {spelling.get(_meaning(name), name): value for name, value in given.items()}
    return tuple(sorted((found | chosen).items()))


def _meaning(name: str) -> str:
    """Return what an option is about: deltalake knows most by several names, and uses any one of those it is given."""
    plain = OPTION_PREFIX.sub("", name.lower())
    return SAME_OPTIONS.get(plain, plain)


def parse_options(given: list[str] | None) -> dict[str, str]:
    """Parse options of the form KEY=VALUE. Refuses with `BadOption`."""
    pairs = [option.partition("=") for option in given or ()]
    if any(not (name and equals) for name, equals, _ in pairs):  # which may be a credential: it is not printed
        raise BadOption("A storage option is KEY=VALUE, such as AWS_REGION=eu-west-1.")
    return {name: value for name, _, value in pairs}


TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m")
USER_OF_URL = re.compile(r"(?<=://)[^/\s]*@(?=[^/\s@]+)")


def _reason(error: Exception) -> str:
    """Return an error of deltalake in one line, from its first cause to the last. It may name the URL of the store."""
    return USER_OF_URL.sub("", " ".join(TERMINAL_CODES.sub("", str(error)).replace("↳", "").split()))
