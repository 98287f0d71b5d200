"""The tests that are marked with kinds of fences, to be called as functions."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS_DIRECTORY = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, eq=False)
class FencedTest:
    """One test with one choice of its parameters. Without a fence of these kinds it may fail."""

    kinds: frozenset[str]
    function: Callable[..., Awaitable[None]]
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.function.__name__

    async def passes(self, **fixtures: Any) -> bool:
        """Run it with those of these fixtures that it uses. Return whether its assertions hold; other errors are raised."""
        used = inspect.signature(self.function).parameters.keys() & fixtures.keys()
        try:
            await self.function(**{name: fixtures[name] for name in used}, **self.parameters)
        except (AssertionError, pytest.fail.Exception):
            return False
        return True


def fenced_tests(directory: str) -> list[FencedTest]:
    """Return the marked tests of a directory below `tests`, each as often as its parameters vary."""
    return [
        FencedTest(kinds, function, parameters)
        for file in sorted((TESTS_DIRECTORY / directory).glob("test_*.py"))
        for function, marks in _marked_functions(f"tests.{directory}.{file.stem}")
        if (kinds := frozenset(kind for mark in marks if mark.name == "fence" for kind in mark.args))
        for parameters in _choices(marks)
    ]


def _marked_functions(module: str) -> Iterator[tuple[Callable[..., Awaitable[None]], list[pytest.Mark]]]:
    for name, value in vars(importlib.import_module(module)).items():
        if name.startswith("test_"):
            yield value, getattr(value, "pytestmark", [])


def _choices(marks: Sequence[pytest.Mark]) -> Iterator[Mapping[str, Any]]:
    """Each combination of the values with which the marks parametrize a test."""
    for choice in itertools.product(*(_values(*mark.args) for mark in marks if mark.name == "parametrize")):
        yield {name: value for some in choice for name, value in some.items()}


def _values(names: str | Sequence[str], rows: Sequence[Any]) -> list[Mapping[str, Any]]:
    if isinstance(names, str):
        return [{names: value} for value in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]
