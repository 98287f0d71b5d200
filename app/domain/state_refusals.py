"""The refusals of reads and changes of states."""

from app.domain.refusals import Conflict, NotFound


class StateNotFound(NotFound):
    """This key has no state, or not this version of it."""

    code = "state-not-found"


class VersionConflict(Conflict):
    """The change was computed from another version of the state; load the state and process the message again."""

    code = "version-conflict"

    def __init__(self, detail: str, current_version: int) -> None:
        super().__init__(detail)
        self.current_version = current_version


class ResultDiffers(Conflict):
    """The result differs from that of the first processing of this message."""

    code = "result-differs"
