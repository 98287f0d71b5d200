"""No test replaces a part of this project: tests pass values, clocks and stores, or cause a condition from outside."""

import ast
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
OWN_PACKAGES = ("app", "peeklock_pipeline")

PATCHES = {
    "fcntl.flock": "the tests' file system refuses no lock",
    "sqlite3.connect": "the library does not list its connections, and the tests' file system allows a write-ahead log",
    "tempfile.tempdir": "the library reads its directory from the environment once",
    "resource.getrlimit": "root may raise every limit, and a lower one would stay for the whole process",
    "resource.setrlimit": "it refuses root nothing",
    "pymysql.connect": "the driver raises the error of a missing login, and no other of its kind",
}
"""What tests replace in libraries, and why no condition from outside does it."""


def calls_of_setattr(tree: ast.Module) -> Iterator[str]:
    """Yield what `monkeypatch.setattr` replaces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            yield ".".join(
                part.value if isinstance(part, ast.Constant) else ast.unparse(part) for part in node.args[:-1]
            )


def own_names(tree: ast.Module) -> set[str]:
    """Return the names under which a module of tests has imported parts of this project."""
    return {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OWN_PACKAGES
        for name in node.names
    }


def assignments_to_own_names(tree: ast.Module) -> Iterator[str]:
    """Yield attributes of this project's modules and classes that a module of tests sets."""
    names = own_names(tree)
    for node in ast.walk(tree):
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_set and isinstance(node.value, ast.Name) and node.value.id in names:
            yield ast.unparse(node)


def programs(text: str) -> Iterator[ast.Module]:
    """Yield a module of tests, and the programs in its strings, which it runs in other processes."""
    module = ast.parse(text)
    yield module
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            with suppress(SyntaxError):
                yield ast.parse(node.value)


@cache
def all_programs() -> list[tuple[str, ast.Module]]:
    """Return the name of each module of tests except this one, with each of its programs."""
    return [
        (str(path.relative_to(TESTS)), program)
        for path in TESTS.rglob("*.py")
        if path != Path(__file__)
        for program in programs(path.read_text("utf-8"))
    ]


def test_no_test_replaces_a_part_of_this_project() -> None:
    replaced = {one: name for name, program in all_programs() for one in calls_of_setattr(program)}
    assert replaced.keys() == PATCHES.keys(), replaced
    assert [(name, one) for name, program in all_programs() for one in assignments_to_own_names(program)] == []


def test_no_test_imports_a_library_that_replaces_parts() -> None:
    imports = [
        (name, ast.unparse(node))
        for name, program in all_programs()
        for node in ast.walk(program)
        if isinstance(node, ast.ImportFrom | ast.Import)
    ]
    assert [(name, line) for name, line in imports if "mock" in line] == []


def test_each_way_to_replace_a_part_is_found() -> None:
    script = "from app.store import pool\npool.MAX_TRIES = 1\n"
    module, program = programs(
        "from app.store import migrate\n"
        "monkeypatch.setattr(migrate, 'MIGRATIONS', None)\n"
        "monkeypatch.setattr('app.store.migrate.MIGRATIONS', None)\n"
        "migrate.MIGRATIONS = None\n"
        f"SCRIPT = {script!r}\n"
    )
    assert list(calls_of_setattr(module)) == ["migrate.MIGRATIONS", "app.store.migrate.MIGRATIONS"]
    assert list(assignments_to_own_names(module)) == ["migrate.MIGRATIONS"]
    assert list(assignments_to_own_names(program)) == ["pool.MAX_TRIES"]
