"""The record of fences that are proven: each by a test that fails without the fence, and passes with it.

Only the run that proves a fence writes its line. A line holds as long as the statement without the fence and the source of the
test are the same, so a full run proves what has changed, and a nightly run everything.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.faults.fenced_tests import FencedTest
from tests.faults.removed_fences import RemovedFence

RECORD = Path(__file__).with_suffix(".txt")
DIGEST_DIGITS = 12


class Proof(NamedTuple):
    """One line of the record. The digest is that of the statement without the fence, and of the test."""

    store: str
    statement: str
    kind: str
    test: str
    digest: str


@dataclass(frozen=True, slots=True)
class ProvenFences:
    """The proofs in a file, a line each. Sorted, so that two branches rarely change the same place."""

    file: Path = RECORD

    def read(self) -> set[Proof]:
        """Return all proofs."""
        return {Proof(*line.split()) for line in self.file.read_text().splitlines()}

    def replace(self, store: str, proofs: Iterable[Proof]) -> None:
        """Replace the proofs of a store. Those of another may be replaced by another process at the same time."""
        with self.file.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            kept = {proof for proof in self.read() if proof.store != store}
            file.write("".join(f"{' '.join(proof)}\n" for proof in sorted(kept | {*proofs})))
            file.truncate()


def proof_of(store: str, fence: RemovedFence, test: FencedTest) -> Proof:
    """Return the proof that a test gives by its failure without the fence."""
    content = f"{fence.statements[fence.statement].text}\n{inspect.getsource(test.function)}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:DIGEST_DIGITS]
    return Proof(store, fence.statement, fence.kind, test.name, digest)
