"""Reads database URLs, for opening and for migrating."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from urllib.parse import SplitResult, unquote, urlsplit


class EngineName(StrEnum):
    """The database engines of a store."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    SQLITE = "sqlite"


EXAMPLES = "sqlite:///peeklock.sqlite3, postgresql://user:password@host/database or mysql://user:password@host/database"
IN_MEMORY = ":memory:"
SERVER_SCHEMES = {
    "postgresql": EngineName.POSTGRESQL,
    "postgres": EngineName.POSTGRESQL,
    "mysql": EngineName.MYSQL,
    "mariadb": EngineName.MYSQL,
}

MAX_CONNECT_SECONDS = 600
"""Far more than a network takes. A larger number is probably in another unit."""


class BadStoreUrl(ValueError):
    """The URL names no database that can be opened."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A database: its engine and, on SQLite, its file. Without a path it is a database in memory."""

    engine: EngineName
    text: str
    path: Path | None = None


def read_url(url: str) -> StoreUrl:
    """Read `sqlite:///file`, `sqlite:////absolute/file`, `sqlite://` (in memory), `postgresql://`, `mysql://` or
    `mariadb://`. Refuses with `BadStoreUrl`, which never shows a password.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise BadStoreUrl(f"{_redacted(url)} is not a database URL; write one like {EXAMPLES}.")
    if "+" in scheme:
        raise BadStoreUrl(f"The server chooses the driver: write {scheme.partition('+')[0]}:// instead of {scheme}://.")
    try:
        parts = urlsplit(url)
        _check_password(parts)
        _check_ports(parts, several=SERVER_SCHEMES.get(scheme) is EngineName.POSTGRESQL)
    except ValueError:
        # The driver's reason may quote a password, if a slash in the password was not percent-encoded.
        raise BadStoreUrl(
            f"{_redacted(url)} cannot be read: its port is not a number, or its password is not percent-encoded."
        ) from None
    if scheme == "sqlite":
        return StoreUrl(EngineName.SQLITE, url, _sqlite_path(parts))
    if scheme not in SERVER_SCHEMES:
        raise BadStoreUrl(f"Peeklock has no store for {scheme}; write a URL like {EXAMPLES}.")
    if not parts.path.strip("/"):
        raise BadStoreUrl(f"{_redacted(url)} names no database; add its name after the host and a slash.")
    return StoreUrl(SERVER_SCHEMES[scheme], url)


def read_connect_timeout(text: str) -> int:
    """Return the seconds of the option `connect_timeout`. Refuses with `BadStoreUrl` any other text than 1 to 600."""
    if text.isdecimal() and 1 <= int(text) <= MAX_CONNECT_SECONDS:
        return int(text)
    raise BadStoreUrl(f"connect_timeout in the database URL must be whole seconds, from 1 to {MAX_CONNECT_SECONDS}.")


def is_in_memory(url: str) -> bool:
    """Return whether the URL names a database in memory, which ends when it is closed. Refuses as `read_url` does."""
    store_url = read_url(url)
    return store_url.engine is EngineName.SQLITE and store_url.path is None


def _check_password(parts: SplitResult) -> None:
    """Raise `ValueError` if the user or password contains an `@`: drivers would read the host from there."""
    if parts.netloc.count("@") > 1:
        raise ValueError("@")


def _check_ports(parts: SplitResult, *, several: bool) -> None:
    """Raise `ValueError` if a port is not a number. PostgreSQL's driver takes several hosts, each with a port."""
    hosts = parts.netloc.rpartition("@")[2]
    for host in hosts.split(",") if several else [hosts]:
        _ = urlsplit(f"//{host}").port


def _sqlite_path(parts: SplitResult) -> Path | None:
    if parts.netloc:
        raise BadStoreUrl(f"A SQLite file has no host; write sqlite:///{parts.netloc}{parts.path}.")
    if parts.query or parts.fragment:
        raise BadStoreUrl(f"{parts.geturl()} has options; a SQLite file takes none.")
    name = unquote(parts.path.removeprefix("/"))
    if name in ("", IN_MEMORY):
        return None
    if "\0" in name:
        raise BadStoreUrl("The name of the SQLite file has a null character, which no file has.")
    path = Path(name)
    try:
        _check_file(path)
    except OSError as error:
        raise BadStoreUrl(f"{path} cannot be opened: {error.strerror}.") from None
    return path


def _check_file(path: Path) -> None:
    """Refuse with `BadStoreUrl` a path that is not a file and cannot become one. Raises `OSError` if it cannot be examined."""
    if not path.parent.is_dir():
        raise BadStoreUrl(f"There is no folder {path.parent} for the database file {path.name}.")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if S_ISDIR(mode):
        raise BadStoreUrl(f"{path} is a folder; name a file in it, such as {path}/peeklock.sqlite3.")
    if not S_ISREG(mode):
        raise BadStoreUrl(f"{path} is a device, a pipe or a socket, not a file.")


def _redacted(url: str) -> str:
    """Return the URL without the part that may be a password."""
    before, at, after = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme}{separator}...{at}{after}" if at else url
