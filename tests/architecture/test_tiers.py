"""A test belongs to the tier that its mark names, or else to the first one that has what it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.tiers import FULL_DIRECTORIES, FULL_FIXTURES, TIERS, Tier, tier_of

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class CallSpec:
    """The parameters of a test."""

    params: dict[str, Any]


@dataclass(frozen=True)
class Item:
    """What the rule reads of a test."""

    marks: tuple[str, ...] = ()
    directory: str = "store"
    fixturenames: tuple[str, ...] = ()
    callspec: CallSpec = field(default_factory=lambda: CallSpec({}))

    @property
    def nodeid(self) -> str:
        return f"tests/{self.directory}/test_one.py::test_it"

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def tier(item: Item) -> Tier:
    return tier_of(cast("pytest.Item", item))


def test_a_test_is_quick_unless_it_needs_more() -> None:
    assert tier(Item()) is Tier.QUICK
    assert tier(Item(fixturenames=("tmp_path",), callspec=CallSpec({"store_fixture": "sqlite"}))) is Tier.QUICK


@pytest.mark.parametrize(
    "item",
    [
        Item(directory="faults"),
        Item(fixturenames=("require_server",)),
        Item(callspec=CallSpec({"store_fixture": "postgresql-shared"})),
        Item(callspec=CallSpec({"broker_fixture": "redis locks"})),
    ],
    ids=["directory", "fixture", "store", "locks"],
)
def test_what_needs_a_server_or_its_directory_belongs_to_the_full_tier(item: Item) -> None:
    assert tier(item) is Tier.FULL


@pytest.mark.parametrize("name", TIERS)
def test_a_mark_decides(name: str) -> None:
    assert tier(Item(marks=(name,), fixturenames=("require_server",))) is TIERS[name]
    assert tier(Item(marks=(name,))) is TIERS[name]


def test_the_last_tier_of_several_marks_decides() -> None:
    """As for one parameter of a test whose others are quick."""
    assert tier(Item(marks=("quick", "nightly"))) is Tier.NIGHTLY


def test_the_directories_and_fixtures_of_the_rule_exist() -> None:
    assert all((TESTS / name).is_dir() for name in FULL_DIRECTORIES)
    sources = "".join(file.read_text() for file in TESTS.rglob("conftest.py"))
    assert [name for name in FULL_FIXTURES if f"def {name}(" not in sources] == []
