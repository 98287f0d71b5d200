"""What all rows use: the servers of this run, a directory, and the amount of work of a round."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.systems import SERVE, System, peeklock
from tests.servers import PostgresServer, RedisServer

MAX_CONNECTIONS = 2000
"""More than any row opens; a thousand receivers wait at the same time."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One run. A scale of 1.0 is the full work; figures of a smaller one are only indicative."""

    postgres: PostgresServer
    redis: RedisServer
    folder: Path
    scale: float

    def units(self, whole: int) -> int:
        """Return the number of units in this run."""
        return max(20, int(whole * self.scale))

    @property
    def rounds(self) -> int:
        """Counted rounds of each comparison."""
        return 5 if self.scale >= 1 else 3

    @contextmanager
    def peeklock(
        self,
        *,
        workers: int = 1,
        database: str = "bench",
        seal_seconds: float = 10,
        command: Sequence[str] = SERVE,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[System]:
        """Peeklock over PostgreSQL and Redis, its database empty, started by this command, with more settings."""
        limits = {
            "PEEKLOCK_SEAL_INTERVAL_SECONDS": str(seal_seconds),
            "PEEKLOCK_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
        }
        with peeklock(
            self.folder,
            self.postgres,
            self.redis,
            workers=workers,
            database=database,
            command=command,
            more={**limits, **more},
        ) as system:
            yield system
