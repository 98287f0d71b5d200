"""docs/guides/stability.md says of versions, formats and deprecations what is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from app.wire.capabilities import API_VERSION
from developing.paths import OPENAPI, ROOT

PAGE = " ".join((ROOT / "docs/guides/stability.md").read_text().split())


def test_every_package_has_the_version_that_the_page_names() -> None:
    packages = [ROOT / name / "pyproject.toml" for name in (".", "client", "pipeline")]
    versions = {tomllib.loads(file.read_text())["project"]["version"] for file in packages}
    versions |= set(re.findall(r"^(?:version|appVersion): (.*)$", text_of("helm/peeklock/Chart.yaml"), re.MULTILINE))
    assert versions == set(re.findall(r"It is (\S+) at present", PAGE))


def test_the_version_of_the_api_begins_each_path_that_the_page_speaks_of() -> None:
    assert f"the first part of each path: `/{API_VERSION}`" in PAGE


def test_the_lake_has_the_format_that_the_page_names() -> None:
    (written,) = re.findall(r"^FORMAT = (\d+)$", text_of("pipeline/peeklock_pipeline/tables.py"), re.MULTILINE)
    assert f"a number that is {written} at present" in PAGE


def test_nothing_in_the_document_is_deprecated_as_the_page_says() -> None:
    assert '"deprecated"' not in OPENAPI.read_text()
    assert "Nothing in the API is deprecated at present" in PAGE


def text_of(name: str) -> str:
    return Path(ROOT / name).read_text()
