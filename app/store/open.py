"""Opens the message store that a URL names; only the engine that is named is imported."""

from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.broker.ports import Store
from app.runtime.clock import Clock
from app.store.records import Observe

EXAMPLES = "sqlite:///peeklock.sqlite3, postgresql://user:password@host/database or mysql://user:password@host/database"
IN_MEMORY = ":memory:"


class BadStoreUrl(Exception):
    """The URL names no database that can be opened."""


def ignore_batches(_statement: str, _entries: int) -> None:
    """Hear of batches and tell nobody."""


async def open_store(url: str, clock: Clock, connections: int = 8, observe: Observe = ignore_batches) -> Store:
    """Open the store at a URL: `sqlite:///file`, `sqlite:////absolute/file`, `sqlite://` (in memory), `postgresql://`,
    `mysql://` or `mariadb://`.

    `clock` is the clock of a SQLite database; servers have their own. `connections` are to a server. `observe` hears
    of every group of callers that were served at once. Refuses with `BadStoreUrl`, `StoreUnavailable` or, where
    another process serves the SQLite file, `FileInUse`.
    """
    scheme, separator, _ = url.partition("://")
    match scheme:
        case _ if not separator:
            raise BadStoreUrl(f"{_shown(url)} is no database URL; write one like {EXAMPLES}.")
        case "sqlite":
            sqlite = import_module("app.store.sqlite")
            return await sqlite.open_sqlite(_sqlite_path(url), clock, observe)
        case "postgresql" | "postgres":
            postgresql = import_module("app.store.postgresql")
            return await postgresql.open_postgresql(_with_database(url), connections, observe)
        case "mysql" | "mariadb":
            mysql = import_module("app.store.mysql")
            return await mysql.open_mysql(_with_database(url), connections, observe)
        case _ if "+" in scheme:
            raise BadStoreUrl(
                f"The drivers are chosen here: write {scheme.partition('+')[0]}:// instead of {scheme}://."
            )
        case _:
            raise BadStoreUrl(f"There is no store on {scheme}; write a URL like {EXAMPLES}.")


def _sqlite_path(url: str) -> Path | None:
    """The file of `sqlite:///relative` or `sqlite:////absolute`; None for `sqlite://` and `sqlite:///:memory:`."""
    parts = urlsplit(url)
    if parts.netloc:
        raise BadStoreUrl(f"{url} names a host; a SQLite file is written sqlite:///{parts.netloc}{parts.path}.")
    if parts.query or parts.fragment:
        raise BadStoreUrl(f"{url} has options; a SQLite file takes none.")
    name = unquote(parts.path.removeprefix("/"))
    if name in ("", IN_MEMORY):
        return None
    path = Path(name)
    if not path.parent.is_dir():
        raise BadStoreUrl(f"There is no folder {path.parent} for the database file {path.name}.")
    if path.is_dir():
        raise BadStoreUrl(f"{path} is a folder; name a file in it, such as {path}/peeklock.sqlite3.")
    return path


def _with_database(url: str) -> str:
    """The URL of a server, which must say which of its databases is meant."""
    if not urlsplit(url).path.strip("/"):
        raise BadStoreUrl(f"{_shown(url)} names no database; put its name behind the host, after a slash.")
    return url


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    before, at, after = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme}{separator}...{at}{after}" if at else url
