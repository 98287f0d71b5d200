"""The columns of the table: the conditions of a row, its figure, its reference and its target."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured number and its limit. The text and the result come from the same limit."""

    text: str
    met: bool


def at_most(limit: float, unit: str, measured: float) -> Goal:
    """The number may reach the limit and no more."""
    return Goal(f"≤ {limit:,g}{unit}", measured <= limit)


def at_least(limit: float, unit: str, measured: float) -> Goal:
    """The number must reach the limit."""
    return Goal(f"≥ {limit:,g}{unit}", measured >= limit)


def expect_none(what: str, measured: int) -> Goal:
    """The number must be 0."""
    return Goal(f"no {what}", measured == 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its reference was measured in the same run, and all its targets must be met."""

    name: str
    conditions: str
    measured: str
    reference: str
    goals: Sequence[Goal]

    @property
    def target(self) -> str:
        """The targets, as text."""
        return "; ".join(goal.text for goal in self.goals)

    @property
    def verdict(self) -> str:
        """Return `met`, `missed`, or `no target` for a row without targets."""
        return ("met" if all(goal.met for goal in self.goals) else "missed") if self.goals else "no target"

    def as_text(self) -> str:
        """The row for people."""
        return "\n".join(
            (
                f"{self.verdict:<9} {self.name}",
                f"          conditions {self.conditions}",
                f"          measured   {self.measured}",
                f"          reference  {self.reference}",
                f"          target     {self.target}",
            )
        )

    def as_json(self) -> dict[str, object]:
        """The row for machines."""
        return {
            "name": self.name,
            "conditions": self.conditions,
            "measured": self.measured,
            "reference": self.reference,
            "target": self.target,
            "verdict": self.verdict,
        }
