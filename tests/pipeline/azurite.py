"""A server that answers as Azure Blob Storage does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from developing.environment import AZURITE, node
from tests.docs.other_brokers import HOST, OtherBroker


class Azurite(OtherBroker):
    """Microsoft's emulator, which keeps everything in memory."""

    kind, title, program = "azurite", "Azurite", str(AZURITE)

    def command(self, data: Path) -> Sequence[str]:
        address = ("--blobHost", HOST, "--blobPort", str(self.port))
        quietly = ("--silent", "--disableTelemetry", "--inMemoryPersistence")
        return [str(node()), self.program, *address, *quietly]
