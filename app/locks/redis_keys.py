"""Names in Redis: a record per lock token, an index of deadlines per bucket, a channel for wake-ups.

Versions of the service that write records of another form use other names, so that both can run side by side: each
sees no record of the other, which proves nothing and sends a renewal to SQL.

The bucket stands in braces, so that Redis Cluster keeps a bucket's index and records in one slot and
one script may touch them all.
"""

from dataclasses import dataclass

from app.domain.refusals import MessageNotFound
from app.domain.settlement import LockToken

DEFAULT_PREFIX = "peeklock:"

BUCKETS = 16
BUCKET_SHIFT = 6
"""So many low bits of the sequence number share a bucket: 64 neighbours, about what one batch holds."""


def bucket_of(token: LockToken) -> int:
    """The bucket of a token: neighbours share one, so that a batch needs few scripts."""
    return (token.sequence_number >> BUCKET_SHIFT) % BUCKETS


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """The names under one prefix; brokers with different prefixes may share a Redis."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if "{" in self.prefix:
            raise ValueError("A prefix with { would take the place of the bucket as the hash tag.")

    def index(self, bucket: int) -> str:
        """The sorted set of a bucket's records by deadline."""
        return f"{self.prefix}{{{bucket}}}:ends"

    def record(self, token: LockToken) -> str:
        """The record of one delivery."""
        return f"{self.prefix}{{{bucket_of(token)}}}:lock:{token}"

    def owner(self) -> str:
        """The identity of the broker that the prefix belongs to."""
        return f"{self.prefix}owner"

    def broadcast_channel(self) -> str:
        """The channel that every process hears."""
        return f"{self.prefix}wake-ups"

    def channel_of(self, wait_key: int) -> str:
        """The channel of those processes where somebody waits in this line."""
        return f"{self.prefix}wake-ups:{wait_key}"

    def token(self, record: str) -> LockToken | None:
        """The token that a record's name ends with; None for a name that was never given here."""
        try:
            return LockToken.parse(record.rpartition(":")[2])
        except MessageNotFound:
            return None
