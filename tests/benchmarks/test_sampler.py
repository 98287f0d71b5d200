"""The profile of a server counts each file of it for the part that the file belongs to."""

from pathlib import Path

import app
from benchmarks.sampler import PARTS, part_of

ROOT = Path(app.__file__).parent
AT_THE_START = ("assembly.py", "logs.py", "settings.py", "cli", "testing", "__init__.py")
"""What only runs when a server starts, or in other programs."""


def test_every_package_of_a_running_server_is_a_part() -> None:
    running = [file for file in ROOT.rglob("*.py") if file.relative_to(ROOT).parts[0] not in AT_THE_START]
    assert [file for file in running if part_of(str(file)) is None] == []


def test_every_part_of_the_service_exists() -> None:
    files = [str(file) for file in ROOT.rglob("*.py")]
    of_the_service = [path for path in PARTS if path.startswith("/app/")]
    assert [path for path in of_the_service if not any(path in file for file in files)] == []
