"""Names in Redis: a record per lock token, an index of deadlines per bucket, the servers, the consumers, a channel for wake-ups.

Versions of the service with another format of records use other names, so that both can run side by side. Each finds no
record of the other; a missing record proves nothing, and the renewal goes to SQL.

Names contain the bucket in braces, so that Redis Cluster keeps a bucket's index and records in one slot and one script
may use them all.
"""

from dataclasses import dataclass

from app.domain.refusals import MessageNotFound
from app.domain.settlement import LockToken

DEFAULT_PREFIX = "peeklock:"

BUCKETS = 16
BUCKET_SHIFT = 6
"""64 neighbouring sequence numbers, about one batch, share a bucket."""

WINDOW_KEYS = 16
"""Hashes of windows, used in turn: more than the windows that are read, and the current one."""


def bucket_of(token: LockToken) -> int:
    """Return the bucket of a token. Neighbours share one, so that a batch needs few scripts."""
    return (token.sequence_number >> BUCKET_SHIFT) % BUCKETS


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """The names under one prefix; brokers with different prefixes may share a Redis."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if "{" in self.prefix:
            raise ValueError("A prefix with { would replace the bucket as the hash tag.")

    def index(self, bucket: int) -> str:
        """Return the name of the sorted set of a bucket's records by deadline."""
        return f"{self.prefix}{{{bucket}}}:ends"

    def record(self, token: LockToken) -> str:
        """Return the name of the record of one delivery."""
        return f"{self.prefix}{{{bucket_of(token)}}}:lock:{token}"

    def owner(self) -> str:
        """Return the name of the key that holds the identity of the prefix's broker."""
        return f"{self.prefix}owner"

    def seen(self) -> str:
        """Return the name of the hash of the highest values that the processes have seen."""
        return f"{self.prefix}seen"

    def servers(self) -> str:
        """Return the name of the hash of the servers. Redis Cluster keeps it in one slot with the windows."""
        return f"{self.prefix}{{servers}}:running"

    def windows(self) -> list[str]:
        """Return the names of the hashes of counts, one for each window in turn."""
        return [f"{self.prefix}{{servers}}:window:{number}" for number in range(WINDOW_KEYS)]

    def consumers(self) -> list[str]:
        """Return the names of the hash of reports of consumers, and of the sorted set of their ends."""
        return [f"{self.prefix}{{consumers}}:reports", f"{self.prefix}{{consumers}}:ends"]

    def broadcast_channel(self) -> str:
        """Return the channel that every process subscribes to."""
        return f"{self.prefix}wake-ups"

    def check_channel(self) -> str:
        """Return a channel that no process subscribes to."""
        return f"{self.prefix}wake-ups:check"

    def channel_of(self, wait_key: int) -> str:
        """Return the channel of the processes that have receivers under this wait key."""
        return f"{self.prefix}wake-ups:{wait_key}"

    def token(self, record: str) -> LockToken | None:
        """Return the token at the end of a record's name, or None if no record has such a name."""
        try:
            return LockToken.parse(record.rpartition(":")[2])
        except MessageNotFound:
            return None
