"""Peeklock whose coalescers wait for no further callers after a shared run: the reference of what that wait saves."""

from app.cli import main
from app.runtime.coalescer import Coalescer

Coalescer.gather_turns = 0

if __name__ == "__main__":
    main()
