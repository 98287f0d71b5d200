"""One SQLite file: the lock that keeps it to one process, its connections' settings, and the meaning of its errors."""

import errno
import fcntl
import json
import os
import secrets
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock

from app.domain.digest import row_digest
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import SECRET_BYTES
from app.store.in_use import FileInUse
from app.store.shared.database import NotWritable

BUSY_SECONDS = 5.0
"""How long to wait while another program, such as a backup or a shell, writes to the file."""

PRIVATE_MODE = 0o600
"""Only the server's account may read messages."""

CACHED_STATEMENTS = 256
"""More than the number of statements, so that each connection parses a statement once."""

SETTINGS = (
    # A commit is on disk when it returns. WAL needs FULL for that; NORMAL only keeps the file consistent.
    "PRAGMA synchronous = FULL",
    "PRAGMA temp_store = MEMORY",
    # 16 MiB instead of 2: the tops of all indexes and the newest messages stay in memory.
    "PRAGMA cache_size = -16384",
    # After a long read the log shrinks to this size again.
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
"""Errors of the environment by primary result code, with the text for clients. Any other error is a bug here."""

NOT_WRITABLE = frozenset({
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
})  # fmt: skip
"""The codes of errors that mean that the file cannot be written."""

SIDE_FILES = ("-wal", "-shm")
"""The endings of the files that SQLite keeps beside a database file."""

LOST = (
    "The database file, or the lock file or the write-ahead log beside it, was moved, replaced or removed while it was "
    "served. Put it back if you can, and restart the server."
)

HELD = (errno.EWOULDBLOCK, errno.EACCES)
"""The errors of a lock that another process holds."""

# On SQLite the parameter of `@in(:numbers)` is the text of a JSON array.
sqlite3.register_adapter(list, json.dumps)


class UnusableFile(Exception):
    """Names the file that SQLite cannot use, for operators, with the library's reason."""


class FileLock:
    """The sole right of this process to serve a file. Taken on creation; it ends with the process at the latest.

    Refuses with `FileInUse` if another process serves the file, and with `StoreUnavailable` if the file cannot be locked
    or has a second name. The right ends for good when the path leads to another file or to none: writes would then go to a
    file without a name, and another process may serve the file at the path.
    """

    def __init__(self, path: Path) -> None:
        lock_path = _lock_path(path)
        try:
            self._file = os.fdopen(os.open(lock_path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE_MODE), "a+")
        except OSError as error:
            raise StoreUnavailable(f"{lock_path} cannot be opened: {error.strerror}.") from None
        try:
            self._acquire(path)
            make_private(path)
            refuse_second_name(path)
        except BaseException:
            self._file.close()
            raise
        locked = os.fstat(self._file.fileno())
        self._log_path = path.resolve().with_name(f"{path.resolve().name}-wal")
        self._identities = {path: _identity(path), lock_path: (locked.st_dev, locked.st_ino)}
        self._is_lost = False
        self.connecting = Lock()
        """Held while a connection is opened or closed: the first one makes the write-ahead log, the last one removes it."""

    def ensure_held(self) -> None:
        """Raise `NotWritable` once a file at its path is not the one that was locked or opened."""
        if not self._is_lost and self._has_changed():
            # The last connection may be removing the write-ahead log.
            with self.connecting:
                self._is_lost = self._has_changed()
        if self._is_lost:
            raise NotWritable(LOST)

    def _has_changed(self) -> bool:
        return any(_identity(path) != expected for path, expected in self._identities.items())

    def note_log(self) -> None:
        """Expect from now on the write-ahead log that the first connection has just opened.

        SQLite would not notice its removal. A commit would go to a file without a name, and the next connection would begin
        another log.
        """
        self._identities = {**self._identities, self._log_path: _identity(self._log_path)}

    def forget_log(self) -> None:
        """Expect no write-ahead log: SQLite removes it with the last connection."""
        self._identities = {path: expected for path, expected in self._identities.items() if path != self._log_path}

    def release(self) -> None:
        """Release the file for other processes. The lock file stays, or two processes could lock different ones."""
        self._file.close()

    def _acquire(self, path: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                raise _in_use(path, self._file.fileno()) from None
            raise StoreUnavailable(f"{path} cannot be locked: {error.strerror}.") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()


def refuse_served(path: Path) -> None:
    """Refuse with `FileInUse` a file that a process serves."""
    try:
        descriptor = os.open(_lock_path(path), os.O_RDONLY)
    except OSError:
        return  # no process has served it; otherwise SQLite reports why the file cannot be used
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            raise _in_use(path, descriptor) from None
    finally:
        os.close(descriptor)


def _lock_path(path: Path) -> Path:
    # A symbolic link and its target are one file.
    file = path.resolve()
    return file.with_name(f"{file.name}.lock")


def _in_use(path: Path, descriptor: int) -> FileInUse:
    """Return the refusal that names the process in the lock file."""
    return FileInUse(path, os.pread(descriptor, 20, 0).decode().strip())


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a file; None if it does not exist."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotWritable(ERROR_MESSAGES[sqlite3.SQLITE_IOERR]) from error
    return found.st_dev, found.st_ino


def refuse_second_name(path: Path) -> None:
    """Refuse a file with hard links. Each name has a lock and a write-ahead log of its own, so that two processes would
    write to one file without seeing each other. Raises `StoreUnavailable`."""
    try:
        names = path.stat().st_nlink if path.exists() else 0  # SQLite reports why the file could not be made
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}.") from None
    if names > 1:
        raise StoreUnavailable(
            f"{path} has {names} names (hard links). Another process could serve it under the other name without "
            "noticing. Remove that name, or make a copy of the file."
        )


def make_private(path: Path) -> None:
    """Create the file with access for its owner alone, unless it exists. SQLite gives its side files the same mode.
    Refuses with `NotWritable`, caused by the error of the operating system, which is more exact than SQLite's.

    A file that exists is not opened. SQLite's locks belong to the process, and closing any descriptor of the file would
    end them. Another program that reads the file would then act as its last user and remove the write-ahead log.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_MODE))
    except FileExistsError:
        pass  # also a symbolic link to no file yet, which SQLite follows
    except OSError as error:
        raise NotWritable(ERROR_MESSAGES[sqlite3.SQLITE_CANTOPEN]) from error


def connect(path: Path | None) -> sqlite3.Connection:
    """Open a connection whose transactions the caller begins and ends. Without a path the database is in memory.

    Any thread may use it, one at a time.
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
        # The first read opens the write-ahead log.
        connection.execute("PRAGMA schema_version").fetchall()
    except BaseException:
        connection.close()
        raise
    connection.create_function("fresh_secret", 0, lambda: secrets.token_bytes(SECRET_BYTES))
    connection.create_function("sha256_hex", 1, _sha256_hex, deterministic=True)
    connection.create_function("row_digest", -1, _row_digest, deterministic=True)
    return connection


def _sha256_hex(body: bytes | str) -> str:
    """Hash a body. It is bytes, unless another program has written it as text."""
    return sha256(body.encode() if isinstance(body, str) else body).hexdigest()


def _row_digest(*fields: int | str | bytes | None) -> str:
    return row_digest(fields)


@contextmanager
def translate_errors(path: Path | None = None) -> Generator[None]:
    """Translate SQLite's errors of the environment into `StoreUnavailable`. Let bugs here through unchanged.

    The cause of the error is for operators: it names the file, and what the operating system says of it.
    """
    try:
        yield
    except sqlite3.Error as error:
        # The upper bits distinguish variants of one error.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if text := ERROR_MESSAGES.get(code):
            if code in NOT_WRITABLE:
                raise NotWritable(text) from (path and unusable_file(path)) or _named(path, error)
            raise StoreUnavailable(text) from _named(path, error)
        raise


def _named(path: Path | None, error: sqlite3.Error) -> Exception:
    return error if path is None else UnusableFile(f"{path}: {error}")


def unusable_file(path: Path) -> OSError | None:
    """Return the error of the operating system for the first file that this process cannot read and write: the folder, the
    database file or one beside it. None if it can use them all.

    No file is opened, as in `make_private`. SQLite itself says of all these errors only that a file cannot be opened.
    """
    for file in (path.parent, path, *(path.with_name(path.name + ending) for ending in SIDE_FILES)):
        if number := _error_number(file, is_folder=file == path.parent):
            return OSError(number, os.strerror(number), str(file))
    return None


def _error_number(path: Path, *, is_folder: bool) -> int:
    """Return the number of the error with which the file cannot be used, 0 if it can be or does not exist."""
    try:
        is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    except FileNotFoundError:
        return 0
    except OSError as error:
        return error.errno or 0
    if path.is_dir() != is_folder:
        return errno.ENOTDIR if is_folder else errno.EISDIR
    needed = os.R_OK | os.W_OK | (os.X_OK if is_folder else 0)
    if os.access(path, needed, effective_ids=os.access in os.supports_effective_ids) and not is_read_only:
        return 0
    return errno.EROFS if is_read_only else errno.EACCES
