"""Measures the processor time of each test, for the JUnit files of a run and their table of the slowest tests."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from developing.test_costs import PROPERTY

STARTED = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Begin before the fixtures of a test."""
    item.stash[STARTED] = _processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Record the time after a test's fixtures have ended. A fixture of several tests counts for the first and the last."""
    try:
        return (yield)
    finally:
        item.user_properties.append((PROPERTY, f"{_processor_seconds() - item.stash[STARTED]:.2f}"))


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
