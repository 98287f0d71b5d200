"""The refusals of reads and changes of states."""

from app.domain.refusals import Conflict, NotFound


class StateNotFound(NotFound):
    """No state, or no such version of it, is stored under this key."""

    code = "state-not-found"


class VersionConflict(Conflict):
    """The change of a state was computed from another version than the one before it."""

    code = "version-conflict"

    def __init__(self, detail: str, current_version: int) -> None:
        super().__init__(detail)
        self.current_version = current_version


class ResultDiffers(Conflict):
    """The processing of a duplicate has another result than the first processing of this message."""

    code = "result-differs"
