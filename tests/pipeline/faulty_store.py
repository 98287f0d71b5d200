"""A proxy in front of an object store that loses a commit to a Delta log, or its answer.

It is a process: deltalake holds the interpreter while it waits for some answers, so a thread could not give them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.docs.other_brokers import OtherBroker
from tests.pipeline import losing_proxy


class FaultyStore(OtherBroker):
    """The proxy. Its option is the URL of the store."""

    kind, title, program = "faulty-store", "proxy of an object store", sys.executable

    def command(self, data: Path) -> Sequence[str]:
        return [self.program, losing_proxy.__file__, str(self.port), *self.options]

    def lose(self, what: str) -> None:
        """Drop the connection of the next commit: before it (`request`) or after it (`answer`)."""
        httpx.put(self.url + losing_proxy.LOSE + what).raise_for_status()

    def lost(self) -> str:
        """Return what was lost of the commit; empty if none has come."""
        return httpx.get(self.url + losing_proxy.LOSE).text
