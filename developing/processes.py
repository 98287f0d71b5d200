"""Runs programs in the checkout, and prints progress."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from developing.paths import ENVIRONMENT, ROOT


class Refusal(Exception):
    """A reason why a command cannot run, as a sentence for its user."""


def status(*command: str | Path) -> int:
    """Run a command in the checkout and return its exit code."""
    return subprocess.run([str(part) for part in command], cwd=ROOT, env=ENVIRONMENT, check=False).returncode


def call(*command: str | Path) -> None:
    """Run a command in the checkout. Raises `Refusal` if it fails."""
    if (code := status(*command)) != 0:
        raise Refusal(f"this failed with code {code}: {' '.join(str(part) for part in command)}")


def output(*command: str | Path) -> bytes:
    """Run a command in the checkout and return its output. Raises `Refusal` if it fails."""
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        raise Refusal(f"this failed with code {done.returncode}: {' '.join(str(part) for part in command)}")
    return done.stdout


def say(sentence: str) -> None:
    """Print progress on stderr, because stdout belongs to the command."""
    print(f"dev.py: {sentence}", file=sys.stderr, flush=True)
