"""One SQLite file: the lock that keeps it to one process, the settings of its connections, and what its errors mean."""

import errno
import fcntl
import json
import os
import secrets
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from app.domain.digest import row_digest
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import SECRET_BYTES
from app.store.in_use import FileInUse

BUSY_SECONDS = 5.0
"""How long to wait while somebody else, a backup or a person with a shell, writes to the file."""

PRIVATE_MODE = 0o600
"""Messages may be read by the account of the server alone."""

CACHED_STATEMENTS = 256
"""More than there are statements, so that each is parsed once for every connection."""

SETTINGS = (
    # A commit is on the disk when it returns: WAL needs FULL for that, NORMAL only keeps the file whole.
    "PRAGMA synchronous = FULL",
    "PRAGMA temp_store = MEMORY",
    # Sixteen MiB instead of two: the tops of all indexes and the newest messages stay in memory.
    "PRAGMA cache_size = -16384",
    # After a long read the log shrinks to this again.
    f"PRAGMA journal_size_limit = {64 << 20}",
)

ERROR_MESSAGES = {
    sqlite3.SQLITE_BUSY: "The database file is locked by another program.",
    sqlite3.SQLITE_LOCKED: "The database file is locked by another program.",
    sqlite3.SQLITE_FULL: "The disk of the database file is full.",
    sqlite3.SQLITE_IOERR: "The database file cannot be read or written.",
    sqlite3.SQLITE_READONLY: "The database file may not be written.",
    sqlite3.SQLITE_CANTOPEN: "The database file cannot be opened.",
    sqlite3.SQLITE_CORRUPT: "The database file is damaged; restore it from a backup.",
    sqlite3.SQLITE_NOTADB: "The database file is damaged; restore it from a backup.",
    sqlite3.SQLITE_PROTOCOL: "The database file is locked by another program.",
    sqlite3.SQLITE_INTERRUPT: "The database was interrupted.",
}
"""What SQLite cannot help, by primary result code, as the one who asked may hear it; any other error is a mistake here."""

# What a statement calls `@in(:numbers)` on SQLite is the text of a JSON array.
sqlite3.register_adapter(list, json.dumps)


class FileLock:
    """The sole right of this process to serve a file, taken when made; it ends with the process at the latest."""

    def __init__(self, path: Path) -> None:
        lock_path = path.with_name(f"{path.name}.lock")
        self._file = os.fdopen(os.open(lock_path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE_MODE), "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            owner = self._file.read(20).strip()
            self._file.close()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise FileInUse(path, owner) from error
            raise
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let another process have the file. The lock's own file stays, or two could hold locks of different ones."""
        self._file.close()


def make_private(path: Path) -> None:
    """Create the file for its owner alone unless it exists. SQLite gives the files beside it the same mode.

    A file that exists is not opened: SQLite's locks belong to the process, and closing any descriptor of the file would
    end them. Another program that reads would then take itself for the last one and remove the write-ahead log.
    """
    with suppress(OSError):  # SQLite tells better why it cannot be opened
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_MODE))


def connect(path: Path | None) -> sqlite3.Connection:
    """Open a connection whose transactions are begun and ended by us; without a path it is to a database in memory.

    It may be used by any thread, one at a time.
    """
    if path:
        make_private(path)
    connection = sqlite3.connect(
        path or ":memory:",
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )
    try:
        ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
        if path and mode != "wal":
            raise StoreUnavailable(f"The file system of the database file allows no write-ahead log, only {mode}.")
        for setting in SETTINGS:
            connection.execute(setting)
    except BaseException:
        connection.close()
        raise
    connection.create_function("fresh_secret", 0, lambda: secrets.token_bytes(SECRET_BYTES))
    connection.create_function("sha256_hex", 1, _sha256_hex, deterministic=True)
    connection.create_function("row_digest", -1, _row_digest, deterministic=True)
    return connection


def _sha256_hex(body: bytes | str) -> str:
    """A body is bytes, unless another program has written it as text."""
    return sha256(body.encode() if isinstance(body, str) else body).hexdigest()


def _row_digest(*fields: int | str | bytes | None) -> str:
    return row_digest(fields)


@contextmanager
def translate_errors() -> Generator[None]:
    """Say `StoreUnavailable` for what SQLite cannot help; let mistakes of ours through as they are."""
    try:
        yield
    except sqlite3.Error as error:
        # The upper bits tell variants of one trouble apart.
        if text := ERROR_MESSAGES.get(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF):
            raise StoreUnavailable(text) from error
        raise
