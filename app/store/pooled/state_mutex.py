"""Units that change the same state run one at a time in each process.

The row of a state is locked until its transaction ends. Without the mutex, every unit that waits for the row would hold a
connection.
"""

from contextlib import AbstractAsyncContextManager

from app.domain.refusals import Overloaded
from app.domain.work_unit import WorkUnit
from app.runtime.keyed_mutex import KeyedMutex

MAX_UNITS = 256
"""Units of one state that this process admits. Most of them were computed from a version that is not the newest."""

MAX_WAIT_SECONDS = 15.0
"""As long as a request waits for a connection."""


class StateMutex:
    """Excludes concurrent changes of one state in this process."""

    def __init__(self) -> None:
        self._by_key = KeyedMutex(MAX_UNITS, MAX_WAIT_SECONDS, Overloaded)

    def hold(self, unit: WorkUnit) -> AbstractAsyncContextManager[None]:
        """Wait until no other unit of this process changes a state of this one. Refuses with `Overloaded`."""
        return self._by_key.hold(change.key for change in unit.states)
