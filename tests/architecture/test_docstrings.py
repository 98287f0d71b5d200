"""What a docstring refers to with "See" and a name is a class, function, constant or file that exists."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from pydoc import locate

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = re.compile(r"\bSee\s+`([A-Za-z_][\w.]*)`")
DEFINITION = re.compile(r"^ *(?:(?:class|def|async def) (\w+)|(\w+)(?:: [^=\n]+)? = )", re.MULTILINE)


@cache
def programs() -> dict[Path, str]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {ROOT / name: (ROOT / name).read_text("utf-8") for name in listed.stdout.split()}


@cache
def definitions() -> frozenset[str]:
    """The names of all classes, functions and constants."""
    return frozenset(name for text in programs().values() for found in DEFINITION.findall(text) for name in found)


def is_defined(reference: str, file: Path) -> bool:
    """Whether our code defines it, or a library, or it is a file beside the one that names it."""
    is_ours = reference.rpartition(".")[2] in definitions()
    is_of_library = "." in reference and locate(reference) is not None
    return is_ours or is_of_library or (file.parent / reference).is_file()


def test_what_docstrings_refer_to_is_defined() -> None:
    found = [(file, reference) for file, text in programs().items() for reference in REFERENCE.findall(text)]
    assert len(found) > 200  # or they were not found
    assert [
        f"{file.relative_to(ROOT)}: {reference}" for file, reference in found if not is_defined(reference, file)
    ] == []


def test_a_reference_to_nothing_is_noticed() -> None:
    file = Path(__file__)
    assert is_defined("SendingStore", file)
    assert is_defined("asyncio.Protocol", file)
    assert is_defined("test_words.py", file)
    assert not is_defined("MessageStores", file)
    assert not is_defined("asyncio.Protocols", file)
    assert not is_defined("test_nothing.py", file)
