"""The benchmark of exports finds PostgreSQL's driver under every name that a package gives it."""

from pathlib import Path

import pytest

from benchmarks.jdbc_driver import jdbc_driver


@pytest.mark.parametrize(
    ("jars", "chosen"),
    [
        (["postgresql.jar", "postgresql-42.5.5.jar", "postgresql-jdbc4.jar"], "postgresql.jar"),
        (["postgresql-42.7.2.jar", "java-cup.jar"], "postgresql-42.7.2.jar"),
    ],
)
def test_the_driver_has_the_name_of_its_package(tmp_path: Path, jars: list[str], chosen: str) -> None:
    for jar in jars:
        (tmp_path / jar).touch()
    assert jdbc_driver(tmp_path) == tmp_path / chosen


def test_without_the_package_there_is_no_driver(tmp_path: Path) -> None:
    assert jdbc_driver(tmp_path) is None
    assert jdbc_driver(tmp_path / "none") is None
