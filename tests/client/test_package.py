"""The wheels have what an index of packages asks for, and both packages run from their wheels alone."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from developing.paths import BIN, BROKERS_VENV, ROOT
from tests.databases import RunResources
from tests.reader import PIP, fresh_clone, reader_environment
from tests.servers import TIMEOUT_SECONDS

PACKAGES = {"peeklock": ".", "peeklock_client": "client"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh virtual environment, with a pip that takes packages from the cache of the machine."""
    directory = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    pip = directory / "bin/pip"
    pip.write_text(PIP.format(uv=BIN / "uv"))
    pip.chmod(0o755)
    return directory / "bin"


@pytest.fixture(scope="module")
def wheels(run_resources: RunResources, environment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each package, built from a copy of the repository."""
    directory = tmp_path_factory.mktemp("wheels")
    source = directory / "source"
    shutil.copytree(fresh_clone(run_resources), source)
    for folder in PACKAGES.values():
        command = [BIN / "uv", "build", "--quiet", "--wheel", "--out-dir", directory, source / folder]
        for offline in (["--offline"], []):
            if subprocess.run([*command, *offline], check=False, capture_output=True).returncode == 0:
                break
    return {wheel.name.partition("-")[0]: wheel for wheel in directory.glob("*.whl")}


def metadata_of(wheel: Path) -> Message:
    """Return the metadata in a wheel."""
    with zipfile.ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(files.read(name).decode())


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
def test_an_index_would_accept_the_wheel(wheels: dict[str, Path], package: str) -> None:
    twine = [BROKERS_VENV / "bin/twine", "check", "--strict", wheels[package]]
    done = subprocess.run(twine, capture_output=True, text=True, check=False)
    assert (done.returncode, "PASSED" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
def test_the_metadata_is_whole_and_names_no_address_that_does_not_exist(wheels: dict[str, Path], package: str) -> None:
    metadata = metadata_of(wheels[package])
    assert metadata["Name"] == package.replace("_", "-")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert all(metadata[name] for name in ("Summary", "Keywords", "Requires-Python", "Requires-Dist", "Classifier"))
    assert (metadata["Home-page"], metadata["Project-URL"]) == (None, None)


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], environment: Path) -> Path:
    """The environment, with both wheels and what they need."""
    run_in(environment, environment, "pip", "install", *wheels.values())
    return environment


def run_in(environment: Path, directory: Path, command: str, *arguments: str | Path, **variables: str) -> str:
    """Run a command of an environment, and return what it prints. The test fails with its errors if it fails."""
    done = subprocess.run(
        [environment / command, *arguments],
        cwd=directory,
        env=reader_environment(environment)
        | {"VIRTUAL_ENV": str(environment.parent), "UV_CONSTRAINT": str(ROOT / "requirements/test.txt")}
        | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_the_command_of_the_client_runs_from_its_wheel(installed: Path, tmp_path: Path) -> None:
    assert "--push URL" in run_in(installed, tmp_path, "peeklock-worker", "--help")
    [marker] = installed.parent.glob("lib/*/site-packages/peeklock_client/py.typed")
    assert marker.exists()


@pytest.mark.full
def test_the_server_creates_its_tables_from_its_wheel(installed: Path, tmp_path: Path) -> None:
    database = tmp_path / "peeklock.db"
    run_in(installed, tmp_path, "peeklock", "migrate", PEEKLOCK_DATABASE_URL=f"sqlite:///{database}")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'message'").fetchall()


def test_both_packages_have_the_same_licence() -> None:
    assert (ROOT / "client/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
