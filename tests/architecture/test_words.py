"""Prose and names of tests use none of the words that make this project's English hard to read. The names are short."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WORDS = (
    "whoever", "whatever", "whichever", "whose turn", "anew", "nobody", "somebody", "anybody", "everybody", "thereof",
    "likewise", "hence", "bites?", "rings?", "rung", "bells?", "hungry", "guests?", "seats?", "dear", "in vain", "so many",
    "the one who", "those who", "what is none", "by itself", "is there", "desks?", "houses?",
)  # fmt: skip
PATTERN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)

RATE = re.compile(
    r"\b(?:messages|requests|events|lifecycles|rates?|once|twice|[kmgt]ib)\s+an?\s+(?:second|minute|hour|day)\b",
    re.IGNORECASE,
)
"""A rate that should say "per second"."""

COMMENT_MARKS = {".sql": "--", ".lua": "--", ".yaml": "#", ".toml": "#", ".tpl": "#", ".in": "#", ".sh": "#"}
WRITTEN_BY_OTHERS = ("LICENSE", "openapi/", "migrations/versions/", "tests/architecture/test_words.py")
"""The text of the licence, an exported document, migrations that are never edited, and this list."""

FENCED = re.compile(r"^```.*?^```$|^    .*$", re.MULTILINE | re.DOTALL)


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    kinds = (".py", ".md", *COMMENT_MARKS)
    return [ROOT / name for name in listed if name.endswith(kinds) and not name.startswith(WRITTEN_BY_OTHERS)]


@cache
def prose(file: Path) -> Sequence[str]:
    """The prose of a file, which several tests read."""
    return list(texts_of(file))


def texts_of(file: Path) -> Iterator[str]:
    """The docstrings and comments of a program, the comments of other sources, the text of a page without examples."""
    text = file.read_text("utf-8")
    if file.suffix == ".md":
        yield FENCED.sub("", text)
    elif file.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.value.value
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    else:
        for line in text.splitlines():
            yield line.partition(COMMENT_MARKS[file.suffix])[2]


def found() -> Iterator[str]:
    """Each listed word with its file and its neighbours."""
    for file in files():
        for text in prose(file):
            for match in PATTERN.finditer(text):
                around = text[max(0, match.start() - 40) : match.end() + 40]
                yield f"{file.relative_to(ROOT)}: {' '.join(around.split())}"


def test_no_listed_word_stands_in_prose() -> None:
    assert len(files()) > 500  # or they were not found
    assert list(found()) == []


def test_rates_are_per_second() -> None:
    texts = [(file, text) for file in files() if file.name != "CHANGELOG.md" for text in prose(file)]
    pages = (ROOT / "app/console/templates").glob("*.html")
    texts += [(page, page.read_text("utf-8")) for page in pages]
    assert [f"{file.relative_to(ROOT)}: {found}" for file, text in texts for found in RATE.findall(text)] == []


def names_of_tests() -> list[str]:
    names = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
    return [name for file in files() for name in names.findall(file.read_text("utf-8"))]


def test_no_listed_word_stands_in_the_name_of_a_test() -> None:
    assert [name for name in names_of_tests() if PATTERN.search(name.replace("_", " "))] == []


def test_the_name_of_a_test_is_no_longer_than_80_letters() -> None:
    assert [name for name in names_of_tests() if len(name) > 80] == []


def test_a_listed_word_is_found(tmp_path: Path) -> None:
    program, statements = tmp_path / "a.py", tmp_path / "a.sql"
    program.write_text('"""Tells whoever asks."""\nx = 1  # so many\n')
    statements.write_text("-- a: made anew\nSELECT 1\n")
    assert [len(PATTERN.findall(" ".join(prose(file)))) for file in (program, statements)] == [2, 1]
