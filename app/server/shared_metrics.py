"""The directory in which the processes of one server share the numbers of their metrics.

It is removed when the server stops. A killed server leaves its directory behind, and the next start removes it. A file
lock shows which servers still run: the operating system releases it when the process ends, also across containers that
share a directory for temporary files.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "peeklock-metrics-"
LOCK = "lock"


@contextmanager
def metrics_directory() -> Generator[Path]:
    """Provide a new directory, after removing those of servers that were killed."""
    _remove_abandoned()
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (directory / "new-lock").open("xb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The file is locked before it gets its final name, so no other start finds it unlocked.
            (directory / "new-lock").rename(directory / LOCK)
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_abandoned(directory):
            shutil.rmtree(directory, ignore_errors=True)  # another start may remove it too


def _is_abandoned(directory: Path) -> bool:
    """Return whether the lock of a directory is free. A directory without a lock, or of another account, is left alone."""
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
