"""The words of words.toml and metrics.toml, compared with the names that the code has."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from developing.processes import Refusal

HERE = Path(__file__).parent
WORDS: Mapping[str, Any] = tomllib.loads((HERE / "words.toml").read_text("utf-8"))
METRIC_WORDS: Mapping[str, Any] = tomllib.loads((HERE / "metrics.toml").read_text("utf-8"))


def of(words: Mapping[str, Any], table: str, names: Iterable[str]) -> Mapping[str, Any]:
    """Return a table of words. Raises `Refusal` if it does not have exactly the names of the code."""
    found, wanted = words[table], set(names)
    if missing := sorted(wanted - found.keys()):
        raise Refusal(f"developing/reference: [{table}] has no words for {', '.join(missing)}")
    if stale := sorted(found.keys() - wanted):
        raise Refusal(f"developing/reference: [{table}] has words for {', '.join(stale)}, which the code does not know")
    return found
