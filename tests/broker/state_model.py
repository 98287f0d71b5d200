"""The reference model of versioned states: each message adds one version to a state, however often it is processed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from app.domain.instant import Duration, Instant
from tests.broker.transaction_model import TransactionModel


@dataclass
class ModelVersion:
    """A version of a state, the message that added it, and what its processing sent."""

    number: int
    message_id: str | None
    result: object
    sent: Sequence[int]
    created_at: Instant
    is_removed: bool = False


@dataclass
class StateModel(TransactionModel):
    """A queue, and states that the processing of its messages changes."""

    states: dict[str, list[ModelVersion]] = field(default_factory=dict)

    def newest_version(self, key: str) -> int:
        """Return the number of the newest version of a state; 0 if there is none."""
        return len(self.states.get(key, ()))

    def processed(self, key: str, message_id: str) -> ModelVersion | None:
        """Return the version that the first processing of a message has added."""
        return next((one for one in self._kept(key) if one.message_id == message_id), None)

    def base_version(self, key: str, message_id: str) -> int:
        """Return the number of the version on which a message is processed."""
        first = self.processed(key, message_id)
        return self.newest_version(key) if first is None else first.number - 1

    def kept_versions(self, key: str) -> list[tuple[int, str | None]]:
        """Return the number and the message of each version that was not removed."""
        return [(one.number, one.message_id) for one in self._kept(key)]

    def add_version(self, key: str, message_id: str, result: object, sent: Sequence[int]) -> None:
        number = self.newest_version(key) + 1
        self.states.setdefault(key, []).append(ModelVersion(number, message_id, result, sent, self.now))

    def delete_old_versions(self, retention: Duration) -> None:
        """Remove versions that were replaced long ago. The version after a removed one forgets its message."""
        for versions in self.states.values():
            for version, next_version in pairwise(versions):
                if next_version.created_at <= self.now - retention:
                    version.is_removed, next_version.message_id = True, None

    def delete_state(self, key: str) -> bool:
        return self.states.pop(key, None) is not None

    def _kept(self, key: str) -> list[ModelVersion]:
        return [one for one in self.states.get(key, ()) if not one.is_removed]
