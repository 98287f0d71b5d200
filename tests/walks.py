"""Tests that walk over data: one test tries every case, and its failure names all cases that break the rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

FAILURES = (AssertionError, pytest.fail.Exception)


def for_each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Callable[[Any], str] = str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test once for all cases, as `pytest.mark.parametrize` runs it once for each. `ids` names a case in a failure.

    It is for cases that differ in their data alone: they share the fixtures of one test. Two may be stacked.
    """
    named = [
        (ids(case), {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))) for case in cases
    ]
    if not named:
        raise ValueError(f"no case of {names}")
    taken = {names} if isinstance(names, str) else {*names}

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        async def run_each(**fixtures: Any) -> None:
            with _report() as broken:
                for name, case in named:
                    with _noted(name, broken):
                        await test(**case, **fixtures)

        def run_all(**fixtures: Any) -> None:
            with _report() as broken:
                for name, case in named:
                    with _noted(name, broken):
                        test(**case, **fixtures)

        walk = run_each if inspect.iscoroutinefunction(test) else run_all
        signature = inspect.signature(test)
        walk.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[each for each in signature.parameters.values() if each.name not in taken]
        )
        walk.__name__, walk.__qualname__, walk.__doc__ = test.__name__, test.__qualname__, test.__doc__
        walk.__module__ = test.__module__
        walk.__wrapped__ = test  # type: ignore[attr-defined]  # so that its source is that of the test
        walk.__dict__.update(pytestmark=getattr(test, "pytestmark", []))
        return walk

    return decorate


@contextmanager
def _report() -> Iterator[dict[str, str]]:
    """Fail at the end with the text of each case that broke the rule, by its name."""
    broken: dict[str, str] = {}
    yield broken
    if broken:
        pytest.fail("\n".join(f"{name}: {text}" for name, text in broken.items()), pytrace=False)


@contextmanager
def _noted(name: str, broken: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except FAILURES as failure:
        broken[name] = str(failure)
