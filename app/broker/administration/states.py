"""Read and delete versioned states. Work units change them (`commit.py` and `execute.py` in `broker/transactions/`)."""

from collections.abc import Sequence

from app.broker.administration.range_pages import page_of_ranges
from app.broker.ports.states import StateStore
from app.domain.name_ranges import NameRange
from app.domain.state import NO_VERSION, LoadedState, StateSummary, VersionSummary
from app.domain.state_refusals import StateNotFound


async def load_state(
    states: StateStore, key: str, number: int | None = None, before_message: str | None = None
) -> LoadedState:
    """Return the newest version of a state, the version of a number, or the one before a message was first processed.

    A key without versions has version 0 (S4.4, S4.11). Refuses with `StateNotFound` if the version is not kept.
    """
    if before_message is not None:
        return await states.before_message(key, before_message)
    if number is None:
        return LoadedState(await states.newest(key))
    version = await states.version(key, number)
    if version is None and number != NO_VERSION:
        raise StateNotFound(f"Version {number} of state {key} does not exist, or was removed.")
    return LoadedState(version)


async def state_history(states: StateStore, key: str, after: int, limit: int) -> list[VersionSummary]:
    """Return versions of a state with numbers above `after`, ascending, without their values (S4.20)."""
    return await states.history(key, after, limit)


async def list_states(
    states: StateStore, ranges: Sequence[NameRange], after: str, limit: int
) -> tuple[Sequence[StateSummary], str | None]:
    """Return states whose keys are in the ranges, ascending, and the cursor of the next page, None on the last one."""
    return await page_of_ranges(states.page, ranges, after, limit)


async def delete_state(states: StateStore, key: str) -> None:
    """Delete a state with all its versions. Refuses with `StateNotFound`.

    The next change of the key begins with version 1, and messages that were processed before count as new.
    """
    if not await states.delete(key):
        raise StateNotFound(f"Key {key} has no state.")
