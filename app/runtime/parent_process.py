"""Stops a server process whose parent has ended. A killed parent cannot stop its children itself."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess


def stop_with_parent(report: Callable[[], object]) -> None:
    """Once the parent of this process has ended, call `report` in a thread, and send this process a SIGTERM.

    Does nothing in a process that multiprocessing has not started. The parent holds one end of a pipe, which the operating
    system closes when the parent ends. This works on Linux and on macOS.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_stop_after, args=(parent, report), name="parent", daemon=True).start()


def _stop_after(parent: BaseProcess, report: Callable[[], object]) -> None:
    parent.join()
    report()
    os.kill(os.getpid(), signal.SIGTERM)
