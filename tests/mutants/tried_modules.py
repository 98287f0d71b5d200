"""The record of modules whose mutants a run has tried, each with a digest of its source. Only such a run writes a line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.trial import file_of, module_of

RECORD = Path(__file__).with_suffix(".txt")
DIGEST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class TriedModules:
    """The modules in a file, a line each."""

    file: Path = RECORD

    def read(self) -> dict[str, str]:
        """Return the digests by module."""
        return dict(line.split() for line in self.file.read_text().splitlines())

    def changed(self, files: Iterable[Path]) -> list[Path]:
        """Return those of these modules whose source is not the one whose mutants were tried."""
        tried = self.read()
        return [file for file in files if tried.get(module_of(file)) != _digest_of(file)]

    def add(self, modules: Iterable[str]) -> None:
        """Record that all mutants of these modules were tried, and forget modules that are gone."""
        tried = self.read() | {module: _digest_of(file_of(module)) for module in modules}
        kept = (f"{module} {digest}\n" for module, digest in sorted(tried.items()) if file_of(module).exists())
        self.file.write_text("".join(kept))


def _digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGEST_DIGITS]
